"""The rows of an archive: dated by UTC, and read with the types that they were written with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from minibroker.pipeline.archiving.spark_archive import DIRECTORIES, READ, archived, read_archive
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = (
    "key binary, value binary, topic string, partition int, offset bigint, time_ms bigint, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
DAY_MS = 86_400_000


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/New_York"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """A time zone that the session has for the length of a test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def records(spark: SparkSession, *times_ms: int | None, topic: str = "t") -> DataFrame:
    rows = [(b"k", b"v", topic, 0, offset, time, 0, None) for offset, time in enumerate(times_ms)]
    names = ["key", "value", "topic", "partition", "offset", "timestampType", "headers"]
    return spark.createDataFrame(rows, RECORDS).selectExpr(*names, "timestamp_millis(time_ms) as timestamp")


def test_a_record_is_archived_under_its_utc_day(spark: SparkSession, zone: str) -> None:
    times = (0, DAY_MS - 1, DAY_MS, -1, -DAY_MS, -DAY_MS - 1, None, 253_402_300_799_999)
    rows = archived(records(spark, *times)).orderBy("offset").collect()
    assert [row.date for row in rows] == [
        date(1970, 1, 1),
        date(1970, 1, 1),
        date(1970, 1, 2),
        date(1969, 12, 31),
        date(1969, 12, 31),
        date(1969, 12, 30),
        None,
        date(9999, 12, 31),
    ]


def test_a_numeric_topic_name_stays_a_string(spark: SparkSession, tmp_path: Path) -> None:
    rows = archived(records(spark, 0, None, topic="007"))
    rows.write.partitionBy(*DIRECTORIES).parquet(str(tmp_path / "archive"))
    assert (tmp_path / "archive" / "topic=007" / "date=__HIVE_DEFAULT_PARTITION__").is_dir()
    found = read_archive(spark, str(tmp_path / "archive"))
    assert sorted(found.columns) == sorted(rows.columns)
    assert found.select(*rows.columns).exceptAll(rows).count() == 0
    assert found.count() == 2


def test_timestamps_out_of_range_are_kept_in_ms(spark: SparkSession, tmp_path: Path) -> None:
    far = (1_700_000_000_000_000_000, -1, 7)  # nanoseconds, none, and a time
    batch = build_batch([Record(offset, time, b"k", b"v") for offset, time in enumerate(far)])
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(bytes(batch))
    reader = spark.read.format("minibroker").options(path=str(tmp_path), subscribe="t").schema(READ)
    archived(reader.load()).write.partitionBy(*DIRECTORIES).parquet(str(tmp_path / "archive"))
    rows = read_archive(spark, str(tmp_path / "archive")).orderBy("offset").collect()
    assert [(row.timestampMs, row.timestamp is None, row.date is None) for row in rows] == [
        (far[0], True, True),
        (None, True, True),
        (None, False, False),
    ]
    exact = spark.read.format("minibroker").options(path=str(tmp_path), subscribe="t").schema("timestampMs bigint")
    assert [row.timestampMs for row in exact.load().collect()] == list(far)
    assert (
        "timestampMs" not in spark.read.format("minibroker").options(path=str(tmp_path), subscribe="t").load().columns
    )
