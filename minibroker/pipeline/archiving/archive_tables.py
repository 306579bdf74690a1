"""What plain Parquet and tables of Iceberg and Delta have in common: commits with a note, and rows by their offsets.

Each append is one commit, and each commit also notes how far the archive is. So there is no moment at which records
are in the archive and the note is not, or the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from minibroker.pipeline.engines import Engine
from minibroker.pipeline.log_opening import make_read_request, open_source
from minibroker.pipeline.log_source import PipelineError, Split, TopicPartition
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.planning import JsonOffsets
from minibroker.pipeline.schemas import RECORDS, choose_columns

READ: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "timestampMs")
# Names of directories of plain Parquet, and fields by which tables are partitioned.
DIRECTORIES: Final = ("topic", "date")
FIELDS: Final = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "timestampMs", "topic")
SCHEMA: Final = pa.schema([*choose_columns(RECORDS, FIELDS), pa.field("date", pa.date32())])
NO_TIMESTAMP: Final = -1

Decoder = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def make_archive_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of the archive from records with the columns `READ`. `date` is the UTC date of the timestamp.

    `timestampMs` is the time in ms if `timestamp` cannot express it; otherwise it is null.
    """
    times, exact = records.column("timestamp"), records.column("timestampMs")
    is_beyond = pc.and_(pc.is_null(times), pc.not_equal(exact, NO_TIMESTAMP))
    columns = {name: records.column(name) for name in FIELDS}
    columns["timestampMs"] = pc.if_else(is_beyond, exact, pa.scalar(None, pa.int64()))
    columns["date"] = pc.cast(times, pa.date32())
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class ArchiveRowsReader:
    """Reads parts of a log as rows of the archive. It is pickled. `decoder` adds columns to the rows of one part."""

    options: ReadOptions
    decoder: Decoder | None = None

    def read_rows(self, splits: Sequence[Split], totals: WrittenTotals) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these splits, and count them. Raises what the log's source raises."""
        found = self._iterate_undecoded_rows(splits, totals)
        return found if self.decoder is None else self.decoder(found)

    def _iterate_undecoded_rows(self, splits: Sequence[Split], totals: WrittenTotals) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these splits without decoded values, and count them in `totals`."""
        with closing(open_source(self.options)) as source:
            for split in splits:
                for records in source.read_split(split, make_read_request(self.options, READ)):
                    if records.num_rows:
                        totals.count_records(split.offsets.partition, records)
                        yield make_archive_rows(records)


class WrittenRecords(NamedTuple):
    """The records that were written of one partition. `payload_bytes` counts keys and values."""

    records: int
    payload_bytes: int
    first_offset: int
    last_offset: int

    def add_later_records(self, later: WrittenRecords) -> WrittenRecords:
        """Return the sum of this and what was written later."""
        first, last = min(self.first_offset, later.first_offset), max(self.last_offset, later.last_offset)
        return WrittenRecords(self.records + later.records, self.payload_bytes + later.payload_bytes, first, last)


@dataclass
class WrittenTotals:
    """What was written, by partition."""

    partitions: dict[TopicPartition, WrittenRecords] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records of all partitions."""
        return sum(written.records for written in self.partitions.values())

    def count_records(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        """Add records of one partition, in the order of their offsets."""
        sizes = [pc.sum(pc.binary_length(records.column(name))).as_py() or 0 for name in ("key", "value")]
        offsets = records.column("offset")
        self.add_totals(
            WrittenTotals(
                {partition: WrittenRecords(records.num_rows, sum(sizes), offsets[0].as_py(), offsets[-1].as_py())}
            )
        )

    def add_totals(self, later: WrittenTotals) -> None:
        """Add what was written later."""
        for partition, written in later.partitions.items():
            known = self.partitions.get(partition)
            self.partitions[partition] = known.add_later_records(written) if known else written

    def as_json(self) -> dict[str, Any]:
        """Return the totals for the report of a run."""
        rows = [
            {"topic": partition.topic, "partition": partition.partition, **written._asdict()}
            for partition, written in sorted(self.partitions.items())
        ]
        return {"partitions": rows}


NOTE: Final = "minibroker.archive"


class ArchiveError(PipelineError):
    """An archive cannot be continued or read. The message is one line."""


@dataclass(frozen=True)
class CommitNote:
    """What a commit notes: its number, the next offset of each partition, and identity and configs of the topics."""

    number: int = -1
    offsets: JsonOffsets = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def encode_as_text(self) -> str:
        """Return the note as the JSON text that is stored with a commit."""
        return json.dumps({NOTE: asdict(self)}, sort_keys=True)


def parse_note(text: str | None, archive_name: str) -> CommitNote | None:
    """Return the note in the text of a commit, or None if another program wrote it. Raises `ArchiveError`."""
    if text is None or NOTE not in text:
        return None
    try:
        return CommitNote(**json.loads(text)[NOTE])
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{archive_name} is malformed: {error!r}") from error


def require_next_note(newest: CommitNote | None, note: CommitNote, archive_name: str) -> None:
    """Raise `ArchiveError` unless the number of `note` is the one after that of the newest note in the archive."""
    if newest is not None and newest.number + 1 != note.number:
        raise ArchiveError(f"{archive_name}: another run writes to it at the same time")


class OffsetWindow(NamedTuple):
    """The rows of one partition with offsets from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int


# Yields these columns of all rows or of a window, in any order.
RowsScan = Callable[[Sequence[str], OffsetWindow | None], Iterator[pa.RecordBatch]]


def make_scan(dataset: ds.Dataset) -> RowsScan:
    """Return a function that yields the rows of a pyarrow dataset."""

    def scan(columns: Sequence[str], window: OffsetWindow | None) -> Iterator[pa.RecordBatch]:
        yield from dataset.to_batches(columns=list(columns), filter=make_offset_filter(window))

    return scan


def make_offset_filter(window: OffsetWindow | None) -> pc.Expression | None:
    """Return a pyarrow expression for a partition and its range of offsets, None for all rows."""
    if window is None:
        return None
    (topic, partition), start, end = window
    of_partition = (pc.field("topic") == topic) & (pc.field("partition") == partition)
    return of_partition & (pc.field("offset") >= start) & (pc.field("offset") < end)


class ArchiveTable(Protocol):
    """An archive of one format. It is small when pickled, and opens what it needs."""

    @property
    def location(self) -> str:
        """The path or the name of the table, for messages too."""
        ...

    def finish_interrupted_commit(self) -> None:
        """Do what a killed run has left to do. Raises `ArchiveError` if there is something else than an archive."""
        ...

    def read_newest_note(self) -> CommitNote | None:
        """Return the note of the newest commit that has one, or None."""
        ...

    def exists(self) -> bool:
        """Return whether there are commits."""
        ...

    def append_commit(
        self, rows_reader: ArchiveRowsReader, splits: Sequence[Split], note: CommitNote, engine: Engine
    ) -> WrittenTotals:
        """Append the rows of these splits by one commit with this note."""
        ...

    def count_records(self) -> int:
        """Return the number of records, by metadata."""
        ...

    def open_scan(self) -> RowsScan:
        """Open the archive as it is now. Raises `ArchiveError` if there is none."""
        ...


class ArchivedPartition(NamedTuple):
    """A partition in an archive: records, first and last offset, and the time of the oldest record in ms."""

    partition: TopicPartition
    records: int
    first: int
    last: int
    oldest_ms: int | None


def list_archived_partitions(table: ArchiveTable) -> list[ArchivedPartition]:
    """Return the archive's partitions, sorted, without reading keys and values."""
    batches = table.open_scan()(("topic", "partition", "offset", "timestamp"), None)
    aggregates = [("offset", "count"), ("offset", "min"), ("offset", "max"), ("timestamp", "min")]
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    partial = [each.group_by(["topic", "partition"]).aggregate(aggregates) for each in tables]
    if not partial:
        return []
    sums = [("offset_count", "sum"), ("offset_min", "min"), ("offset_max", "max"), ("timestamp_min", "min")]
    whole = pa.concat_tables(partial).group_by(["topic", "partition"]).aggregate(sums)
    times = pc.divide(pc.cast(whole.column("timestamp_min_min"), pa.int64()), 1000).to_pylist()
    names = ("topic", "partition", "offset_count_sum", "offset_min_min", "offset_max_max")
    rows = zip(*(whole.column(name).to_pylist() for name in names), times, strict=True)
    return sorted(ArchivedPartition(TopicPartition(*row[:2]), *row[2:]) for row in rows)
