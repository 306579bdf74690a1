"""A Spark session of ours: this Python in its workers, UTC, and nothing on stderr that nobody asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_workers_are_this_python(spark: SparkSession) -> None:
    program = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert program == [sys.executable]


def test_times_are_in_utc(spark: SparkSession) -> None:
    text = spark.sql("SELECT cast(timestamp_millis(0) AS string) AS text").collect()[0].text
    assert text == "1970-01-01 00:00:00"
