"""Nothing is found in the directory of a broker that real clients wrote to, and that was killed while they did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.pipeline.verifying.log_files import plan_verification_of_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from tests.pipeline.verifying.support import faults, judge, kinds
from tests.running import RunningBroker, running_broker

PATIENCE_S = 60
SMALL = {"internal.segment.bytes": "6000", "index.interval.bytes": "512"}
# The cleaner is at work all the time; the coordinators' topics have one partition, so that all is in it.
SETTINGS = (
    "log.cleaner.backoff.ms=20",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "log.flush.start.offset.checkpoint.interval.ms=50",
)
TOPICS = [
    NewTopic("plain", 2, 1, config=SMALL),
    NewTopic("keyed", 1, 1, config={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    NewTopic("stamped", 1, 1, config={**SMALL, "message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}),
    NewTopic("short", 1, 1, config={**SMALL, "record.attributes.elide": "true"}),
]


def settings_of(broker: RunningBroker, **settings: str | bool | int) -> dict[str, str | bool | int]:
    return {"bootstrap.servers": broker.bootstrap_servers, **settings}


def write(broker: RunningBroker, producer: Producer, number: int) -> None:
    for place in range(40):
        key = b"key %d" % (place % 13)
        for topic in ("plain", "keyed", "stamped", "short"):
            producer.produce(
                topic, b"%d of %d" % (place, number) * 5, key, partition=place % 2 if topic == "plain" else 0
            )


def write_all(broker: RunningBroker, round_: int) -> Producer:
    """Batches of all codecs, transactions of both ends, and one that is open when the broker is killed."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(settings_of(broker, **{"compression.type": codec, "enable.idempotence": codec != "lz4"}))
        write(broker, producer, round_)
        assert producer.flush(PATIENCE_S) == 0
    producer = Producer(settings_of(broker, **{"transactional.id": "t", "batch.num.messages": 7}))
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        write(broker, producer, number)
        assert producer.flush(PATIENCE_S) == 0
        producer.commit_transaction(PATIENCE_S) if number % 2 else producer.abort_transaction(PATIENCE_S)
    producer.begin_transaction()
    write(broker, producer, 99)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def wait_until_cleaned(data: Path) -> None:
    """Return once the cleaner has been over the compacted topic."""
    checkpoint = data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + PATIENCE_S
    while not (checkpoint.exists() and "keyed 0" in checkpoint.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path, *SETTINGS) as broker:
        admin = AdminClient(settings_of(broker))
        for future in admin.create_topics(TOPICS).values():
            future.result(PATIENCE_S)
        yield broker


def test_nothing_is_found_after_a_broker_is_killed(broker: RunningBroker, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for round_ in range(2):
        producer = write_all(broker, round_)
        admin = AdminClient(settings_of(broker))
        for future in admin.delete_records([TopicPartition("plain", 0, 100 + round_)]).values():
            future.result(PATIENCE_S)
        wait_until_cleaned(data)
        broker.kill()
        found = judge(data)
        assert faults(found) == []
        assert kinds(found)["open-transaction"] >= 4
        del producer
        broker.start()
    assert broker.stop() == 0
    assert faults(judge(data)) == []
    plan = plan_verification_of_directory(str(data))
    compacted = {each.topic for each in plan.partitions if each.compacted}
    assert compacted == {"keyed", "__consumer_offsets", "__transaction_state"} & {
        each.topic for each in plan.partitions
    }
    assert len([each for each in plan.segments if each.partition.topic == "plain"]) > 4
    assert faults(verify_plan(plan)) == []
