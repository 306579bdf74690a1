"""The reader of batch queries that Spark calls, on planning and a `LogSource`. That of streams is in `stream_reader`.

Filters are not pushed down: with them, Spark 4.3 gives wrong results for a DataFrame that is used twice (its scans
share the last one's filters), and fails every query of such a reader if the setting for it is off.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

import minibroker.pipeline.planning as planning
from minibroker.pipeline.foreign_options import warn_of
from minibroker.pipeline.log_source import LogSource, ReadRequest, Split
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.plain_errors import rows_with_plain_errors, with_plain_errors
from minibroker.pipeline.sources.arrival import Shipped

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
        yield from source.read(partition.value, request)
    finally:
        source.close()
        freeze_present_objects()


class BatchReader(Shipped, DataSourceReader):
    """`spark.read`: planned once, when the DataFrame is first used, and then always read by that plan."""

    def __init__(self, options: ReadOptions, request: ReadRequest, source: LogSource) -> None:
        self._options = options
        self._request = request
        self._source = source

    @with_plain_errors
    def partitions(self) -> list[InputPartition]:
        """Return the parts of the tasks. Raises `OptionError` and `DataLoss`."""
        warn_of(self._options.ignored)
        try:
            ranges = planning.batch_ranges(self._options, self._source)
            return [SplitPartition(split) for split in planning.make_splits(self._options, self._source, ranges)]
        finally:
            self._source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run in a task: yield its rows. Raises `DataLoss` and `CorruptData`."""
        return rows_with_plain_errors(iterate_rows(self._source, partition, self._request))
