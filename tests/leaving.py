"""What a test leaves behind, found where it was left; shared with conformance."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def leaves_sockets() -> Iterator[None]:
    """For tests whose client, kafka-python, leaves sockets to the garbage collector when a connection is cut.

    They are collected here, where that is known, and not in some later test, which would be blamed for them. What is
    left belongs to the process: to look through all of it again after each of these tests took 0.3 s of CPU.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_stays() -> Iterator[None]:
    """Fail a test after which loggers keep lines to themselves: later tests would miss them, and be blamed for it."""
    before = _how_lines_are_kept()
    yield
    assert _how_lines_are_kept() == before


def _how_lines_are_kept() -> list[object]:
    loggers = [logging.root, *(logging.getLogger(name) for name in ("minibroker", "minibroker.storage.log"))]
    return [logging.root.manager.disable, *((each.level, each.disabled, each.propagate) for each in loggers)]
