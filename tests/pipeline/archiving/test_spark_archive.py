"""The archive in Spark: its rows, with the types that they were written with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from minibroker.pipeline.archiving.archive_job import LogArchive
from minibroker.pipeline.archiving.parquet_archive import ParquetArchive, read_archive
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_an_archive_with_the_types_that_were_written(spark: SparkSession, tmp_path: Path) -> None:
    far = (1_700_000_000_000_000_000, -1, 7)  # nanoseconds, none, and a time
    batch = build_batch([Record(offset, time, b"k", b"v", (("h", b"1"),)) for offset, time in enumerate(far)])
    (tmp_path / "logs" / "007-0").mkdir(parents=True)
    (tmp_path / "logs" / "007-0" / f"{0:020d}.log").write_bytes(bytes(batch))
    options = {"path": str(tmp_path / "logs"), "subscribe": "007"}
    list(LogArchive(ParquetArchive(str(tmp_path / "archive")), options, topic_ids={"007": "ours"}).run())
    rows = read_archive(spark, str(tmp_path / "archive")).orderBy("offset").collect()
    assert [(row.topic, row.timestampMs, row.timestamp is None, row.date is None) for row in rows] == [
        ("007", far[0], True, True),
        ("007", None, True, True),
        ("007", None, False, False),
    ]
    assert [tuple(row.headers[0]) for row in rows] == [("h", b"1")] * 3


def test_exact_timestamps_in_ms_are_read_only_if_the_schema_names_their_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    far = (1_700_000_000_000_000_000, -1, 7)
    (tmp_path / "t-0").mkdir()
    batch = build_batch([Record(offset, time, b"k", b"v") for offset, time in enumerate(far)])
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(bytes(batch))
    reader = spark.read.format("minibroker").options(path=str(tmp_path), subscribe="t")
    assert [row.timestampMs for row in reader.schema("timestampMs bigint").load().collect()] == list(far)
    reader = spark.read.format("minibroker").options(path=str(tmp_path), subscribe="t")
    assert "timestampMs" not in reader.load().columns
