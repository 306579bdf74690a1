"""A worker or the driver is killed in the middle of a write with each row once: nothing is lost, nothing is doubled."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest

from conformance.pipeline_cluster.drivers import RunningDriver, running_driver
from conformance.pipeline_cluster.standalone import StandaloneCluster
from tests.pipeline.sink.committed import create_topic, values
from tests.running import PATIENCE_S, RunningBroker

pytestmark = pytest.mark.thorough  # workers and executors start again
COUNT = 40_000
TASKS = 12


def await_records(servers: str, topic: str, count: int) -> None:
    """Wait until the partitions of a topic have so many offsets, committed or not."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "watcher"})
    try:
        partitions = consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
        while sum(consumer.get_watermark_offsets(place, PATIENCE_S)[1] for place in places) < count:
            consumer.poll(0.05)
    finally:
        consumer.close()


def assert_each_once(servers: str, topic: str) -> None:
    found = sorted(int(value or b"") for value in values(servers, topic))
    assert found == list(range(COUNT))


def exactly_once(broker: RunningBroker, topic: str) -> dict[str, str]:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return {**servers, "topic": topic, "delivery": "exactly-once", "writeId": topic}


@pytest.mark.parametrize("worker", ["bare", "equipped"])
def test_a_write_survives_a_killed_worker(
    broker: RunningBroker, cluster: StandaloneCluster, driver: RunningDriver, worker: str
) -> None:
    topic = f"with-{worker}-killed"
    create_topic(broker.bootstrap_servers, topic, 4)
    driver.tell("write", options=exactly_once(broker, topic), count=COUNT, tasks=TASKS)
    await_records(broker.bootstrap_servers, topic, 1)
    cluster.workers[worker].kill()
    driver.answer()
    cluster.launch_worker(worker).await_registered()
    assert_each_once(broker.bootstrap_servers, topic)


@pytest.mark.parametrize("written", [1, COUNT], ids=["as-it-begins", "as-it-commits"])
def test_a_write_survives_a_killed_driver(
    broker: RunningBroker, cluster: StandaloneCluster, archive: Path, written: int
) -> None:
    topic = f"with-driver-killed-at-{written}"
    create_topic(broker.bootstrap_servers, topic, 4)
    write = {"options": exactly_once(broker, topic), "count": COUNT, "tasks": TASKS}
    with running_driver(cluster, archive) as first:
        first.tell("write", **write)
        await_records(broker.bootstrap_servers, topic, written)
        first.kill()
    with running_driver(cluster, archive) as second:
        second.ask("write", **write)
    assert_each_once(broker.bootstrap_servers, topic)


def test_a_stream_survives_a_killed_driver(
    broker: RunningBroker, cluster: StandaloneCluster, archive: Path, tmp_path: Path
) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    for topic in ("streamed", "stream-with-driver-killed"):
        create_topic(broker.bootstrap_servers, topic, 4)
    source = {**servers, "subscribe": "streamed", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10000"}
    sink = {**servers, "topic": "stream-with-driver-killed", "delivery": "exactly-once"}
    copy = {"options": source, "to": sink, "checkpoint": str(tmp_path / "checkpoint")}
    with running_driver(cluster, archive) as first:
        first.ask("write", options={**servers, "topic": "streamed"}, count=COUNT, tasks=TASKS)
        first.tell("copy", **copy)
        await_records(broker.bootstrap_servers, "stream-with-driver-killed", COUNT // 2)
        first.kill()
    with running_driver(cluster, archive) as second:
        second.ask("copy", **copy)
    assert_each_once(broker.bootstrap_servers, "stream-with-driver-killed")
