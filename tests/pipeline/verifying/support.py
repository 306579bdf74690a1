"""What the tests of `verify` share: logs that our storage engine has written, damaging them, and judging without Spark.

Nothing here tests anything.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from struct import Struct

import numpy as np

from minibroker.pipeline.decode.batch_headers import read_headers_at, scan_headers
from minibroker.pipeline.verifying.findings import CHECKS, Finding
from minibroker.pipeline.verifying.log_blocks import LogBlock
from minibroker.pipeline.verifying.log_files import plan_verification_of_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from minibroker.protocol.records.batch import BatchHeader, check_batch, set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.storage.support import NOW_MS, append, open_at

SETTINGS = LogSettings(segment_bytes=2000, index_interval_bytes=200)
INT64, INT32, INT16 = Struct(">q"), Struct(">i"), Struct(">h")


def block_of(data: bytes) -> LogBlock:
    """A block of the batches in `data`, as sound ones."""
    headers = read_headers_at(memoryview(data), scan_headers(memoryview(data)).positions)
    count = len(headers.size)
    first_offset = np.where(headers.record_count < 0, -1, headers.base_offset)
    sound, damages = np.ones(count, np.bool_), np.zeros(count, np.int64)
    return LogBlock(memoryview(data), headers, headers.position, sound, damages, first_offset)


def judge(
    path: Path, *, checks: Iterable[str] = CHECKS, compacted: Collection[str] = (), topics: Collection[str] = ()
) -> list[Finding]:
    """All findings about a directory, as the job makes them, in one thread and without Spark."""
    return verify_plan(plan_verification_of_directory(str(path), checks=checks, compacted=compacted, topics=topics))


def kinds(findings: Iterable[Finding]) -> Counter[str]:
    """How many there are of each kind."""
    return Counter(finding.kind for finding in findings)


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are no notes."""
    return [finding for finding in findings if finding.severity != "note"]


# --- writing -----------------------------------------------------------------------------------


class Writer:
    """A log at `directory / "orders-0"`, and producers that write to it: each keeps its sequence."""

    def __init__(self, directory: Path, settings: LogSettings = SETTINGS) -> None:
        self.directory = directory
        self.path = directory / "orders-0"
        self.log: Log = open_at(self.path, settings)
        self.now_ms = NOW_MS
        self.sequences: dict[tuple[int, int], int] = {}

    def write(
        self, count: int = 3, *, producer: int = -1, epoch: int = 0, transactional: bool = False, **options: int
    ) -> int:
        """A batch of records; its first offset."""
        self.now_ms += 10
        records = [
            Record(timestamp=self.now_ms + number, key=b"k%d" % number, value=b"v%d" % self.log.log_end_offset)
            for number in range(count)
        ]
        return self.put(records, producer=producer, epoch=epoch, transactional=transactional, **options)

    def put(
        self,
        records: list[Record],
        *,
        producer: int = -1,
        epoch: int = 0,
        transactional: bool = False,
        leader_epoch: int = 0,
        **options: int,
    ) -> int:
        """A batch of these records; its first offset."""
        identity: dict[str, int] = {}
        if producer >= 0:
            sequence = self.sequences.get((producer, epoch), 0)
            self.sequences[producer, epoch] = sequence + len(records) & 0x7FFFFFFF
            identity = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        data = build_batch(records, transactional=transactional, **identity, **options)  # type: ignore[arg-type]
        return append(self.log, data, leader_epoch)

    def end(self, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 1) -> int:
        """The marker that ends the producer's transaction; its offset."""
        self.now_ms += 10
        record = make_transaction_marker(committed=commit, coordinator_epoch=coordinator_epoch, timestamp=self.now_ms)
        data = build_batch([record], producer_id=producer, producer_epoch=epoch, transactional=True, control=True)
        return append(self.log, data)

    def close(self) -> Path:
        """Stop in order; the directory of the log."""
        self.log.close()
        return self.path


def written(directory: Path, rounds: int = 30, settings: LogSettings = SETTINGS) -> Path:
    """A log of several segments, with and without producers and transactions, all of which are ended."""
    writer = Writer(directory, settings)
    for number in range(rounds):
        writer.write(3)
        writer.write(2, producer=1)
        writer.write(2, producer=2, transactional=True)
        writer.write(1, producer=3, transactional=True)
        writer.end(2, commit=number % 3 != 0)
        writer.end(3, commit=number % 2 == 0)
    return writer.close()


# --- damaging -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Place:
    """A batch in a file."""

    file: Path
    position: int
    header: BatchHeader


def places(directory: Path) -> list[Place]:
    """All batches of a log."""
    return [
        Place(file, *each)
        for file in sorted(directory.glob("*.log"))
        for each in iterate_batches_in_any_format(file.read_bytes())
    ]


def spread(found: list[Place], count: int = 3) -> list[Place]:
    """Some of the batches, far from each other and from the ends."""
    step = len(found) // (count + 1)
    return [found[step * (number + 1)] for number in range(count)]


def put_bytes(file: Path, position: int, data: bytes) -> None:
    """Write over a part of a file."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def change(place: Place, field: int, data: bytes, *, sealed: bool = True) -> None:
    """Write over a field of a batch, and correct its checksum."""
    whole = bytearray(place.file.read_bytes())
    start, size = place.position, place.header.size_bytes
    whole[start + field : start + field + len(data)] = data
    if sealed:
        batch = whole[start : start + size]
        set_checksum(batch, 0, size)
        whole[start : start + size] = batch
        check_batch(bytes(batch))
    place.file.write_bytes(whole)


def replace_batch(place: Place, batch: bytes) -> None:
    """Put another batch of the same size in the place of one."""
    assert len(batch) == place.header.size_bytes
    put_bytes(place.file, place.position, batch)


def remove_batches(removed: Iterable[Place]) -> None:
    """Cut batches out of their files."""
    for place in sorted(removed, key=lambda each: -each.position):
        data = place.file.read_bytes()
        place.file.write_bytes(data[: place.position] + data[place.position + place.header.size_bytes :])
