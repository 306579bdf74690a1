"""Opens the log that a reader's options name, and reads it in this process. Nothing here needs Spark.

`minibroker.pipeline.open` makes a `Log`: its records and batches as Arrow, for pandas, Polars, DuckDB and pyarrow. They
are the tables of Spark's readers, by the same code.
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

import minibroker.pipeline.planning as planning
from minibroker.pipeline.log_source import (
    LogSource,
    Mode,
    OffsetRange,
    OptionError,
    ReadRequest,
    Table,
    TopicPartition,
    TopicSelection,
)
from minibroker.pipeline.options import IsolationLevel, ReadOptions
from minibroker.pipeline.schemas import BATCHES, CORRUPT, EXACT, RECORDS, choose_columns


def open_source(options: ReadOptions) -> LogSource:
    """Return the log to read. Raises `OptionError` for invalid settings of Kafka's client."""
    if options.path is not None:
        from minibroker.pipeline.directory.directory_source import DirectorySource

        return DirectorySource(
            options.path,
            options.selection,
            options.isolation_level,
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_damage=options.mode == "FAILFAST",
        )
    from minibroker.pipeline.brokers.broker_source import BrokerSource

    assert options.bootstrap_servers is not None
    committed = options.isolation_level == "read_committed"
    return BrokerSource(options.bootstrap_servers, options.selection, options.client_settings, committed)


def make_read_request(options: ReadOptions, columns: Sequence[str]) -> ReadRequest:
    """Return what a task needs to know to read its split: the table, the columns, and what to do about damage."""
    return ReadRequest(options.table, tuple(columns), options.mode, options.fail_on_data_loss, options.verify_crc)


def list_offered_columns(options: ReadOptions) -> list[str]:
    """Return the columns of a query that does not name its own."""
    left_out = {*EXACT} if options.include_headers else {*EXACT, "headers"}
    if options.mode != "PERMISSIVE":
        left_out.add(CORRUPT)
    return [name for name in TABLES[options.table].names if name not in left_out]


def select_partitions(options: ReadOptions) -> Sequence[TopicPartition]:
    """Return the partitions to read, sorted. Raises what the log's source raises."""
    with closing(open_source(options)) as source:
        return source.list_partitions()


def count_offsets_to_read(options: ReadOptions) -> int:
    """Return the approximate number of records. Raises what the log's source raises."""
    with closing(open_source(options)) as source:
        return sum(latest - earliest for earliest, latest in source.find_bounds(source.list_partitions()).values())


def read_in_this_process(options: ReadOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch query, partition by partition in the order of their offsets.

    Raises what planning and the log's source raise.
    """
    request = make_read_request(options, columns)
    with closing(open_source(options)) as source:
        for split in planning.make_splits(options, source, planning.find_batch_ranges(options, source)):
            yield from source.read_split(split, request)


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
        names = tuple(columns if columns is not None else list_offered_columns(options))
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

    def find_ranges(self, source: LogSource) -> list[OffsetRange]:
        """Return the range of offsets to read of each partition; none is empty."""
        bounds = source.find_bounds(source.list_partitions())
        earliest = {partition: each.earliest for partition, each in bounds.items()}
        latest = {partition: each.latest for partition, each in bounds.items()}
        starts = {**earliest, **self._find_offsets_at_place(self.start, latest, source)}
        ends = {**latest, **self._find_offsets_at_place(self.end, latest, source)}
        found = [
            OffsetRange(partition, max(starts[partition], earliest[partition]), min(ends[partition], latest[partition]))
            for partition in bounds
        ]
        return [each for each in found if each.start < each.end]

    def _find_offsets_at_place(
        self, place: Place, latest: Mapping[TopicPartition, int], source: LogSource
    ) -> Mapping[TopicPartition, int]:
        """Return each partition's offset at a place, or its end (in `latest`) if no record is as late as a time."""
        if isinstance(place, datetime):
            if place.tzinfo is None:
                raise OptionError(f"{place}: a time needs a time zone, such as datetime.UTC")
            found = source.find_offsets_at(dict.fromkeys(latest, int(place.timestamp() * 1000)))
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
        request = make_read_request(self._options, self.schema.names)
        with closing(open_source(self._options)) as source:
            for split in source.make_splits(self._log.find_ranges(source)):
                yield from source.read_split(split, request)

    def reader(self) -> pa.RecordBatchReader:
        """Return a pyarrow reader, which reads batches of rows as they are asked for."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_arrow(self) -> pa.Table:
        """Return all rows in memory."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream of Arrow's PyCapsule interface."""
        return self.reader().__arrow_c_stream__(requested_schema)
