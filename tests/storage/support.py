"""What the storage tests share: surroundings whose time stands still, batches, reading a log, a disk that fails.

Nothing here tests anything.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.formats import check_batch_or_message, iterate_records_in_any_format
from minibroker.protocol.records.record import Record
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.environment import Done, run_work_at_once
from minibroker.storage.files import Bytes, Disk, File
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import Checkpoints, open_log
from minibroker.storage.segment import TimestampOffset
from minibroker.storage.validation import (
    ValidatedBatches,
    is_plain_batch,
    validate_plain_batch,
    validate_records_in_steps,
)

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "6oQAEIunx_IyNNmJmG53dw"
# Few batches fill a segment, and several index entries are in it.
SMALL = LogSettings(segment_bytes=500, index_interval_bytes=100)


def validate_records(log: Log, records: memoryview, *, api_version: int, now_ms: int) -> ValidatedBatches:
    """Return what is to be appended of a Produce request's records, as the handler has it."""
    validated = validate_plain_batch(log, records, now_ms) if is_plain_batch(records) else None
    return validated or run_all_steps(validate_records_in_steps(log, records, api_version=api_version, now_ms=now_ms))


class Surroundings:
    """A clock that a test moves, and what was scheduled on it; `environment` is what logs are given."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.now_ms = NOW_MS
        self.scheduled: list[tuple[int, Callable[[], None]]] = []
        self.environment = Environment(disk or FailingDisk(), lambda: self.now_ms, self._schedule)

    def _schedule(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.scheduled.append((delay_ms, callback))

    def run_scheduled(self) -> None:
        """Call all that was scheduled, as if its time had come."""
        scheduled, self.scheduled = self.scheduled, []
        for _, callback in scheduled:
            callback()


class Losing(Random):
    """Chance at its worst for a `FaultyDisk`: a power cut takes all that was not synced."""

    def choice(self, seq: Any) -> Any:
        return "none" if "none" in seq else seq[0]

    def randint(self, a: int, b: int) -> int:
        return a


class Aside:
    """The work given to another thread: nothing of it is done before the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Done]] = []

    def take(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def do(self) -> None:
        """Do the oldest job, and report it."""
        run_work_at_once(*self.jobs.pop(0))


def records(count: int = 1, *, value: bytes = b"v", key: bytes | None = b"k", timestamp: int = NOW_MS) -> list[Record]:
    """Records that differ in their value only."""
    return [Record(timestamp=timestamp, key=key, value=value + b"%d" % index) for index in range(count)]


def batch(count: int = 1, *, value: bytes = b"v", timestamp: int = NOW_MS, **options: int) -> bytearray:
    """A batch of `count` records; `options` as of `build_batch`."""
    return build_batch(records(count, value=value, timestamp=timestamp), **options)  # type: ignore[arg-type]


def append(log: Log, data: bytearray, leader_epoch: int = 0) -> int:
    """Append one batch that needs no validation; its first offset."""
    return log.append(data, (check_batch(data),), leader_epoch)


def open_at(
    directory: Path | str,
    settings: LogSettings | None = None,
    *,
    clean: bool = True,
    surroundings: Surroundings | None = None,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> Log:
    """The log orders-0 in `directory`, which is made if it is not there."""
    environment = (surroundings or Surroundings()).environment
    environment.disk.make_directory(str(directory))
    known = Checkpoints(clean, recovery_point, log_start_offset)
    return open_log(environment, str(directory), ("orders", 0), settings or LogSettings(), known)


def log_of(directory: Path, batches: int = 30, settings: LogSettings = SMALL, **options: int) -> Log:
    """A log of `batches` batches of two records, ten ms apart."""
    log = open_at(directory, settings)
    for number in range(batches):
        append(log, batch(2, timestamp=NOW_MS + 10 * number, **options))
    return log


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """Return what the log finds for a timestamp, all steps at once."""
    return run_all_steps(log.find_offset_for_timestamp_in_steps(timestamp))


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """Return what the log finds for its largest timestamp, all steps at once."""
    return run_all_steps(log.find_offset_of_max_timestamp_in_steps())


def read_batches(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[bytes]:
    """All batches from `start` on, as a consumer gets them who goes on where the last region ended."""
    offset = log.log_start_offset if start is None else start
    found = []
    while region := log.read(offset, max_bytes):
        data = region.read()
        assert len(data) == region.size_bytes
        while data:
            size = check_batch_or_message(data).size_bytes
            found.append(data[:size])
            data = data[size:]
        offset = region.next_offset
    return found


def read_values(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records from `start` on."""
    return [
        (record.offset, record.value)
        for data in read_batches(log, start)
        for record in iterate_records_in_any_format(data)
    ]


def files_in(directory: Path) -> dict[str, bytes]:
    """Name and content of each file in a directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    """The error code that was raised."""
    return raised.value.code


class FailingFile(File):
    """A file that asks its disk before each operation, and spares the real one the syncs: no test cuts the power."""

    __slots__ = ("disk",)

    disk: FailingDisk

    def read(self, position: int, size: int) -> bytes:
        self.disk.ask("read", self.path)
        return super().read(position, size)

    def write(self, position: int, data: Bytes) -> None:
        allowed = self.disk.room_bytes
        if allowed is not None and len(data) > allowed:
            super().write(position, bytes(data)[:allowed])
            raise OSError(errno.ENOSPC, "No space left on device", self.path)
        self.disk.ask("write", self.path)
        super().write(position, data)

    def truncate(self, size: int) -> None:
        self.disk.ask("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self.disk.ask("sync", self.path)


class FailingDisk(Disk):
    """A disk on which the operations in `failing` fail, for paths that end in `suffix`, and writes end in the middle.

    `room_bytes` is how many bytes of a larger write still get through before there is no space left.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.suffix = ""
        self.room_bytes: int | None = None

    def ask(self, operation: str, path: str) -> None:
        if operation in self.failing and path.endswith(self.suffix):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, *, create: bool = False) -> File:
        self.ask("create" if create else "open", path)
        return super().open(path, create=create)

    def make_file(self, path: str, fd: int) -> File:
        file = FailingFile(path, fd)
        file.disk = self
        return file

    def rename(self, old: str, new: str) -> None:
        self.ask("rename", new)
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self.ask("sync", path)
