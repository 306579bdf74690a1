"""The writers that Spark calls: in a task with its rows, and in the driver with the tasks' messages.

Between the two only pickled messages are sent. `delivery` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import warn_of_ignored_options
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import DeliveryResult, OpenTransaction
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from minibroker.pipeline.sink.sink_transaction import WriteFailed
from minibroker.pipeline.sink.task import check_columns

_WRITE_ONLY: Final = 0  # the number of the one batch of a batch write
# Spark's properties with which a task of a stream learns its query and batch. Spark does not document them.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver."""

    delivered: DeliveryResult


class TaskRowsWriter:
    """What writers of batch queries and streams do in a task."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write a task's rows, and return what the driver needs to commit them. Raises `WriteFailed`."""
        context, settings = TaskContext.get(), self._settings
        if context is None:
            raise WriteFailed("rows are written by Spark's tasks, and this is none")
        task = context.partitionId()
        if not settings.exactly_once:
            return TaskMessage(delivery.write_at_least_once(settings, iterator, task))
        name, number = self._identify_batch(context)
        transactional_id = f"{settings.transactional_id_prefix}-{name}-{task}"
        return TaskMessage(delivery.write_exactly_once(settings, iterator, transactional_id, number, task))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Abort open transactions, in the driver, when a task or the commit has failed; its message is None."""
        delivery.abort_transactions(self._settings, list_open_transactions(messages))

    def _identify_batch(self, context: TaskContext) -> tuple[str | None, int]:
        """Return the write's id, the same when it is repeated (None without one), and the number of the batch in it."""
        return self._settings.write_id, _WRITE_ONLY


class BatchWriter(TaskRowsWriter, DataSourceArrowWriter):
    """`df.write`: rows are appended. With `delivery=exactly-once`, a write with the same `writeId` writes only once."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the transactions of all tasks, in the driver, when they have finished."""
        warn_of_ignored_options(self._settings.ignored)
        delivery.commit_transactions(self._settings, list_open_transactions(messages))


def make_batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of `df.write`.

    Raises `OptionError` for invalid options, columns and save modes, and `ClientError` if no server answers.
    """
    settings = parse_settings(options)
    if overwrite:
        raise OptionError("save mode overwrite is not allowed: a log is only appended to (mode append)")
    if settings.exactly_once and settings.write_id is None:
        raise OptionError("delivery=exactly-once needs the option writeId: a name that a repeated write has again")
    check_columns_and_servers(settings, schema)
    return BatchWriter(settings)


def check_columns_and_servers(settings: SinkSettings, schema: StructType) -> None:
    """Raise `OptionError` for invalid columns and settings, and `ClientError` at once if no server answers.

    Each task would try for a minute.
    """
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, settings.topic)
    with delivery.connect_client(settings) as client:
        client.connect_to_any_node()


def list_open_transactions(messages: list[WriterCommitMessage | None]) -> list[OpenTransaction]:
    """Return the transactions that tasks have left open."""
    said = [message.delivered.transaction for message in messages if isinstance(message, TaskMessage)]
    return [transaction for transaction in said if transaction is not None]


class StreamWriter(TaskRowsWriter, DataSourceStreamArrowWriter):
    """`df.writeStream`: the rows of each micro-batch are appended."""

    def _identify_batch(self, context: TaskContext) -> tuple[str | None, int]:
        return _get_property(context, QUERY_ID), int(_get_property(context, BATCH_ID))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the transactions of all tasks of a micro-batch, in the driver, when they have finished."""
        if batchId == 0:
            warn_of_ignored_options(self._settings.ignored)
        delivery.commit_transactions(self._settings, list_open_transactions(messages))


def make_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of `df.writeStream`. Output mode complete appends, as in Spark's own sink.

    Raises `OptionError`, and `ClientError` if no server answers.
    """
    settings = parse_settings(options)
    if settings.write_id is not None:
        raise OptionError("writeId is an option of df.write only: a stream names its batches after its checkpoint")
    check_columns_and_servers(settings, schema)
    return StreamWriter(settings)


def _get_property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise WriteFailed(
            f"delivery=exactly-once needs Spark to tell its tasks {name}, and this version of Spark does not"
        )
    return value
