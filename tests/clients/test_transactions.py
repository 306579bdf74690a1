"""Transactional producers of each library, and what readers of each are shown of their transactions."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.confluent import LOG, Confluent
from tests.clients.interface import PATIENCE_S
from tests.clients.transactions import LIBRARIES, READERS
from tests.running import RunningBroker

WRITERS = pytest.mark.parametrize("writer", LIBRARIES)


@WRITERS
def test_consumers_of_every_library_see_exactly_the_committed_records(
    broker: RunningBroker, topic: str, topic_name: str, writer: str
) -> None:
    servers = broker.bootstrap_servers
    with LIBRARIES[writer](servers, f"tx-{topic_name}") as producer:
        producer.transaction(topic, [b"a", b"b"], commit=True)
        producer.transaction(topic, [b"lost"], commit=False)
        producer.transaction(topic, [b"c"], commit=True)
    for read in READERS.values():
        assert read(servers, topic, committed=True) == [b"a", b"b", b"c"]
        assert read(servers, topic, committed=False) == [b"a", b"b", b"lost", b"c"]


@WRITERS
def test_offsets_are_committed_with_the_records(
    broker: RunningBroker, topic: str, topic_name: str, writer: str
) -> None:
    servers, group = broker.bootstrap_servers, f"group-{topic_name}"
    with Confluent().admin(servers) as admin:
        admin.create_topic(f"{topic_name}-source", 1, {})
    with LIBRARIES[writer](servers, f"tx-{topic_name}") as producer:
        for number in range(3):
            producer.copy(group, f"{topic_name}-source", number + 1, topic, b"%d" % number)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group}, logger=LOG)
    (found,) = consumer.committed([TopicPartition(f"{topic_name}-source", 0)], PATIENCE_S)
    consumer.close()
    assert found.offset == 3
    assert READERS[writer](servers, topic, committed=True) == [b"0", b"1", b"2"]


@WRITERS
def test_a_producer_is_fenced_by_another_with_its_transactional_id(
    broker: RunningBroker, topic: str, topic_name: str, writer: str, complaints: list[str]
) -> None:
    complaints += ["[Ff]enced", "epoch", "fatal", "FATAL", "Unknown error", "ProducerBatch", "transaction"]
    servers, transactional_id = broker.bootstrap_servers, f"tx-{topic_name}"
    with LIBRARIES[writer](servers, transactional_id) as older:
        older.transaction(topic, [b"older"], commit=True)
        with LIBRARIES["confluent-kafka"](servers, transactional_id) as newer:
            newer.transaction(topic, [b"newer"], commit=True)
            with pytest.raises(Exception, match="(?i)fenced|epoch|PRODUCER_FENCED"):
                older.transaction(topic, [b"late"], commit=True)
    assert READERS[writer](servers, topic, committed=True) == [b"older", b"newer"]
