"""A disk that measures fsync: how often it is called, how long it takes, how often it fails.

It is the real disk otherwise. `metrics` shows the numbers.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from threading import Lock

from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS
from minibroker.storage.files import Disk, File


class SyncStatistics:
    """All syncs of files and directories since it was made; may be used from any thread.

    `durations` counts them by the first of `DURATION_BUCKETS_MS` that is not exceeded; the last counts the rest.
    """

    __slots__ = ("duration_ms", "durations", "failures", "_lock")

    def __init__(self) -> None:
        self.durations = [0] * (len(DURATION_BUCKETS_MS) + 1)
        self.duration_ms = 0.0
        self.failures = 0
        self._lock = Lock()

    def measure(self, sync: Callable[[], None]) -> None:
        """Run `sync` and note its time. Raise `OSError` as it does."""
        began_ns, failed = time.monotonic_ns(), True
        try:
            sync()
            failed = False
        finally:
            took_ms = (time.monotonic_ns() - began_ns) / 1e6
            with self._lock:
                self.durations[bisect_left(DURATION_BUCKETS_MS, took_ms)] += 1
                self.duration_ms += took_ms
                self.failures += failed


class MeasuredFile(File):
    """One open file of such a disk."""

    __slots__ = ("_syncs",)

    def __init__(self, path: str, fd: int, syncs: SyncStatistics) -> None:
        super().__init__(path, fd)
        self._syncs = syncs

    def sync(self) -> None:
        self._syncs.measure(super().sync)


class MeasuredDisk(Disk):
    """The disk, with the times of its syncs in `syncs`."""

    def __init__(self, syncs: SyncStatistics | None = None) -> None:
        self.syncs = syncs or SyncStatistics()

    def opened(self, path: str, fd: int) -> File:
        return MeasuredFile(path, fd, self.syncs)

    def sync_directory(self, path: str) -> None:
        self.syncs.measure(lambda: super(MeasuredDisk, self).sync_directory(path))
