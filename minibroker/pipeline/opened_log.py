"""A log in this process, without Spark: its records and batches as Arrow, for pandas, Polars, DuckDB and pyarrow.

`minibroker.pipeline.open` makes a `Log`. What it reads are the tables of Spark's readers, by the same code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from minibroker.pipeline.log_opening import list_columns, make_request, open_source
from minibroker.pipeline.log_source import LogSource, Mode, OffsetRange, OptionError, Table, TopicPartition
from minibroker.pipeline.options import IsolationLevel, ReadOptions
from minibroker.pipeline.schemas import BATCHES, RECORDS, choose_columns
from minibroker.pipeline.selection import TopicSelection

Place = int | datetime | Mapping[TopicPartition, int] | None

ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d+")
TABLES: Final[Mapping[Table, pa.Schema]] = {"records": RECORDS, "batches": BATCHES}


@dataclass(frozen=True, slots=True)
class Log:
    """The part of a log that is to be read. Nothing is opened before rows are asked for.

    `start` and `end` (exclusive) are an offset or a time for all partitions, or an offset for each of some.
    """

    where: str
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    start: Place = None
    end: Place = None
    isolation: IsolationLevel = "read_uncommitted"
    mode: Mode = "FAILFAST"
    client: Mapping[str, str] = field(default_factory=dict)

    def records(self, columns: Sequence[str] | None = None) -> Rows:
        """Return the records; `columns` are those to decode, by default all that are documented as such.

        Raises `OptionError` for an unknown column.
        """
        return self._make_rows("records", columns)

    def batches(self, columns: Sequence[str] | None = None, *, verify_crc: bool = False) -> Rows:
        """Return the batches, by their headers. Raises `OptionError` for an unknown column."""
        return self._make_rows("batches", columns, verify_crc)

    def _make_rows(self, table: Table, columns: Sequence[str] | None, verify_crc: bool = False) -> Rows:
        is_path = not ADDRESS.fullmatch(self.where.split(",")[0]) or os.path.exists(self.where)
        options = ReadOptions(
            table,
            self._make_selection(),
            path=self.where if is_path else None,
            bootstrap_servers=None if is_path else self.where,
            client_settings=self.client,
            isolation_level=self.isolation,
            mode=self.mode,
            include_headers=True,
            verify_crc=verify_crc,
        )
        names = tuple(columns if columns is not None else list_columns(options))
        unknown = [name for name in names if name not in TABLES[table].names]
        if unknown or not names:
            raise OptionError(f"{table}: there is no column {''.join(unknown[:1])!r}; {', '.join(TABLES[table].names)}")
        return Rows(self, options, names)

    def _make_selection(self) -> TopicSelection:
        if not self.partitions:
            return TopicSelection(topics=self.topics)
        if not self.topics:
            raise OptionError("partitions: name their topics, too")
        assigned = [TopicPartition(topic, number) for topic in self.topics for number in self.partitions]
        return TopicSelection(assigned=tuple(assigned))

    def ranges(self, source: LogSource) -> list[OffsetRange]:
        """Return the part of each partition that exists and is wanted; none is empty."""
        bounds = source.bounds(source.partitions())
        earliest = {partition: each.earliest for partition, each in bounds.items()}
        latest = {partition: each.latest for partition, each in bounds.items()}
        starts = {**earliest, **self._find_offsets(self.start, latest, source)}
        ends = {**latest, **self._find_offsets(self.end, latest, source)}
        found = [
            OffsetRange(partition, max(starts[partition], earliest[partition]), min(ends[partition], latest[partition]))
            for partition in bounds
        ]
        return [each for each in found if each.start < each.end]

    def _find_offsets(
        self, place: Place, latest: Mapping[TopicPartition, int], source: LogSource
    ) -> Mapping[TopicPartition, int]:
        """Return the offsets of a place, the end of a partition where no record is as late as a time."""
        if isinstance(place, datetime):
            if place.tzinfo is None:
                raise OptionError(f"{place}: a time needs a time zone, such as datetime.UTC")
            found = source.offsets_at(dict.fromkeys(latest, int(place.timestamp() * 1000)))
            return {each: latest[each] if offset is None else offset for each, offset in found.items()}
        if isinstance(place, int):
            return dict.fromkeys(latest, place)
        return {each: offset for each, offset in (place or {}).items() if each in latest}


class Rows:
    """Rows of a log: an iterable of Arrow record batches that libraries of tables take as it is.

    Each iteration reads anew what is there then: partition by partition, in the order of the offsets. Raises
    `OptionError`, `DataLoss`, `CorruptData`, `ClientError` and `OSError`.
    """

    def __init__(self, log: Log, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._log = log
        self._options = options
        self.schema: pa.Schema = choose_columns(TABLES[options.table], columns)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        request = make_request(self._options, self.schema.names)
        with closing(open_source(self._options)) as source:
            for split in source.splits(self._log.ranges(source)):
                yield from source.read(split, request)

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of pyarrow's, which reads as it is asked to."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """Return all rows in memory."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream of Arrow's PyCapsule interface."""
        return self.reader().__arrow_c_stream__(requested_schema)
