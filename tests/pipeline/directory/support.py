"""What the tests of the directory share: logs that the storage engine has written, and reading them both ways.

Nothing here tests anything. The truth is `records_in`, the broker's own codec, on the bytes that were appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, Split, TopicPartition, TopicSelection
from minibroker.protocol.records.batch import BatchHeader
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import check_batch_or_message, iterate_records_in_any_format, read_header_at
from minibroker.protocol.records.formats import iterate_batches_in_any_format as batch_places
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from minibroker.storage.recovery.recovery import Checkpoints, open_log
from tests.storage.support import NOW_MS, Surroundings

ORDERS = TopicPartition("orders", 0)
SMALL = LogSettings(segment_bytes=2000, index_interval_bytes=200)
RECORDS = ReadRequest("records", ("offset", "key", "value", "timestamp"))
BATCHES = ReadRequest("batches", ("baseOffset", "lastOffset", "position", "segment", "isControl"))
LAST_CODEC = (Compression.LZ4, Compression.LZ4, Compression.ZSTD)  # by magic


class Row(NamedTuple):
    """A record as a test compares it; `timestamp_ms` is None for none."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None


def log_in(directory: Path, partition: TopicPartition = ORDERS, settings: LogSettings = SMALL) -> Log:
    """The log of a partition in a log directory; both are made if they are not there."""
    environment = Surroundings().environment
    path = directory / f"{partition.topic}-{partition.partition}"
    environment.disk.make_directory(str(path))
    return open_log(environment, str(path), partition, settings, Checkpoints(True, 0, 0))


def batch_of(
    offset: int, count: int, *, magic: int = 2, codec: int = 0, size: int = 10, timestamp: int = NOW_MS, **options: Any
) -> bytearray:
    """A batch, or messages, or a wrapper, of `count` records from `offset` on, whose values tell their offsets."""
    records = [
        Record(offset=each, timestamp=timestamp + each, key=b"k%d" % (each % 7), value=b"%d" % each * size)
        for each in range(offset, offset + count)
    ]
    if magic == 2:
        return build_batch(records, base_offset=offset, compression=codec, **options)
    return build_message_set(records, magic, compression=codec)


def append(log: Log, data: bytearray) -> None:
    """Append a batch, or a set of messages, at the log's end."""
    log.append(data, tuple(_headers(data)), 0)


def _headers(data: bytearray) -> Iterator[BatchHeader]:
    """Yield headers as validation gives them: that of a wrapper counts what is in it."""
    for one in batches_in(bytes(data)):
        header = check_batch_or_message(one)
        yield (
            header
            if header.magic == 2
            else header._replace(last_offset_delta=len(list(iterate_records_in_any_format(one))) - 1)
        )


def fill(log: Log, count: int = 40, **options: Any) -> None:
    """Append `count` batches of three records."""
    for _ in range(count):
        append(log, batch_of(log.log_end_offset, 3, **options))


class Writer:
    """A transactional producer of a log."""

    def __init__(self, log: Log, producer_id: int) -> None:
        self._log = log
        self._producer = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        self._sequence = 0

    def write(self, count: int = 3) -> None:
        offset = self._log.log_end_offset
        append(self._log, batch_of(offset, count, base_sequence=self._sequence, **self._producer))
        self._sequence += count

    def end(self, *, committed: bool) -> None:
        append(self._log, make_marker_batch(self._producer["producer_id"], 0, TransactionMarker(committed, 0), NOW_MS))


def damaged_marker(tmp_path: Path, how: str) -> tuple[Path, int]:
    """A log in which the marker of the first of producer 1's two transactions is damaged: its file, and where.

    Offsets 3 and 4 are of that transaction, 5 and 6 of an open one of producer 2, 7 is the marker; producer 1 goes on
    with 8 and 9, committed by 10; 11 ends the transaction of producer 2, and 12 to 14 are of none.
    """
    log = log_in(tmp_path, settings=LogSettings())
    one, two = Writer(log, 1), Writer(log, 2)
    fill(log, 1)
    one.write(2)
    two.write(2)
    one.end(committed=False)
    one.write(2)
    one.end(committed=True)
    two.end(committed=True)
    fill(log, 1)
    directory = finish(log)
    path = directory / "00000000000000000000.log"
    position = sum(len(data) for data in list(batches_in(path.read_bytes()))[:3])
    data = bytearray(path.read_bytes())
    at = {"marker": 66, "id in the marker": 46, "length of the marker": 9}[how]
    data[position + at] ^= 1
    path.write_bytes(data)
    return path, position


def finish(log: Log) -> Path:
    """Bring the log's files up to date, as a stop does; its directory."""
    log.close()
    return Path(log.directory)


def filled(
    directory: Path, count: int = 40, partition: TopicPartition = ORDERS, settings: LogSettings = SMALL, **options: Any
) -> Path:
    """A log with `count` batches of three records, its files finished; its directory."""
    log = log_in(directory, partition, settings)
    fill(log, count, **options)
    return finish(log)


def written(directory: Path | str) -> list[Row]:
    """All records in the `.log` files of a partition's directory, by the broker's codec."""
    return [
        Row(record.offset, record.key, record.value, None if record.timestamp == -1 else record.timestamp)
        for path in sorted(Path(directory).glob("*.log"))
        for data in batches_in(path.read_bytes())
        if not read_header_at(data).is_control
        for record in iterate_records_in_any_format(data)
    ]


def batches_in(data: bytes) -> Iterator[bytes]:
    """Each whole batch of a file."""
    for position, header in batch_places(data):
        check_batch_or_message(data, position)
        yield data[position : position + header.size_bytes]


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Put other bytes into a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def source_of(path: Path | str, *topics: str, **options: Any) -> DirectorySource:
    """A source of a log directory."""
    return DirectorySource(str(path), TopicSelection(topics=topics), **options)


def whole(source: DirectorySource, partition: TopicPartition = ORDERS) -> OffsetRange:
    """All that there is of a partition."""
    return OffsetRange(partition, *source.find_bounds([partition])[partition])


def rows(source: DirectorySource, splits: Iterable[Split], request: ReadRequest = RECORDS) -> list[dict[str, Any]]:
    """Return the rows of the splits, one after the other."""
    return [row for split in splits for table in source.read_split(split, request) for row in table.to_pylist()]


def records(
    source: DirectorySource, splits: Sequence[Split] | None = None, request: ReadRequest = RECORDS
) -> list[Row]:
    """The records of the splits, by default of all there is of the one partition that there is."""
    found = source.make_splits([whole(source)]) if splits is None else splits
    return [
        Row(
            row["offset"],
            row["key"],
            row["value"],
            None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000),
        )
        for row in rows(source, found, request)
    ]
