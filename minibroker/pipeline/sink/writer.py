"""The writers that Spark calls: in a task with its rows, and in the driver with what all tasks said.

Between the two only pickled messages travel; what they do is in `delivery`.
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
from minibroker.pipeline.plain_errors import told_plainly
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import Delivered, Open
from minibroker.pipeline.sink.sink_columns import check_columns
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings

# What Spark lets a task of a stream know of its batch. The names are Spark's own and stand in none of its documents.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
_WRITE_ONLY: Final = 0  # the number of the one batch of a batch write


@dataclass
class Said(WriterCommitMessage):
    """A task's message to the driver."""

    delivered: Delivered


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: rows are appended. With `delivery=exactly-once` a write of the same `writeId` writes only once."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @told_plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Said:
        """In a task: write its rows. Raises `WriteFailed`."""
        task = _context().partitionId()
        if not self._settings.exactly_once:
            return Said(delivery.write_at_least_once(self._settings, iterator, task))
        transactional_id = f"{self._settings.transactional_id_prefix}-{self._settings.write_id}-{task}"
        return Said(delivery.write_exactly_once(self._settings, iterator, transactional_id, _WRITE_ONLY, task))

    @told_plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are through."""
        delivery.commit(self._settings, _open(messages))

    @told_plainly
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when a task or the commit has failed; a failed task's message is None."""
        delivery.abort(self._settings, _open(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each micro-batch's rows are appended."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @told_plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Said:
        """In a task: write its rows of a micro-batch. Raises `WriteFailed`."""
        context = _context()
        task = context.partitionId()
        if not self._settings.exactly_once:
            return Said(delivery.write_at_least_once(self._settings, iterator, task))
        transactional_id = f"{self._settings.transactional_id_prefix}-{_property(context, QUERY_ID)}-{task}"
        number = int(_property(context, BATCH_ID))
        return Said(delivery.write_exactly_once(self._settings, iterator, transactional_id, number, task))

    @told_plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver, when all tasks of a micro-batch are through."""
        delivery.commit(self._settings, _open(messages))

    @told_plainly
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver, when a task or the commit has failed; a failed task's message is None."""
        delivery.abort(self._settings, _open(messages))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write`. Raises `OptionError` for options, columns and save modes that cannot be."""
    settings = _checked(options, schema)
    if overwrite:
        raise OptionError("save mode overwrite is not allowed: a log is only appended to (mode append)")
    if settings.exactly_once and settings.write_id is None:
        raise OptionError("delivery=exactly-once needs the option writeId: a name that it has again when repeated")
    return BatchWriter(settings)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream`; output mode complete appends, as to Spark's own sink. Raises `OptionError`."""
    settings = _checked(options, schema)
    if settings.write_id is not None:
        raise OptionError("writeId is an option of df.write: a stream's batches have the checkpoint's names")
    return StreamWriter(settings)


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = parse_settings(options)
    check_columns({field.name: field.dataType.simpleString() for field in schema.fields}, settings.topic)
    delivery.connected(settings).close()  # so that a setting of the connection is refused here, not in each task
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
    """The transactions that tasks left open."""
    said = [message.delivered.transaction for message in messages if isinstance(message, Said)]
    return [transaction for transaction in said if transaction is not None]
