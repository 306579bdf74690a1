"""The two data sources, `minibroker` and `minibroker-batches`: from options to readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from minibroker.pipeline.log_source import LogSource, OptionError, ReadRequest, Table
from minibroker.pipeline.options import Query, ReadOptions, parse_options
from minibroker.pipeline.plain_errors import with_plain_errors
from minibroker.pipeline.sources.query_columns import columns_of, offered
from minibroker.pipeline.sources.readers import BatchReader, StreamReader

PROVIDER: Final = "provider"  # a table property that Spark passes if SQL creates the table
NO_TABLE: Final = "Spark reads tables of a Python source without their options; CREATE TEMPORARY VIEW keeps them"


def open_source(options: ReadOptions) -> LogSource:
    """Return the log to read. Raise `OptionError` for invalid settings of Kafka's client."""
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


if TYPE_CHECKING:
    from minibroker.pipeline.sink.writer import BatchWriter, StreamWriter


class LogDataSource(DataSource):
    """A table of a log. Each method raises `OptionError` for invalid options."""

    table: ClassVar[Table]

    @with_plain_errors
    def schema(self) -> StructType:
        """Return the columns of a query without a schema of its own."""
        if PROVIDER in self.options:
            raise OptionError(f"CREATE TABLE: {NO_TABLE}")
        return offered(parse_options(self.options, self.table))

    @with_plain_errors
    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of `spark.read`."""
        options, request = self._parsed(schema, "batch")
        return BatchReader(options, request, open_source(options))

    @with_plain_errors
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of `spark.readStream`."""
        options, request = self._parsed(schema, "stream")
        return StreamReader(options, request, open_source(options))

    def _parsed(self, schema: StructType, query: Query) -> tuple[ReadOptions, ReadRequest]:
        options = parse_options(self.options, self.table, query)
        columns = columns_of(schema, options)
        request = ReadRequest(
            self.table,
            columns,
            options.mode,
            options.fail_on_data_loss,
            options.verify_crc,
            options.measure_one_in,
        )
        return options, request


class RecordsSource(LogDataSource):
    """`spark.read.format("minibroker")`: one row for each record, with the columns of Spark's own Kafka source.

    `df.write` and `df.writeStream` use it too, to write to a running broker, never to a directory.
    """

    table = "records"

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "minibroker"

    @with_plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of `df.write`."""
        from minibroker.pipeline.sink.writer import batch_writer  # imported late: queries that only read do not need it

        return batch_writer(self.options, schema, overwrite)

    @with_plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of `df.writeStream`."""
        from minibroker.pipeline.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


class BatchesSource(LogDataSource):
    """`spark.read.format("minibroker-batches")`: one row for each batch, from its header alone."""

    table = "batches"

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "minibroker-batches"
