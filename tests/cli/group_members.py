"""A consumer in a group, for the tests of the commands that look at groups and change them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from tests.running import PATIENCE_S


@contextmanager
def member(servers: str, group: str, topic: str, records: int, **config: str) -> Iterator[None]:
    """A member that has read and committed that many records of the topic, until the block ends."""
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **config}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        for message in consumer.consume(records, timeout=PATIENCE_S):
            assert message.error() is None, message.error()
            consumer.commit(message, asynchronous=False)
        yield
    finally:
        consumer.close()
