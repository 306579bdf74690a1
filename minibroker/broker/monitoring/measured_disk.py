"""A disk that counts and times calls of fsync, and their failures. `metrics` shows the numbers."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from threading import Lock

from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS
from minibroker.storage.files import Disk, File


class SyncStatistics:
    """All syncs of files and directories since it was created. Thread-safe.

    `durations` counts syncs by the smallest bound in `DURATION_BUCKETS_MS` they stay within; the last has the rest.
    """

    __slots__ = ("duration_ms", "durations", "failures", "_lock")

    def __init__(self) -> None:
        self.durations = [0] * (len(DURATION_BUCKETS_MS) + 1)
        self.duration_ms = 0.0
        self.failures = 0
        self._lock = Lock()

    def measure_sync(self, sync: Callable[[], None]) -> None:
        """Run `sync` and count its time. Raises the OSError that it raises."""
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
    """An open file whose syncs are measured."""

    __slots__ = ("_syncs",)

    def __init__(self, path: str, fd: int, syncs: SyncStatistics) -> None:
        super().__init__(path, fd)
        self._syncs = syncs

    def sync(self) -> None:
        self._syncs.measure_sync(super().sync)


class MeasuredDisk(Disk):
    """The disk, with measured syncs."""

    def __init__(self, syncs: SyncStatistics | None = None) -> None:
        self.syncs = syncs or SyncStatistics()

    def make_file(self, path: str, fd: int) -> File:
        return MeasuredFile(path, fd, self.syncs)

    def sync_directory(self, path: str) -> None:
        self.syncs.measure_sync(lambda: super(MeasuredDisk, self).sync_directory(path))
