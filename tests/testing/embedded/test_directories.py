"""The temporary directories of brokers: what a killed process leaves is removed, and nothing that is in use."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from minibroker.testing import Broker
from minibroker.testing.embedded.directories import ABANDONED_S, OWNER, remove_abandoned_directories


def left(directory: Path, name: str, age_s: float) -> Path:
    """Create a directory as a process leaves it that was killed so long ago."""
    found = directory / f"minibroker-{name}"
    (found / "1").mkdir(parents=True)
    (found / OWNER).touch()
    when = time.time() - age_s
    os.utime(found / OWNER, (when, when))
    return found


def test_directories_left_by_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old, young = left(tmp_path, "aaaaaaaa", ABANDONED_S + 60), left(tmp_path, "bbbbbbbb", 0)
    other = left(tmp_path, "of-somebody", ABANDONED_S + 60)
    with Broker() as broker:
        own = broker.directory.parent
        os.utime(own / OWNER, (0, 0))
        remove_abandoned_directories()
        assert own.is_dir() and broker.produce("t", "a") == 0
    assert not old.exists() and young.is_dir() and other.is_dir() and not own.exists()
