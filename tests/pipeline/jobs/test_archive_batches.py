"""Batches that get into an archive once, wherever a crash falls: the operations on files fail one by one."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pyarrow.parquet
import pytest

from minibroker.pipeline.jobs.archive import COLUMNS
from minibroker.pipeline.jobs.archive_batches import STAGING, ArchiveBatches, ArchiveError, queries_of
from minibroker.pipeline.jobs.archive_merging import FILE_COLUMNS, Merging
from minibroker.pipeline.jobs.archive_totals import Written
from minibroker.pipeline.jobs.hadoop_files import HadoopFiles
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.schemas import RECORDS, chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Crash(Exception):
    """A crash that ends a process in the middle."""


class CrashingFiles(HadoopFiles):
    """Files of which operations succeed `left` times; then the process is no more."""

    left = 0

    def write(self, path: str, text: str) -> None:
        self._count(super().write, path, text)

    def move(self, path: str, to: str) -> None:
        self._count(super().move, path, to)

    def delete(self, path: str) -> None:
        self._count(super().delete, path)

    def _count(self, operation: Any, *arguments: str) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1
        operation(*arguments)


def rows(spark: SparkSession, *offsets: int) -> DataFrame:
    """Records of two topics and two days."""
    records = [
        (b"k", b"vv", 0, offset, None, 0, None, None, topic, f"2026-01-0{offset % 2 + 1}")
        for offset in offsets
        for topic in ("a", "b")
    ]
    columns = [name for name in spark.createDataFrame([], COLUMNS).columns if name != "date"]
    frame = spark.createDataFrame(records, COLUMNS.replace("date date", "day string")).coalesce(1)
    return frame.selectExpr(*columns, "cast(day as date) as date")


def begun(files: HadoopFiles, query: str = "q") -> ArchiveBatches:
    batches = ArchiveBatches(files)
    batches.query = query
    return batches


def offsets_in(path: Path) -> list[tuple[str, int]]:
    """Return what a reader finds that knows nothing of Spark, nor of the archive."""
    table = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive").to_table()
    columns = (table[name].to_pylist() for name in ("topic", "offset"))
    return sorted((str(topic), offset) for topic, offset in zip(*columns, strict=True))


def test_a_batch_is_archived_once_wherever_a_crash_occurs(spark: SparkSession, tmp_path: Path) -> None:
    batch = rows(spark, 3, 4, 5)
    for point in count():
        path = tmp_path / str(point)
        files = CrashingFiles(spark, str(path))
        files.left = point
        try:
            begun(files).put(batch, 1)
        except Crash:
            resumed = begun(HadoopFiles(spark, str(path)))
            resumed.put(batch, 1)  # as Spark does with a batch that it does not know to be done
            assert resumed.totals.records == 6
        else:
            break
        assert offsets_in(path) == [(topic, offset) for topic in "ab" for offset in (3, 4, 5)]
        assert not list((path / STAGING).glob("*"))
    assert point >= 8  # so many operations there are: two marks, four files, what is cleared


def test_a_batch_is_counted_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    batches = begun(HadoopFiles(spark, str(tmp_path)))
    batches.put(rows(spark, 3, 4, 5), 0)
    assert batches.written.partitions == {TopicPartition(topic, 0): Written(3, 9, 3, 5) for topic in "ab"}
    files = list(tmp_path.glob("topic=*/date=*/*.parquet"))
    assert (batches.written.files, batches.written.file_bytes) == (4, sum(file.stat().st_size for file in files))
    assert queries_of(batches.files) == {"q"}
    later = begun(HadoopFiles(spark, str(tmp_path)))
    later.put(rows(spark, 6), 1)
    assert (later.written.records, later.totals.records) == (2, 8)


def test_a_batch_without_records_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    batches = begun(HadoopFiles(spark, str(tmp_path)))
    batches.put(rows(spark, 1).where("false"), 0)
    assert batches.written.partitions == {}
    assert batches.files.names() == ["_archive"]


def test_small_files_are_merged_without_duplicates_wherever_a_crash_occurs(spark: SparkSession, tmp_path: Path) -> None:
    directory = "topic=a/date=2026-01-01"
    columns = spark.createDataFrame([], FILE_COLUMNS).columns
    for point in count():
        path = tmp_path / str(point)
        (path / directory).mkdir(parents=True)
        for offset in (5, 3, 4):
            row = {"partition": 0, "offset": offset, "key": b"k", "timestampType": 0}
            table = pyarrow.Table.from_pylist([row], chosen(RECORDS, columns))
            pyarrow.parquet.write_table(table, path / directory / f"part-{offset}.parquet")
        files = CrashingFiles(spark, str(path))
        files.left = point
        try:
            assert Merging(spark, files, "zstd", files_min=3).merge([directory]) == 2
        except Crash:
            there = offsets_in(path) if list(path.glob("topic=*/*/*.parquet")) else []
            assert len(set(there)) == len(there)
            Merging(spark, HadoopFiles(spark, str(path)), "zstd", files_min=3).merge([directory])
        else:
            break
        assert offsets_in(path) == [("a", offset) for offset in (3, 4, 5)]
        assert [file.name[:7] for file in (path / directory).glob("*.parquet")] == ["merged-"]
        assert not (path / "_archive" / "merging").exists()
    assert point >= 6  # the plan, three small files, the merged one, what is cleared


def test_an_invalid_archive_progress_file_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_archive" / "batches").mkdir(parents=True)
    (tmp_path / "_archive" / "batches" / "000000000000").write_text("{}")
    with pytest.raises(ArchiveError, match="is malformed"):
        ArchiveBatches(HadoopFiles(spark, str(tmp_path)))
