"""A log directory read by Spark itself: the rows are those that the broker's own codec finds in the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.cli.pipeline.pipeline_shared import find_reason_in_spark_error
from minibroker.pipeline.log_source import TopicPartition
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.formats import iterate_records_in_any_format, read_header_at
from minibroker.protocol.records.record import Record
from tests.pipeline.directory.support import (
    append,
    batch_of,
    batches_in,
    damaged_marker,
    fill,
    filled,
    finish,
    log_in,
    written,
)
from tests.pipeline.sources.pushing import PushingSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("visits", 0)]
Location = tuple[str, int, int]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three logs of several segments, in all codecs and formats."""
    directory = tmp_path_factory.mktemp("logs")
    for number, partition in enumerate(PARTITIONS):
        log = log_in(directory, partition)
        fill(log, 10 + number)
        fill(log, 5, magic=1, codec=Compression.LZ4)
        fill(log, 5, codec=Compression.ZSTD)
        finish(log)
    return directory


def load(spark: SparkSession, directory: Path, schema: str | None = None, **options: str) -> DataFrame:
    if not {"subscribe", "assign"} & options.keys():
        options["subscribePattern"] = "."
    reader = spark.read.format("minibroker").options(path=str(directory), **options)
    return (reader.schema(schema) if schema else reader).load()


def locations(frame: DataFrame) -> list[Location]:
    return sorted(
        (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
    )


def expected(directory: Path, *partitions: TopicPartition) -> list[Location]:
    return [
        (*partition, row.offset)
        for partition in partitions or PARTITIONS
        for row in written(directory / f"{partition.topic}-{partition.partition}")
    ]


def failure(frame: DataFrame) -> str:
    """In one line, as the commands say it."""
    with pytest.raises(Exception) as caught:
        frame.collect()
    return find_reason_in_spark_error(str(caught.value))


def test_all_columns_of_a_directory_are_read(spark: SparkSession, directory: Path) -> None:
    columns = ("topic", "partition", "offset", "key", "value", "unix_millis(timestamp) AS time", "timestampType")
    found = load(spark, directory).selectExpr(*columns).orderBy("topic", "partition", "offset").collect()
    wanted = [
        (*partition, row.offset, row.key, row.value, row.timestamp_ms, 0)
        for partition in PARTITIONS
        for row in written(directory / f"{partition.topic}-{partition.partition}")
    ]
    assert [tuple(row) for row in found] == wanted


def test_a_query_with_a_schema_reads_only_its_columns(spark: SparkSession, directory: Path) -> None:
    frame = load(spark, directory, "offset long, topic string", subscribe="visits")
    assert frame.columns == ["offset", "topic"]
    assert [row.offset for row in frame.orderBy("offset").collect()] == [
        offset for _, _, offset in expected(directory, PARTITIONS[2])
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOffset": "earliest"}, "unknown option startingoffset; did you mean startingOffsets?"),
        ({"startingOffsets": "latest"}, "startingOffsets: it cannot be latest in a batch query"),
        ({"schema": "when timestamp"}, "schema: records has no column when; there are key, value, topic,"),
        ({"startingOffsets": '{"orders": {"0": 0}}'}, "startingOffsets: orders-1, visits-0 are missing;"),
    ],
)
def test_unreadable_input_is_reported_in_one_line(
    spark: SparkSession, directory: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Exception) as caught:
        load(spark, directory, **options).collect()
    assert find_reason_in_spark_error(str(caught.value)).startswith(complaint)


def test_sql_reads_through_a_temporary_view(spark: SparkSession, directory: Path) -> None:
    options = f"OPTIONS (path '{directory}', subscribe 'visits', isolation.level 'read_committed')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW visits USING minibroker {options}")
    try:
        assert spark.sql("SELECT max(offset) FROM visits").first() == (expected(directory, PARTITIONS[2])[-1][2],)
    finally:
        spark.catalog.dropTempView("visits")


def test_sql_cannot_create_a_table_that_would_lose_its_options(spark: SparkSession, directory: Path) -> None:
    with pytest.raises(Exception) as caught:
        spark.sql(f"CREATE TABLE visits USING minibroker OPTIONS (path '{directory}', subscribe 'visits')")
    assert find_reason_in_spark_error(str(caught.value)).startswith(
        "CREATE TABLE: Spark reads tables of a Python source without"
    )


def test_a_query_is_divided_into_the_requested_number_of_tasks(spark: SparkSession, directory: Path) -> None:
    frame = load(spark, directory, minPartitions="9")
    assert frame.rdd.getNumPartitions() >= 9
    assert locations(frame) == expected(directory)


def test_filters_of_one_dataframe_do_not_affect_another(spark: SparkSession, directory: Path) -> None:
    frame = load(spark, directory)
    first, second = (frame.where(f"topic = 'orders' AND partition = {number}") for number in (0, 1))
    assert locations(first.union(second)) == expected(directory, *PARTITIONS[:2])
    assert locations(first) == expected(directory, PARTITIONS[0])
    assert locations(frame) == expected(directory)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="once Spark does, filters can be pushed down")
def test_spark_keeps_the_filters_of_two_scans_separate(spark: SparkSession) -> None:
    spark.dataSource.register(PushingSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("pushing").load()
        assert frame.where("partition = 1").count() == 10
        assert frame.count() == 30
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_headers_are_included_by_an_option(spark: SparkSession, tmp_path: Path) -> None:
    log = log_in(tmp_path)
    headers = (("a", b"1"), ("b", None))
    append(log, build_batch([Record(offset=0, timestamp=5, key=None, value=b"v", headers=headers)], base_offset=0))
    append(log, batch_of(1, 1))
    finish(log)
    found = load(spark, tmp_path, includeHeaders="true").orderBy("offset").collect()
    assert [row.headers and [tuple(header) for header in row.headers] for row in found] == [
        [("a", b"1"), ("b", None)],
        None,
    ]


def test_damage_fails_the_query_or_is_in_a_separate_column(spark: SparkSession, tmp_path: Path) -> None:
    path = filled(tmp_path, 3) / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    middle = len(data) // 3
    data[middle + 70] ^= 1
    path.write_bytes(data)
    complaint = failure(load(spark, tmp_path, verify="crc"))
    assert str(path) in complaint and f"position {middle}" in complaint
    found = load(spark, tmp_path, verify="crc", mode="PERMISSIVE").collect()
    assert sorted(row.offset for row in found if row._corrupt is None) == [0, 1, 2, 6, 7, 8]
    (corrupt,) = (row._corrupt for row in found if row._corrupt is not None)
    assert f"position {middle}" in corrupt


def test_a_corrupt_marker_fails_the_query_or_omits_its_transaction(spark: SparkSession, tmp_path: Path) -> None:
    path, position = damaged_marker(tmp_path, "marker")
    committed = {"isolation.level": "read_committed"}
    assert f"{path}: the batch at {position}" in failure(load(spark, tmp_path, **committed))
    found = load(spark, tmp_path, mode="PERMISSIVE", **committed).collect()
    assert sorted(row.offset for row in found if row._corrupt is None) == [0, 1, 2, 5, 6, 8, 9, 12, 13, 14]
    assert [row.offset for row in found if row._corrupt is not None] == [7]
    assert load(spark, tmp_path, mode="DROPMALFORMED", **committed).count() == 10


def test_vanished_files_fail_a_query_unless_data_loss_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    first = filled(tmp_path, 30) / f"{0:020}.log"
    strict, lenient = (load(spark, tmp_path, failOnDataLoss=fail) for fail in ("true", "false"))
    assert (strict.count(), lenient.count()) == (90, 90)
    gone = [record.offset for data in batches_in(first.read_bytes()) for record in iterate_records_in_any_format(data)]
    first.unlink()
    assert str(first) in failure(strict)
    assert lenient.count() == 90 - len(gone)


def test_batches_are_read_from_their_headers(spark: SparkSession, directory: Path) -> None:
    reader = spark.read.format("minibroker-batches").options(path=str(directory), subscribe="visits", verify="crc")
    found = reader.load().orderBy("lastOffset").collect()
    headers = [
        read_header_at(data)
        for path in sorted((directory / "visits-0").glob("*.log"))
        for data in batches_in(path.read_bytes())
    ]
    assert [(row.magic, row.sizeInBytes, row.lastOffset, row.crc, row.crcValid) for row in found] == [
        (header.magic, header.size_bytes, header.last_offset, header.crc, True) for header in headers
    ]
