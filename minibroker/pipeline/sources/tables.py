"""The two data sources, `minibroker` and `minibroker-batches`: from options to readers and writers.

The reader of batch queries is here, that of streams in `stream_reader`. Filters are not pushed down: with them, Spark
4.3 gives wrong results for a DataFrame that is used twice (its scans share the last one's filters), and fails every
query of such a reader if the setting for it is off.

The columns of a query are all that its options offer, or those of its own schema, with which it asks for fewer: Spark
does not prune the columns of a Python data source; `.schema("offset long, timestamp timestamp")` does.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import minibroker.pipeline.planning as planning
from minibroker.pipeline.log_opening import TABLES, list_offered_columns, make_read_request, open_source
from minibroker.pipeline.log_source import LogSource, OptionError, ReadRequest, Split, Table
from minibroker.pipeline.option_values import warn_of_ignored_options
from minibroker.pipeline.options import Query, ReadOptions, parse_options
from minibroker.pipeline.plain_errors import iterate_with_plain_errors, raise_plain_errors
from minibroker.pipeline.schemas import CORRUPT, choose_columns

if TYPE_CHECKING:
    from minibroker.pipeline.sink.writer import BatchWriter, StreamWriter
    from minibroker.pipeline.sources.stream_reader import StreamReader

DAEMONS: Final = ("pyspark.daemon", "minibroker.pipeline.worker_daemon")


class SplitPartition(InputPartition):
    """The part that one task reads."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


@functools.cache
def freeze_present_objects() -> None:
    """Exclude the present objects, which are imported code, from the garbage collections of a Spark process.

    Spark collects after each task, and went through some 300,000 objects each time: a quarter of the CPU of a read.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in DAEMONS:
        gc.freeze()


def iterate_rows(source: LogSource, partition: InputPartition, request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. If there is nothing to read, Spark invents a partition, which has none."""
    if not isinstance(partition, SplitPartition):
        return
    try:
        yield from source.read_split(partition.value, request)
    finally:
        source.close()
        freeze_present_objects()


class BatchReader(DataSourceReader):
    """`spark.read`: planned once, when the DataFrame is first used, and then always read by that plan."""

    def __init__(self, options: ReadOptions, request: ReadRequest, source: LogSource) -> None:
        self._options = options
        self._request = request
        self._source = source

    @raise_plain_errors
    def partitions(self) -> list[InputPartition]:
        """Return the parts of the tasks. Raises `OptionError` and `DataLoss`."""
        warn_of_ignored_options(self._options.ignored)
        try:
            ranges = planning.find_batch_ranges(self._options, self._source)
            return [SplitPartition(split) for split in planning.make_splits(self._options, self._source, ranges)]
        finally:
            self._source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run in a task: yield its rows. Raises `DataLoss` and `CorruptData`."""
        return iterate_with_plain_errors(iterate_rows(self._source, partition, self._request))


PROVIDER: Final = "provider"  # a table property that Spark passes if SQL creates the table
NO_TABLE: Final = "Spark reads tables of a Python source without their options; CREATE TEMPORARY VIEW keeps them"


class LogDataSource(DataSource):
    """A table of a log. Each method raises `OptionError` for invalid options."""

    table: ClassVar[Table]

    @raise_plain_errors
    def schema(self) -> StructType:
        """Return the columns of a query without a schema of its own."""
        if PROVIDER in self.options:
            raise OptionError(f"CREATE TABLE: {NO_TABLE}")
        return make_default_schema(parse_options(self.options, self.table))

    @raise_plain_errors
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of `spark.read`."""
        options, request = self._parse_options(schema, "batch")
        return BatchReader(options, request, open_source(options))

    @raise_plain_errors
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of `spark.readStream`."""
        from minibroker.pipeline.sources.stream_reader import StreamReader

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

    @raise_plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of `df.write`."""
        from minibroker.pipeline.sink.writer import make_batch_writer  # late: queries that only read do not need it

        return make_batch_writer(self.options, schema, overwrite)

    @raise_plain_errors
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
