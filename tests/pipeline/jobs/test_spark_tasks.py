"""Objects that are given to Spark's tasks: each task has one, and its rows are all that come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from minibroker.pipeline.jobs import spark_tasks
from minibroker.pipeline.jobs.spark_tasks import rows_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema([("letter", pa.string()), ("task", pa.int32())])


def repeated(item: tuple[str, int]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    letter, count = item
    context = TaskContext.get()
    assert context is not None
    for _ in range(count):
        yield pa.RecordBatch.from_pylist([{"letter": letter, "task": context.partitionId()}], SCHEMA)


@pytest.mark.parametrize(("tasks_max", "tasks"), [(10, [0, 1, 1, 2]), (1, [0, 0, 0, 0])])
def test_items_are_distributed_over_tasks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tasks_max: int, tasks: list[int]
) -> None:
    monkeypatch.setattr(spark_tasks, "TASKS_MAX", tasks_max)
    rows = rows_of_tasks(spark, [("a", 1), ("b", 2), ("c", 1)], repeated, SCHEMA).collect()
    assert sorted(map(tuple, rows)) == list(zip("abbc", tasks, strict=True))


def test_no_items_give_no_rows(spark: SparkSession) -> None:
    assert rows_of_tasks(spark, [], repeated, SCHEMA).collect() == []
