"""A log directory read by Spark as a stream: in batches of a limited size, and on from a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minibroker.cli.pipeline.pipeline_shared import find_reason_in_spark_error
from minibroker.pipeline.log_source import TopicPartition
from tests.pipeline.directory.support import fill, log_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 100
SCHEMA = "topic string, partition int, offset long"


class Stream:
    """A stream of a directory's offsets to Parquet, run until there is no more, again and again from a checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path, **options: str) -> None:
        self._spark = spark
        self._directory = directory
        self._options = {"path": str(directory / "logs"), "subscribePattern": ".", **options}

    def run(self) -> list[dict[str, Any]]:
        """Return Spark's report on each of the batches of this run that had rows."""
        reader = self._spark.readStream.format("minibroker").schema(SCHEMA).options(**self._options)
        places = {"path": str(self._directory / "out"), "checkpointLocation": str(self._directory / "checkpoint")}
        query = reader.load().writeStream.format("parquet").options(**places).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()
        return [json.loads(progress.json) for progress in query.recentProgress if progress.numInputRows]

    def rows(self) -> list[tuple[str, int, int]]:
        return sorted(map(tuple, self._spark.read.schema(SCHEMA).parquet(str(self._directory / "out")).collect()))


def rows_of(partition: TopicPartition, start: int, end: int) -> list[tuple[str, int, int]]:
    return [(*partition, offset) for offset in range(start, end)]


ORDERS, VISITS = TopicPartition("orders", 0), TopicPartition("visits", 0)


def test_a_stream_obeys_max_offsets_per_trigger_and_continues_from_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders, visits = log_in(tmp_path / "logs", ORDERS), log_in(tmp_path / "logs", VISITS)
    fill(orders, 20)
    fill(visits, 10)
    stream = Stream(spark, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="36")
    batches = stream.run()
    assert [batch["numInputRows"] for batch in batches] == [36, 36, 18]
    (source,) = batches[1]["sources"]
    assert source["startOffset"] == {"orders": {"0": 24}, "visits": {"0": 12}}
    assert source["endOffset"] == {"orders": {"0": 48}, "visits": {"0": 24}}
    assert source["latestOffset"] == {"orders": {"0": 60}, "visits": {"0": 30}}
    assert stream.rows() == [*rows_of(ORDERS, 0, 60), *rows_of(VISITS, 0, 30)]

    assert stream.run() == []
    fill(orders, 2)
    news = TopicPartition("news", 3)
    fill(log_in(tmp_path / "logs", news), 1)
    assert [batch["numInputRows"] for batch in stream.run()] == [9]
    assert stream.rows() == [*rows_of(news, 0, 3), *rows_of(ORDERS, 0, 66), *rows_of(VISITS, 0, 30)]


def test_missing_offsets_fail_a_stream_unless_data_loss_is_allowed(spark: SparkSession, tmp_path: Path) -> None:
    log = log_in(tmp_path / "logs", ORDERS)
    fill(log, 1)
    assert [batch["numInputRows"] for batch in Stream(spark, tmp_path, startingOffsets="earliest").run()] == [3]
    fill(log, 30)
    gone = sorted(Path(log.directory).glob("*.log"))[:2]
    first = int(sorted(Path(log.directory).glob("*.log"))[2].stem)
    for path in gone:
        path.unlink()
    with pytest.raises(Exception) as caught:
        Stream(spark, tmp_path).run()
    complaint = f"orders-0: offsets 3 to {first - 1} are gone; failOnDataLoss=false reads what is left"
    assert find_reason_in_spark_error(str(caught.value)) == complaint
    lenient = Stream(spark, tmp_path, failOnDataLoss="false")
    assert [batch["numInputRows"] for batch in lenient.run()] == [93 - first]
    assert lenient.rows() == [*rows_of(ORDERS, 0, 3), *rows_of(ORDERS, first, 93)]


def test_a_stream_rejects_options_for_its_end(spark: SparkSession, tmp_path: Path) -> None:
    fill(log_in(tmp_path / "logs", ORDERS), 1)
    with pytest.raises(Exception) as caught:
        Stream(spark, tmp_path, endingOffsets="latest").run()
    assert find_reason_in_spark_error(str(caught.value)) == "endingOffsets: not an option of a stream of records"
