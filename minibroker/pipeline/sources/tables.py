"""The two data sources, `minibroker` and `minibroker-batches`: from options to readers and writers.

Filters are not pushed down: with them, Spark 4.3 gives wrong results for a DataFrame that is used twice (its scans
share the last one's filters), and fails every query of such a reader if the setting for it is off.

The columns of a query are all that its options offer, or those of its own schema, with which it asks for fewer: Spark
does not prune the columns of a Python data source; `.schema("offset long, timestamp timestamp")` does.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import datasource
from pyspark.sql.types import StructType

import minibroker.pipeline.planning as planning
from minibroker.pipeline.log_opening import TABLES, list_offered_columns, make_read_request, open_source
from minibroker.pipeline.log_source import LogSource, OffsetRange, OptionError, ReadRequest, Split, Table
from minibroker.pipeline.options import Query, ReadOptions, parse_options, warn_of_ignored_options
from minibroker.pipeline.schemas import CORRUPT, choose_columns

if TYPE_CHECKING:
    from minibroker.pipeline.sink.writer import BatchWriter, StreamWriter

DAEMONS: Final = ("pyspark.daemon", "minibroker.pipeline.worker_daemon")


class SplitPartition(InputPartition):
    """The part that one task reads."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


@functools.cache
def freeze_existing_objects_for_gc() -> None:
    """Exclude the present objects, which are imported code, from the garbage collections of a Spark process.

    Spark collects after each task, and went through some 300,000 objects each time: a quarter of the CPU of a read.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in DAEMONS:
        gc.freeze()


class LogReader:
    """What readers of batch queries and of streams have in common."""

    def __init__(self, options: ReadOptions, request: ReadRequest, source: LogSource) -> None:
        self._options = options
        self._request = request
        self._source = source

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run in a task: yield its rows. Raises `DataLoss` and `CorruptData`."""
        if not isinstance(partition, SplitPartition):
            return  # if there is nothing to read, Spark invents a partition
        try:
            yield from self._source.read_split(partition.value, self._request)
        finally:
            self._source.close()
            freeze_existing_objects_for_gc()

    def _make_partitions(self, ranges: list[OffsetRange]) -> list[InputPartition]:
        return [SplitPartition(split) for split in planning.make_splits(self._options, self._source, ranges)]


class BatchReader(LogReader, DataSourceReader):
    """`spark.read`: planned once, when the DataFrame is first used, and then always read by that plan."""

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each task. Raises `OptionError` and `DataLoss`."""
        warn_of_ignored_options(self._options.ignored)
        try:
            return self._make_partitions(planning.find_batch_ranges(self._options, self._source))
        finally:
            self._source.close()


class StreamReader(LogReader, DataSourceStreamReader, datasource.SupportsTriggerAvailableNow):
    """`spark.readStream`: a process of Spark's driver keeps it while the query runs. Tasks read with copies."""

    def __init__(self, options: ReadOptions, request: ReadRequest, source: LogSource) -> None:
        super().__init__(options, request, source)
        self._initial: planning.JsonOffsets | None = None
        self._latest: planning.Offsets | None = None
        self._until: planning.Offsets | None = None  # the end of a query with the trigger `availableNow`
        self._last_batch_s: float | None = None

    def initialOffset(self) -> planning.JsonOffsets:
        """Return where a query without a checkpoint begins, always the same. Raises `OptionError`."""
        if self._initial is None:
            self._initial = planning.make_json_offsets(planning.find_initial_offsets(self._options, self._source))
        return self._initial

    def getDefaultReadLimit(self) -> datasource.ReadLimit:
        """Return the limit of a batch. Spark's Python limits cannot have both a minimum and a maximum."""
        if self._options.max_offsets_per_trigger is not None:
            return datasource.ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return datasource.ReadMinRows(self._options.min_offsets_per_trigger)
        return datasource.ReadAllAvailable()

    def latestOffset(self, start: planning.JsonOffsets, limit: datasource.ReadLimit) -> planning.JsonOffsets:
        """Return where the next batch ends; `start` if there is none yet."""
        if self._latest is None:
            warn_of_ignored_options(self._options.ignored)
        if self._until is None:
            self._latest = planning.find_end_offsets(self._options, self._source)
        else:
            self._latest = self._until
        begin = planning.parse_json_offsets(start)
        if not isinstance(limit, datasource.ReadAllAvailable) and self._must_wait_for_offsets(begin, self._latest):
            return planning.make_json_offsets(begin)
        end = self._latest
        if isinstance(limit, datasource.ReadMaxRows):
            end = planning.limit_end_offsets(begin, end, limit.max_rows, self._source)
        return planning.make_json_offsets(end)

    def _must_wait_for_offsets(self, start: planning.Offsets, end: planning.Offsets) -> bool:
        """Return whether there are fewer than `minOffsetsPerTrigger` offsets, and the last batch is too recent."""
        least, now_s = self._options.min_offsets_per_trigger, time.monotonic()
        if least is None or self._until is not None:
            return False
        last_s, delay_s = self._last_batch_s, self._options.max_trigger_delay_ms / 1000
        if last_s is not None and now_s - last_s < delay_s:
            there = planning.count_offsets_by_partition(start, end, self._source)
            if sum(there.values()) < least:
                return True
        self._last_batch_s = now_s
        return False

    def reportLatestOffset(self) -> planning.JsonOffsets | None:
        """Return the end of the log when it was last read, for the query's progress."""
        return None if self._latest is None else planning.make_json_offsets(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the end of the log: the query ends there."""
        self._until = planning.find_end_offsets(self._options, self._source)

    def partitions(self, start: planning.JsonOffsets, end: planning.JsonOffsets) -> list[InputPartition]:
        """Return what each task of a batch reads, always the same for the same offsets. Raises `DataLoss`."""
        ranges = planning.find_stream_ranges(
            self._options, self._source, planning.parse_json_offsets(start), planning.parse_json_offsets(end)
        )
        return self._make_partitions(ranges)

    def stop(self) -> None:
        """Close connections and files."""
        self._source.close()


PROVIDER: Final = "provider"  # a table property that Spark passes if SQL creates the table
NO_TABLE: Final = "Spark reads tables of a Python source without their options; CREATE TEMPORARY VIEW keeps them"


class LogDataSource(DataSource):
    """A table of a log. Each method raises `OptionError` for invalid options."""

    table: ClassVar[Table]

    def schema(self) -> StructType:
        """Return the columns of a query without a schema of its own."""
        if PROVIDER in self.options:
            raise OptionError(f"CREATE TABLE: {NO_TABLE}")
        return make_default_schema(parse_options(self.options, self.table))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of `spark.read`."""
        options, request = self._parse_options(schema, "batch")
        return BatchReader(options, request, open_source(options))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of `spark.readStream`."""
        options, request = self._parse_options(schema, "stream")
        return StreamReader(options, request, open_source(options))

    def _parse_options(self, schema: StructType, query: Query) -> tuple[ReadOptions, ReadRequest]:
        options = parse_options(self.options, self.table, query)
        return options, make_read_request(options, get_column_names(schema, options))


class RecordsSource(LogDataSource):
    """`spark.read.format("minibroker")`: one row for each record, with the columns of Spark's own Kafka source.

    `df.write` and `df.writeStream` use it too, to write to a running broker, never to a directory.
    """

    table = "records"

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "minibroker"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of `df.write`."""
        from minibroker.pipeline.sink.writer import make_batch_writer  # late: queries that only read do not need it

        return make_batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of `df.writeStream`."""
        from minibroker.pipeline.sink.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)


class BatchesSource(LogDataSource):
    """`spark.read.format("minibroker-batches")`: one row for each batch, from its header alone."""

    table = "batches"

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "minibroker-batches"


def make_default_schema(options: ReadOptions) -> StructType:
    """Return the schema of a query without one of its own."""
    return from_arrow_schema(choose_columns(TABLES[options.table], list_offered_columns(options)))


def get_column_names(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the names of a query's columns. Raises `OptionError` for unknown ones, and for other types."""
    table = from_arrow_schema(TABLES[options.table])
    types = {column.name: column.dataType for column in table.fields}
    for column in schema.fields:
        if column.name not in types:
            raise OptionError(f"schema: {options.table} has no column {column.name}; there are {', '.join(types)}")
        expected = types[column.name]
        if column.dataType.simpleString() != expected.simpleString():
            given = column.dataType.simpleString()
            raise OptionError(f"schema: column {column.name} is {expected.simpleString()}, not {given}")
        if not column.nullable or column.dataType != expected:
            raise OptionError(f"schema: column {column.name} must be nullable, and so must its elements")
    if CORRUPT in schema.names and options.mode != "PERMISSIVE":
        raise OptionError(f"schema: column {CORRUPT} exists only with mode=PERMISSIVE")
    if len(set(schema.names)) != len(schema.names) or not schema.names:
        raise OptionError("schema: at least one column is needed, each only once")
    return tuple(schema.names)
