"""Topics made, grown, described and deleted by each library's admin client."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.clients.interface import Client, Record
from tests.running import RunningBroker


def test_a_topic_is_usable_once_created_and_gone_once_deleted(
    broker: RunningBroker, topic_name: str, client: Client
) -> None:
    servers = broker.bootstrap_servers
    with client.admin(servers) as admin:
        admin.create_topic(topic_name, 3, {"max.message.bytes": "5000"})
        assert topic_name in admin.topics()
        with client.producer(servers) as producer:
            assert [producer.send(topic_name, [Record(b"k", b"v")], partition) for partition in range(3)] == [[0]] * 3
        admin.delete_topic(topic_name)
        assert topic_name not in admin.topics()
        assert not list((broker.directory / "data").glob(f"{topic_name}-?"))


def test_an_existing_topic_cannot_be_created(broker: RunningBroker, topic: str, client: Client) -> None:
    with client.admin(broker.bootstrap_servers) as admin:
        with pytest.raises(Exception) as caught:
            admin.create_topic(topic, 1, {})
        assert client.error_code(caught.value) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_unknown_topic_cannot_be_deleted(broker: RunningBroker, topic_name: str, client: Client) -> None:
    with client.admin(broker.bootstrap_servers) as admin:
        with pytest.raises(Exception) as caught:
            admin.delete_topic(topic_name)
        assert client.error_code(caught.value) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_recreated_topic_is_empty(broker: RunningBroker, topic: str, client: Client) -> None:
    servers = broker.bootstrap_servers
    with client.producer(servers) as producer:
        producer.send(topic, [Record(b"k", b"old")])
    with client.admin(servers) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 1, {})
    with client.producer(servers) as producer:
        assert producer.send(topic, [Record(b"k", b"new")]) == [0]
    with client.consumer(servers, topic) as consumer:
        assert [read.record.value for read in consumer.read(1)] == [b"new"]


def test_new_partitions_are_usable_immediately(broker: RunningBroker, topic: str, client: Client) -> None:
    servers = broker.bootstrap_servers
    with client.admin(servers) as admin:
        admin.add_partitions(topic, 4)
        with pytest.raises(Exception) as caught:
            admin.add_partitions(topic, 2)
        assert client.error_code(caught.value) == ErrorCode.INVALID_PARTITIONS
    with client.producer(servers) as producer:
        assert producer.send(topic, [Record(b"k", b"v")], 3) == [0]
    with client.consumer(servers, topic, [3]) as consumer:
        assert [read.partition for read in consumer.read(1)] == [3]


def test_configs_are_described(broker: RunningBroker, topic_name: str, client: Client) -> None:
    with client.admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic_name, 1, {"segment.ms": "60000", "cleanup.policy": "compact"})
        config = admin.config(topic_name)
    assert (config["segment.ms"], config["cleanup.policy"], config["max.message.bytes"]) == (
        "60000",
        "compact",
        "1048588",
    )


@pytest.mark.parametrize(
    ("name", "configs", "code"),
    [
        ("not a name", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", {"no.such.config": "1"}, ErrorCode.INVALID_CONFIG),
        ("", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_topics_are_rejected_by_error_code(
    broker: RunningBroker, topic_name: str, client: Client, name: str, configs: dict[str, str], code: ErrorCode
) -> None:
    with client.admin(broker.bootstrap_servers) as admin:
        with pytest.raises(Exception) as caught:
            admin.create_topic(name or topic_name, 1, configs)
        assert client.error_code(caught.value) == code
