"""The allocator's switches: they are there on Linux with glibc, and their absence is no error."""

from __future__ import annotations

import ctypes
import platform

import pytest

from minibroker.broker.allocation import keep_freed_memory


def test_glibc_takes_the_thresholds() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


def test_a_library_without_the_switch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()
