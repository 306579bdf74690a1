"""What is written to a broker before its files are looked at: by librdkafka, and the same whichever broker it is.

`write` and `write_again` ask for what every broker here does; `write_security` for what only Apache Kafka does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from conformance.kafka_files.contents import client
from conformance.spec import CODECS

PATIENCE_S = 60
FIRST_TIMESTAMP_MS = 1_700_000_000_000
SEGMENT = {"internal.segment.bytes": "20000", "index.interval.bytes": "500"}

TOPICS = [
    NewTopic("plain", 3, 1),
    NewTopic("segments", 2, 1, config=SEGMENT),
    NewTopic("stamped", 1, 1, config={"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"}),
    NewTopic("keyed", 1, 1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}),
    NewTopic("empty", 1, 1, config={"flush.ms": "86400000"}),
    NewTopic("gone", 2, 1),
]


def admin_of(bootstrap_servers: str) -> AdminClient:
    """A client for what is asked of the controller. What it was asked fails when it goes: hold on to it."""
    return AdminClient(client(bootstrap_servers))


def done(futures: Mapping[Any, Any]) -> None:
    """Waits for what was asked for; raises what it raises."""
    for future in futures.values():
        future.result(PATIENCE_S)


def write(bootstrap_servers: str) -> None:
    """Topics with and without configs, records of every codec from producers with and without ids, a removed topic.

    Then what `write_again` writes.
    """
    admin = admin_of(bootstrap_servers)
    done(admin.create_topics(TOPICS))
    for codec in CODECS:
        for idempotent in (False, True):
            append(bootstrap_servers, codec, idempotent=idempotent)
    done(admin.delete_topics(["gone"]))
    change = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=[change])]))
    done(admin.create_topics([NewTopic("gone", 1, 1)]))  # of that name again, and with nothing in it
    write_again(bootstrap_servers)


def write_again(bootstrap_servers: str) -> None:
    """Transactions, deleted records, a group's offsets: what another broker may go on with."""
    transactions(bootstrap_servers)
    shorten(bootstrap_servers)
    commit_offsets(bootstrap_servers)


def append(bootstrap_servers: str, codec: str, *, idempotent: bool) -> None:
    """Some records to each of the topics of `write` but "empty", with one producer."""
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "batch.num.messages": 10}
    producer = Producer(client(bootstrap_servers, **settings))
    source = random.Random(f"{codec} {idempotent}")
    put = _Put(producer)
    for number in range(120):
        timestamp = FIRST_TIMESTAMP_MS + 1000 * number - source.randrange(3000)
        put("plain", b"k%d" % number, b"v%d " % number * 5, number % 3, timestamp)
        put("segments", None, source.randbytes(250), number % 2, timestamp)
    for number in range(20):
        value = None if number % 5 == 4 else b"%s %d" % (codec.encode(), number)
        put("keyed", b"k%d" % (number % 7), value, 0, FIRST_TIMESTAMP_MS)
        put("stamped", None, b"stamped", 0, FIRST_TIMESTAMP_MS)
        put("gone", None, b"gone", 0, FIRST_TIMESTAMP_MS)
    put("plain", None, None, 0, FIRST_TIMESTAMP_MS, [("h", b"1"), ("h", None), ("ü", b"\xff\x00")])
    put("plain", b"", b"", 1, FIRST_TIMESTAMP_MS, [("empty", b"")])
    put("plain", b"large", source.randbytes(300_000), 2, FIRST_TIMESTAMP_MS)
    put.finish()


class _Put:
    """Gives records to a producer, and finds out whether all of them were taken."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._errors: list[object] = []

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        timestamp: int,
        headers: list[tuple[str, bytes | None]] | None = None,
    ) -> None:
        self._producer.produce(
            topic,
            value,
            key,
            partition,
            timestamp=timestamp,
            headers=headers or [],
            on_delivery=lambda error, _: self._errors.append(error) if error else None,
        )

    def finish(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        assert (left, self._errors) == (0, [])


def write_metadata(bootstrap_servers: str) -> None:
    """So much that a small metadata log rolls."""
    admin = admin_of(bootstrap_servers)
    for number in range(200):
        change = ConfigEntry("max.message.bytes", f"{1_000_000 + number}", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "shortened", incremental_configs=[change])
        done(admin.incremental_alter_configs([resource]))


def write_security(bootstrap_servers: str) -> None:
    """A credential and an ACL."""
    admin = admin_of(bootstrap_servers)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", credential, b"secret")
    done(admin.alter_user_scram_credentials([upsertion]))
    binding = ("plain", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    done(admin.create_acls([AclBinding(ResourceType.TOPIC, *binding)]))


def transactions(bootstrap_servers: str) -> None:
    """A topic "transactional" with transactions that were committed and others that were aborted."""
    _make(bootstrap_servers, NewTopic("transactional", 2, 1))
    producer = Producer(client(bootstrap_servers, **{"transactional.id": "t"}))
    producer.init_transactions(PATIENCE_S)
    for number in range(9):
        producer.begin_transaction()
        for place in range(30):
            producer.produce("transactional", b"%d of %d" % (place, number), partition=place % 2)
        assert producer.flush(PATIENCE_S) == 0
        if number % 3:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)


def shorten(bootstrap_servers: str) -> None:
    """A topic "shortened" whose first records were deleted, some of them in the middle of a segment."""
    admin = admin_of(bootstrap_servers)
    _make(bootstrap_servers, NewTopic("shortened", 1, 1, config=SEGMENT))
    producer = Producer(client(bootstrap_servers, **{"batch.num.messages": 10}))
    put = _Put(producer)
    for number in range(300):
        put("shortened", None, b"%d" % number * 80, 0, FIRST_TIMESTAMP_MS)
    put.finish()
    done(admin.delete_records([TopicPartition("shortened", 0, 255)]))


COMMITTED = {0: 17, 1: 4}


def _make(bootstrap_servers: str, topic: NewTopic) -> None:
    """Makes a topic, unless it is there."""
    admin = admin_of(bootstrap_servers)
    if topic.topic not in admin.list_topics(timeout=PATIENCE_S).topics:
        done(admin.create_topics([topic]))


def commit_offsets(bootstrap_servers: str) -> None:
    consumer = Consumer(client(bootstrap_servers, **{"group.id": "readers", "enable.auto.commit": False}))
    offsets = [TopicPartition("plain", partition, offset) for partition, offset in COMMITTED.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def committed_offsets(bootstrap_servers: str) -> dict[int, int]:
    """Return what the group has committed for "plain", by partition."""
    admin = admin_of(bootstrap_servers)
    asked = [ConsumerGroupTopicPartitions("readers")]
    (future,) = admin.list_consumer_group_offsets(asked).values()
    return {found.partition: found.offset for found in future.result(PATIENCE_S).topic_partitions}


def wait_until(happened: Callable[[], bool], what: str, patience_s: int = PATIENCE_S) -> None:
    """Waits for something that a broker does in its own time."""
    deadline = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < deadline, f"it does not come: {what}"
        time.sleep(0.1)
