"""The rows of an archive, made of rows of the records table, and what a run of the archive has written of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.log_opening import make_request, open_source
from minibroker.pipeline.log_source import Split, TopicPartition
from minibroker.pipeline.options import ReadOptions
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
class Reading:
    """Reads parts of a log as rows of the archive. It is pickled. `decoder` adds columns to the rows of one part."""

    options: ReadOptions
    decoder: Decoder | None = None

    def rows(self, splits: Sequence[Split], totals: Totals) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these splits, and count them. Raises what the log's source raises."""
        found = self._iterate_rows(splits, totals)
        return found if self.decoder is None else self.decoder(found)

    def _iterate_rows(self, splits: Sequence[Split], totals: Totals) -> Iterator[pa.RecordBatch]:
        with closing(open_source(self.options)) as source:
            for split in splits:
                for records in source.read(split, make_request(self.options, READ)):
                    if records.num_rows:
                        totals.count(split.offsets.partition, records)
                        yield make_archive_rows(records)


class Written(NamedTuple):
    """The records that were written of one partition. `payload_bytes` counts keys and values."""

    records: int
    payload_bytes: int
    first_offset: int
    last_offset: int

    def and_then(self, later: Written) -> Written:
        """Return the sum of this and what was written later."""
        first, last = min(self.first_offset, later.first_offset), max(self.last_offset, later.last_offset)
        return Written(self.records + later.records, self.payload_bytes + later.payload_bytes, first, last)


@dataclass
class Totals:
    """What was written, by partition."""

    partitions: dict[TopicPartition, Written] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The number of records of all partitions."""
        return sum(written.records for written in self.partitions.values())

    def count(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        """Add records of one partition, in the order of their offsets."""
        sizes = [pc.sum(pc.binary_length(records.column(name))).as_py() or 0 for name in ("key", "value")]
        offsets = records.column("offset")
        self._add_written(partition, Written(records.num_rows, sum(sizes), offsets[0].as_py(), offsets[-1].as_py()))

    def add(self, later: Totals) -> None:
        """Add what was written later."""
        for partition, written in later.partitions.items():
            self._add_written(partition, written)

    def _add_written(self, partition: TopicPartition, written: Written) -> None:
        known = self.partitions.get(partition)
        self.partitions[partition] = known.and_then(written) if known else written

    def as_json(self) -> dict[str, Any]:
        """Return the totals for the report of a run."""
        rows = [
            {"topic": partition.topic, "partition": partition.partition, **written._asdict()}
            for partition, written in sorted(self.partitions.items())
        ]
        return {"partitions": rows}
