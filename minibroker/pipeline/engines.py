"""Where the work of a job runs: in threads of this process, or in the tasks of Spark.

A job is a function that works on an item (a segment, some splits, a partition of an archive) and returns what came of
it. It neither knows nor imports its engine.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")

TASKS_MAX: Final = 10_000
THREADS_MAX: Final = 4  # numpy and the codecs work beside each other, but not what is between them


class Engine(Protocol):
    """Runs a function on items. `workers` is how many of them run at a time."""

    @property
    def workers(self) -> int: ...

    def run_on_items(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the result for each item, in their order. Raises what the function raises, or Spark's error of it."""
        ...


class LocalEngine:
    """Runs work in threads of this process."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(THREADS_MAX, os.cpu_count() or 1)

    def run_on_items(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the results. The first error cancels the items that have not begun."""
        with ThreadPoolExecutor(self.workers, "pipeline") as pool:
            try:
                yield from pool.map(work, items)
            finally:
                pool.shutdown(cancel_futures=True)


class SparkEngine:
    """Runs work in Spark, each item in a task of its own, or some in one if there are very many.

    Function, items and results are pickled.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def workers(self) -> int:
        """The number of tasks that run at a time."""
        return self._spark.sparkContext.defaultParallelism

    def run_on_items(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield the results, when all are there."""
        if not items:
            return
        pickled = [pickle.dumps(item) for item in items]  # each task gets all of them, and opens its own

        def run_on_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    result = pickle.dumps(work(pickle.loads(pickled[number])))
                    yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})

        tasks = min(len(pickled), TASKS_MAX)
        rows: Any = self._spark.range(0, len(pickled), 1, tasks).mapInArrow(run_on_rows, "number long, result binary")
        for _, result in sorted(rows.collect()):
            yield pickle.loads(result)
