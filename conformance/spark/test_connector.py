"""Spark's own Kafka connector against the broker: it writes and reads, in batches and streams, and our source agrees.

What the connector reads is compared, row by row and both ways, with what our source reads from the running broker and
from its directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from conformance import builds
from minibroker.pipeline.session import session
from tests.running import RunningBroker, running_broker
from tests.spark_settings import settings_in

pytestmark = pytest.mark.minibroker_only
T = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
Options = dict[str, Any]


class Cluster(NamedTuple):
    """A broker, and a copy of its directory after everything below was written."""

    servers: str
    directory: str


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = ",".join(map(str, builds.spark_connector()))
    spark = session("local[2]", **{"spark.jars": jars}, **settings_in(tmp_path_factory.mktemp("spark")))
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), nodes=2) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [
            NewTopic("by-spark", 3, 1),
            NewTopic("by-stream", 3, 1),
            NewTopic("mixed", 2, 1, config={"retention.ms": "-1"}),  # its records are old
            NewTopic("mixed-transactions", 1, 1),
            NewTopic("ours", 2, 1, config={"retention.ms": "-1"}),
        ]
        for created in admin.create_topics(topics).values():
            created.result()
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: RunningBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The topics `mixed` (by librdkafka), and `by-spark`, `by-stream` (by the connector), and the copy of all."""
    write_mixed(broker.bootstrap_servers)
    write_transactions(broker.bootstrap_servers)
    write_by_connector(spark, broker.bootstrap_servers)
    copy_by_stream(spark, broker.bootstrap_servers, tmp_path_factory.mktemp("checkpoint"))
    copy_by_ours(spark, broker.bootstrap_servers)
    directory = tmp_path_factory.mktemp("copy") / "data"
    shutil.copytree(broker.directory / "data", directory)
    yield Cluster(broker.bootstrap_servers, str(directory))


def write_mixed(servers: str) -> None:
    """1,000 records a second apart in each of two partitions, a fifth of them by each codec."""
    for index, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "batch.num.messages": 37})
        for number in range(index * 400, index * 400 + 400):
            key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"key %d" % number
            value = None if number % 7 == 0 else b"value %d " % number * (number % 50)
            headers = [("n", b"%d" % number), ("", None), ("n", b"again")] if number % 2 else None
            producer.produce("mixed", value, key, number % 2, timestamp=T + 1000 * number, headers=headers)
        assert producer.flush(60) == 0


def write_transactions(servers: str) -> None:
    """Ten transactions of 20 records, of which every third is aborted, with records outside of any between them."""
    within = Producer({"bootstrap.servers": servers, "transactional.id": "conformance"})
    without = Producer({"bootstrap.servers": servers})
    within.init_transactions(60)
    for number in range(10):
        within.begin_transaction()
        for each in range(20):
            within.produce("mixed-transactions", b"%d %d" % (number, each))
        within.flush(60)
        without.produce("mixed-transactions", b"%d outside" % number)
        assert without.flush(60) == 0
        if number % 3:
            within.commit_transaction(60)
        else:
            within.abort_transaction(60)


def write_by_connector(spark: SparkSession, servers: str) -> None:
    rows = spark.range(600).selectExpr(
        "CASE WHEN id % 5 = 0 THEN NULL ELSE CAST(CONCAT('k', id) AS BINARY) END AS key",
        "CAST(REPEAT(CONCAT('v', id), CAST(id % 30 AS INT)) AS BINARY) AS value",
        "'by-spark' AS topic",
        "CAST(id % 3 AS INT) AS partition",
        "ARRAY(NAMED_STRUCT('key', 'id', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    options = {"kafka.bootstrap.servers": servers, "kafka.compression.type": "zstd", "includeHeaders": "true"}
    rows.write.format("kafka").options(**options).mode("append").save()


def copy_by_stream(spark: SparkSession, servers: str, checkpoint: Path) -> None:
    """The connector's stream reads `by-spark` in several micro-batches, and its sink writes `by-stream`."""
    read = {"kafka.bootstrap.servers": servers, "subscribe": "by-spark", "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**read, maxOffsetsPerTrigger=250, includeHeaders=True).load()
    copied = stream.select("key", "value", "partition", "headers")
    sink = copied.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", "by-stream")
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        assert len([progress for progress in query.recentProgress if progress["numInputRows"]]) == 3
    finally:
        query.stop()


def copy_by_ours(spark: SparkSession, servers: str) -> None:
    """The connector reads `mixed`, and our writer writes `ours`, each row once."""
    to = {"kafka.bootstrap.servers": servers}
    read = spark.read.format("kafka").options(**to, subscribe="mixed", includeHeaders=True).load()
    rows = read.select("key", "value", "headers", "partition", "timestamp")
    options = {**to, "topic": "ours", "delivery": "exactly-once", "writeId": "copy", "kafka.compression.type": "lz4"}
    rows.write.format("minibroker").options(**options).mode("append").save()


def by_connector(spark: SparkSession, cluster: Cluster, **options: Any) -> DataFrame:
    options = {"kafka.bootstrap.servers": cluster.servers, "startingOffsets": "earliest", **options}
    return spark.read.format("kafka").options(**options).load()


def by_ours(spark: SparkSession, where: Options, **options: Any) -> DataFrame:
    return spark.read.format("minibroker").options(**where, **options).load()


def assert_same(spark: SparkSession, cluster: Cluster, count: int, **options: Any) -> None:
    """The connector, our source on the broker and our source on the directory read the same rows, `count` of them."""
    ours = {name.replace("kafka.isolation.level", "isolation.level"): value for name, value in options.items()}
    expected = by_connector(spark, cluster, **options).cache()
    assert expected.count() == count
    for where in ({"kafka.bootstrap.servers": cluster.servers}, {"path": cluster.directory}):
        found = by_ours(spark, where, **ours)
        assert found.schema == expected.schema
        assert found.exceptAll(expected).count() == 0, (where, options)
        assert expected.exceptAll(found).count() == 0, (where, options)
    expected.unpersist()


def offsets(**by_partition: int) -> str:
    return json.dumps({"mixed": {name.removeprefix("p"): offset for name, offset in by_partition.items()}})


def test_records_written_by_the_connector_are_read_with_headers(spark: SparkSession, cluster: Cluster) -> None:
    assert_same(spark, cluster, 600, subscribe="by-spark", includeHeaders="true")
    rows = by_connector(spark, cluster, subscribe="by-spark", includeHeaders="true")
    number = "CAST(CAST(headers[0].value AS STRING) AS INT)"
    assert rows.where(f"headers[0].key = 'id' AND size(headers) = 1 AND partition = {number} % 3").count() == 600


def test_a_stream_copied_by_the_connector_is_complete(spark: SparkSession, cluster: Cluster) -> None:
    assert_same(spark, cluster, 600, subscribe="by-stream", includeHeaders="true")
    copied, original = (
        by_connector(spark, cluster, subscribe=topic).select("key", "value", "partition")
        for topic in ("by-stream", "by-spark")
    )
    assert copied.exceptAll(original).count() == 0


def test_records_copied_by_our_writer_are_complete(spark: SparkSession, cluster: Cluster) -> None:
    committed = {"kafka.isolation.level": "read_committed", "includeHeaders": "true"}
    assert_same(spark, cluster, 2000, subscribe="ours", **committed)
    both = (by_connector(spark, cluster, subscribe=topic, **committed) for topic in ("ours", "mixed"))
    copied, original = (rows.drop("topic", "offset") for rows in both)
    assert copied.exceptAll(original).count() == original.exceptAll(copied).count() == 0


def test_records_with_every_codec_nulls_and_headers_are_read_as_by_sparks_connector(
    spark: SparkSession, cluster: Cluster
) -> None:
    assert_same(spark, cluster, 2000, subscribe="mixed", includeHeaders="true")


def test_ranges_of_offsets_are_read_as_by_sparks_connector(spark: SparkSession, cluster: Cluster) -> None:
    ends = {"startingOffsets": offsets(p0=17, p1=-2), "endingOffsets": offsets(p0=911, p1=555)}
    assert_same(spark, cluster, 911 - 17 + 555, subscribe="mixed", **ends)
    assert_same(spark, cluster, 911 - 17 + 555, subscribe="mixed", minPartitions=5, **ends)


def test_ranges_of_timestamps_are_read_as_by_sparks_connector(spark: SparkSession, cluster: Cluster) -> None:
    times = {"startingTimestamp": str(T + 100_000), "endingTimestamp": str(T + 200_000)}
    assert_same(spark, cluster, 100, subscribe="mixed", **times)
    each = json.dumps({"mixed": {"0": T + 1_000_000, "1": T + 1_500_500}})
    assert_same(spark, cluster, 500 + 250, subscribe="mixed", startingOffsetsByTimestamp=each)


def test_patterns_and_assignments_are_read_as_by_sparks_connector(spark: SparkSession, cluster: Cluster) -> None:
    assert_same(spark, cluster, 1200, subscribePattern="by-.*")
    assert_same(spark, cluster, 2210, subscribePattern="mixed")  # is looked for in the name
    assert_same(spark, cluster, 1000, assign='{"mixed": [1]}')


def test_committed_records_are_read_as_by_sparks_connector(spark: SparkSession, cluster: Cluster) -> None:
    assert_same(spark, cluster, 210, subscribe="mixed-transactions")
    committed = {"subscribe": "mixed-transactions", "kafka.isolation.level": "read_committed"}
    assert_same(spark, cluster, 130, **committed)


def test_streams_read_the_same_rows_in_the_same_batches_as_sparks_connector(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    def batches(kind: str, where: Options) -> list[tuple[int, str]]:
        options = {**where, "subscribe": "mixed", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 900}
        stream = spark.readStream.format(kind).options(**options).load().select(*COLUMNS)
        name = kind.replace("-", "_") + ("_directory" if "path" in where else "")
        sink = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name))
        query = sink.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
            progress = [each for each in query.recentProgress if each["numInputRows"]]
        finally:
            query.stop()
        tables.append(spark.table(name))
        return [(each["numInputRows"], json.loads(each["sources"][0]["endOffset"])) for each in progress]

    tables: list[DataFrame] = []
    expected = batches("kafka", {"kafka.bootstrap.servers": cluster.servers})
    assert [count for count, _ in expected] == [900, 900, 200]
    for where in ({"kafka.bootstrap.servers": cluster.servers}, {"path": cluster.directory}):
        assert batches("minibroker", where) == expected
        assert tables[-1].exceptAll(tables[0]).count() == 0
        assert tables[-1].count() == 2000
