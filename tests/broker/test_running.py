"""What a life of a broker begins later, and what may come in between."""

from __future__ import annotations

import asyncio
import builtins
import errno
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cleaner_statistics import CleanerStatistics
from minibroker.broker.clock import SystemClock
from minibroker.broker.running import CLEANER_DELAY_MS, CLEANER_RETRY_MS, _compacting
from tests.broker.harness import Harness


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ImportError("cannot be read")])
def test_compaction_begins_later_where_its_code_cannot_be_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    harness, statistics = Harness(tmp_path), CleanerStatistics()
    really_import = builtins.__import__

    def fail(name: str, *more: Any) -> Any:
        if name == "minibroker.broker.cleaner":
            raise error
        return really_import(name, *more)

    loop = asyncio.new_event_loop()
    with closing(loop), harness, _compacting(harness.cluster, SystemClock(loop), statistics):
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "__import__", fail)
            harness.clock.advance(CLEANER_DELAY_MS)
            harness.clock.advance(CLEANER_RETRY_MS)
        assert caplog.text.count(f"no log is compacted yet, it is tried again in 10 s: {error}") == 2
        assert statistics.looked_ms == 0
        harness.clock.advance(CLEANER_RETRY_MS)
        assert statistics.looked_ms == harness.clock.wall_ms()
