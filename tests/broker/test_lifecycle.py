"""What a life of a broker begins later, and what may come in between."""

from __future__ import annotations

import asyncio
import builtins
import errno
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.clock import ClusterClock, SystemClock
from minibroker.broker.configs.settings import Settings
from minibroker.broker.lifecycle import (
    CLEANER_DELAY_MS,
    CLEANER_RETRY_MS,
    BrokerDependencies,
    BrokerLifecycle,
    _run_cleaner_in_block,
    bind_listeners,
)
from minibroker.broker.upkeep.cleaner_statistics import CleanerStatistics
from minibroker.storage.files import Disk
from minibroker.storage.names import CLEAN_SHUTDOWN
from tests.broker.harness import Harness


class GatedDisk(Disk):
    """A disk on which no stop is attested before the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def rename(self, old: str, new: str) -> None:
        assert not new.endswith(CLEAN_SHUTDOWN) or self.gate.wait(60)
        super().rename(old, new)


async def test_the_event_loop_continues_while_a_broker_closes_its_logs(tmp_path: Path) -> None:
    loop, disk = asyncio.get_running_loop(), GatedDisk()
    settings = Settings({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    with bind_listeners(settings, 1) as bound:
        running = BrokerLifecycle(settings, bound, BrokerDependencies(ClusterClock(SystemClock(loop)), disk=disk))
        await running.serve()
        ending = asyncio.ensure_future(running.close())
        while not (tmp_path / f"{CLEAN_SHUTDOWN}.tmp").exists():
            await asyncio.sleep(0.01)
        late: list[str] = []
        running.cluster.clock.call_later(0, lambda: late.append("reached logs that are being closed"))
        await asyncio.sleep(0.01)
        disk.gate.set()  # for which the thread waits
        await ending
    assert not late
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ImportError("cannot be read")])
def test_compaction_starts_later_if_its_code_cannot_be_imported_immediately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    harness, statistics = Harness(tmp_path), CleanerStatistics()
    really_import = builtins.__import__

    def fail(name: str, *more: Any) -> Any:
        if name == "minibroker.broker.upkeep.cleaner":
            raise error
        return really_import(name, *more)

    loop = asyncio.new_event_loop()
    with closing(loop), harness, _run_cleaner_in_block(harness.cluster, SystemClock(loop), statistics):
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "__import__", fail)
            harness.clock.advance(CLEANER_DELAY_MS)
            harness.clock.advance(CLEANER_RETRY_MS)
        assert caplog.text.count(f"compaction does not run yet, the next try is in 10 s: {error}") == 2
        assert statistics.looked_ms == 0
        harness.clock.advance(CLEANER_RETRY_MS)
        assert statistics.looked_ms == harness.clock.wall_ms()
