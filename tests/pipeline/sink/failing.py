"""Our sink with accidents, as data sources of their own: `dying`, `half-committing` and `stalling`.

They are importable, as Spark's processes import them by name, and what is to happen is in their options: nothing of
the tests' own process reaches them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.types import StructType

from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.writer import StreamWriter, TaskMessage, make_stream_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCIDENT = "accident"  # the option: a file that is made when the accident has happened, and which prevents another one
BATCH = 1  # the batch in which it happens


class AccidentWriter(StreamWriter):
    """Our writer, to which something happens once, in batch 1."""

    def __init__(self, settings: SinkSettings, accident: str) -> None:
        super().__init__(settings)
        self.accident = Path(accident)

    def is_due(self, batch: int) -> bool:
        return batch == BATCH and not self.accident.exists()


class DyingWriter(AccidentWriter):
    """The first attempt of task 0 dies when all its rows are in the broker, and says nothing to the driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        said = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        if self.is_due(batch) and context.partitionId() == 0:
            self.accident.write_text(f"attempt {context.attemptNumber()}, {said.delivered.rows} rows")
            os.kill(os.getpid(), signal.SIGKILL)
        return said


class HalfCommittingWriter(AccidentWriter):
    """The commit fails when the first transaction is committed, and the others are not."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if not self.is_due(batchId):
            return super().commit(messages, batchId)
        super().commit(messages[:1], batchId)
        self.accident.write_text(f"1 of {len(messages)}")
        raise OSError("the driver fails between two commits")


class StallingWriter(AccidentWriter):
    """The commit stops for ever when the first transaction is committed: the test kills everything then."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if not self.is_due(batchId):
            return super().commit(messages, batchId)
        super().commit(messages[:1], batchId)
        parent = os.getppid()
        self.accident.write_text(f"1 of {len(messages)}")
        while os.getppid() == parent:  # not to be left behind
            time.sleep(0.1)


class AccidentSource(DataSource):
    """A sink like `minibroker`, by the option `accident`."""

    writer_class: type[AccidentWriter]

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    def streamWriter(self, schema: StructType, overwrite: bool) -> AccidentWriter:
        options = dict(self.options)
        accident = options.pop(ACCIDENT)
        return self.writer_class(make_stream_writer(options, schema, overwrite)._settings, accident)


class Dying(AccidentSource):
    writer_class = DyingWriter


class HalfCommitting(AccidentSource):
    writer_class = HalfCommittingWriter


class Stalling(AccidentSource):
    writer_class = StallingWriter


def register(spark: SparkSession) -> None:
    """Make the three known to a session."""
    for source in (Dying, HalfCommitting, Stalling):
        spark.dataSource.register(source)
