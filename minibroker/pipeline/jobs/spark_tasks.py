"""Runs a function on objects, each in a Spark task of its own. Works over Spark Connect too, which has no RDDs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_MAX: Final = 10_000
Item = TypeVar("Item")


def rows_of_tasks(
    spark: SparkSession, items: Sequence[Item], run: Callable[[Item], Iterable[pa.RecordBatch]], schema: pa.Schema
) -> DataFrame:
    """Return the rows that `run` yields for the items. A task has one item, or some if there are very many."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from minibroker.pipeline.sources.arrival import ship

    pickled = [pickle.dumps(item) for item in items]  # each task gets all of them, and opens its own

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(pickle.loads(pickled[number]))

    tasks = max(1, min(len(pickled), TASKS_MAX))
    return spark.range(0, len(pickled), 1, tasks).mapInArrow(ship(rows), from_arrow_schema(schema))
