"""The writer of streams that Spark calls. It needs Spark 4.2 or newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.option_values import warn_of_ignored
from minibroker.pipeline.plain_errors import with_plain_errors
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.sink_transaction import WriteFailed
from minibroker.pipeline.sink.writer import TaskRowsWriter, check_options, list_open_transactions, reach_server

# Spark's properties with which a task of a stream learns its query and batch. Spark does not document them.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class StreamWriter(TaskRowsWriter, DataSourceStreamArrowWriter):
    """`df.writeStream`: the rows of each micro-batch are appended."""

    def _identify_batch(self, context: TaskContext) -> tuple[str | None, int]:
        return _get_property(context, QUERY_ID), int(_get_property(context, BATCH_ID))

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Run in the driver when all tasks of a micro-batch have finished."""
        if batchId == 0:
            warn_of_ignored(self._settings.ignored)
        delivery.commit(self._settings, list_open_transactions(messages))


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of `df.writeStream`. Output mode complete appends, as in Spark's own sink.

    Raises `OptionError`, and `ClientError` if no server answers.
    """
    settings = check_options(options, schema)
    if settings.write_id is not None:
        raise OptionError("writeId is an option of df.write: a stream's batches have the checkpoint's names")
    reach_server(settings)
    return StreamWriter(settings)


def _get_property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise WriteFailed(
            f"delivery=exactly-once needs Spark to tell its tasks {name}, and this version of Spark does not"
        )
    return value
