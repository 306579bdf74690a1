"""A worker is killed in the middle of a write with each row once: nothing is lost and nothing is doubled."""

from __future__ import annotations

import confluent_kafka
import pytest

from conformance.pipeline_cluster.drivers import RunningDriver
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


@pytest.mark.parametrize("worker", ["bare", "equipped"])
def test_a_worker_is_killed_during_a_write(
    broker: RunningBroker, cluster: StandaloneCluster, driver: RunningDriver, worker: str
) -> None:
    topic = f"with-{worker}-killed"
    create_topic(broker.bootstrap_servers, topic, 4)
    to = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    to |= {"delivery": "exactly-once", "writeId": topic}
    driver.tell("write", options=to, count=COUNT, tasks=TASKS)
    await_records(broker.bootstrap_servers, topic, 1)
    cluster.workers[worker].kill()
    driver.answer()
    cluster.launch_worker(worker).await_registered()
    assert_each_once(broker.bootstrap_servers, topic)
