"""A running broker read by Spark, and both tables found by their names alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.pipeline.sink.committed import create_topic
from tests.running import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

COUNT = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with a topic of two partitions, in which a transaction is aborted and another committed."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", "compression.type": "zstd"}
        create_topic(broker.bootstrap_servers, "orders", 2)
        producer = Producer(settings)
        producer.init_transactions()
        for value in (b"aborted", b"committed"):
            producer.begin_transaction()
            for number in range(COUNT):
                producer.produce("orders", key=b"%d" % number, value=value, partition=number % 2)
            producer.flush()
            (producer.abort_transaction if value == b"aborted" else producer.commit_transaction)()
        yield broker


def reader(spark: SparkSession, broker: RunningBroker, table: str = "minibroker", **options: str) -> DataFrameReader:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", **options}
    return spark.read.format(table).options(**options)


def test_a_broker_is_read_by_spark(spark: SparkSession, broker: RunningBroker) -> None:
    found = reader(spark, broker).load().groupBy("partition", "value").count().collect()
    half = COUNT // 2
    values = [(partition, value, half) for partition in (0, 1) for value in (b"aborted", b"committed")]
    assert sorted((row.partition, bytes(row.value), row["count"]) for row in found) == values


def test_only_committed_records_of_transactions_are_read(spark: SparkSession, broker: RunningBroker) -> None:
    committed = {"isolation.level": "read_committed", "minPartitions": "4"}
    frame = reader(spark, broker, **committed).load()
    found = frame.groupBy("value").agg({"key": "count"}).collect()
    assert [(bytes(row.value), row["count(key)"]) for row in found] == [(b"committed", COUNT)]


def test_a_broker_is_read_as_a_stream(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "assign": '{"orders": [1]}'}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200", "isolation.level": "read_committed"}
    frame = spark.readStream.format("minibroker").schema("offset long").options(**options).load()
    places = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "checkpoint")}
    query = frame.writeStream.format("parquet").options(**places).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    assert [progress.numInputRows for progress in query.recentProgress] == [49, 101]
    assert spark.read.parquet(str(tmp_path / "out")).distinct().count() == COUNT // 2


def test_both_data_sources_are_available_to_spark_without_registration(
    spark: SparkSession, broker: RunningBroker
) -> None:
    fresh = spark.newSession()
    assert reader(fresh, broker).schema("offset long").load().count() == 2 * COUNT
    batches = reader(fresh, broker, "minibroker-batches").load().where("NOT isControl")
    assert batches.selectExpr("sum(recordCount) AS records").collect() == [(2 * COUNT,)]
