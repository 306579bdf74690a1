"""The writer of batch queries that Spark calls: in a task with its rows, and in the driver with the tasks' messages.

Between the two only pickled messages are sent. `delivery` does the work. That of streams is in `stream_writer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.option_values import warn_of_ignored
from minibroker.pipeline.plain_errors import with_plain_errors
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import Delivered, Open
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from minibroker.pipeline.sink.sink_transaction import WriteFailed
from minibroker.pipeline.sink.task import check_columns
from minibroker.pipeline.sources.arrival import Shipped

_WRITE_ONLY: Final = 0  # the number of the one batch of a batch write


@dataclass
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver."""

    delivered: Delivered


class TaskRowsWriter(Shipped):
    """What writers of batch queries and streams do in a task."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @with_plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Run in a task: write its rows of a batch. Raises `WriteFailed`, also outside of tasks."""
        context, settings = TaskContext.get(), self._settings
        if context is None:
            raise WriteFailed("rows are written by Spark's tasks, and this is none")
        task = context.partitionId()
        if not settings.exactly_once:
            return TaskMessage(delivery.write_at_least_once(settings, iterator, task))
        name, number = self._identify_batch(context)
        transactional_id = f"{settings.transactional_id_prefix}-{name}-{task}"
        return TaskMessage(delivery.write_exactly_once(settings, iterator, transactional_id, number, task))

    @with_plain_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = 0) -> None:
        """Run in the driver when a task or the commit has failed. The message of a failed task is None."""
        delivery.abort(self._settings, list_open_transactions(messages))

    def _identify_batch(self, context: TaskContext) -> tuple[str | None, int]:
        """Return the name of the write, which a repeated one has again, and the number of the batch in it."""
        return self._settings.write_id, _WRITE_ONLY


class BatchWriter(TaskRowsWriter, DataSourceArrowWriter):
    """`df.write`: rows are appended. With `delivery=exactly-once`, a write with the same `writeId` writes only once."""

    @with_plain_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Run in the driver when all tasks have finished."""
        warn_of_ignored(self._settings.ignored)
        delivery.commit(self._settings, list_open_transactions(messages))


def make_batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of `df.write`.

    Raises `OptionError` for invalid options, columns and save modes, and `ClientError` if no server answers.
    """
    settings = check_options(options, schema)
    if overwrite:
        raise OptionError("save mode overwrite is not allowed: a log is only appended to (mode append)")
    if settings.exactly_once and settings.write_id is None:
        raise OptionError("delivery=exactly-once needs the option writeId: a name that a repeated write has again")
    reach_server(settings)
    return BatchWriter(settings)


def check_options(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    """Return the settings of a writer. Raises `OptionError` for invalid options and columns."""
    settings = parse_settings(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, settings.topic)
    delivery.connect_client(settings).close()  # refuses invalid settings of the connection here, not in each task
    return settings


def reach_server(settings: SinkSettings) -> None:
    """Raise `ClientError` at once if no server answers: each task would try for a minute."""
    with delivery.connect_client(settings) as client:
        client.reach()


def list_open_transactions(messages: list[WriterCommitMessage | None]) -> list[Open]:
    """Return the transactions that tasks have left open."""
    said = [message.delivered.transaction for message in messages if isinstance(message, TaskMessage)]
    return [transaction for transaction in said if transaction is not None]
