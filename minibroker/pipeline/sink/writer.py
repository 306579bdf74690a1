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
from minibroker.pipeline.plain_errors import with_plain_errors
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import Delivered, Open
from minibroker.pipeline.sink.sink_columns import check_columns
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings

# Spark's properties with which a task of a stream learns its query and batch. Spark does not document them.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
_WRITE_ONLY: Final = 0  # the number of the one batch of a batch write


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver."""

    delivered: Delivered


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: rows are appended. With `delivery=exactly-once`, a write with the same `writeId` writes only once."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @with_plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Run in a task: write its rows. Raise `WriteFailed`."""
        task = _context().partitionId()
        if not self._settings.exactly_once:
            return TaskMessage(delivery.write_at_least_once(self._settings, iterator, task))
        transactional_id = f"{self._settings.transactional_id_prefix}-{self._settings.write_id}-{task}"
        return TaskMessage(delivery.write_exactly_once(self._settings, iterator, transactional_id, _WRITE_ONLY, task))

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Run in the driver when all tasks have finished."""
        delivery.commit(self._settings, _open(messages))

    @with_plain_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Run in the driver when a task or the commit has failed. The message of a failed task is None."""
        delivery.abort(self._settings, _open(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the rows of each micro-batch are appended."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @with_plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Run in a task: write its rows of a micro-batch. Raise `WriteFailed`."""
        context = _context()
        task = context.partitionId()
        if not self._settings.exactly_once:
            return TaskMessage(delivery.write_at_least_once(self._settings, iterator, task))
        transactional_id = f"{self._settings.transactional_id_prefix}-{_property(context, QUERY_ID)}-{task}"
        number = int(_property(context, BATCH_ID))
        return TaskMessage(delivery.write_exactly_once(self._settings, iterator, transactional_id, number, task))

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Run in the driver when all tasks of a micro-batch have finished."""
        delivery.commit(self._settings, _open(messages))

    @with_plain_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Run in the driver when a task or the commit has failed. The message of a failed task is None."""
        delivery.abort(self._settings, _open(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of `df.write`. Raise `OptionError` for invalid options, columns and save modes."""
    settings = _checked(options, schema)
    if overwrite:
        raise OptionError("save mode overwrite is not allowed: a log is only appended to (mode append)")
    if settings.exactly_once and settings.write_id is None:
        raise OptionError("delivery=exactly-once needs the option writeId: a name that a repeated write has again")
    return BatchWriter(settings)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of `df.writeStream`. Output mode complete appends, as in Spark's own sink.

    Raise `OptionError`.
    """
    settings = _checked(options, schema)
    if settings.write_id is not None:
        raise OptionError("writeId is an option of df.write: a stream's batches have the checkpoint's names")
    return StreamWriter(settings)


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = parse_settings(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, settings.topic)
    delivery.connected(settings).close()  # refuses invalid settings of the connection here, not in each task
    return settings


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise WriteFailed("rows are written by Spark's tasks, and this is none")
    return context


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if value is None:
        raise WriteFailed(
            f"delivery=exactly-once needs Spark to tell its tasks {name}, and this version of Spark does not"
        )
    return value


def _open(messages: list[WriterCommitMessage | None]) -> list[Open]:
    """Return the transactions that tasks have left open."""
    said = [message.delivered.transaction for message in messages if isinstance(message, TaskMessage)]
    return [transaction for transaction in said if transaction is not None]
