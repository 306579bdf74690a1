"""Several nodes and several listeners: who leads what, and the addresses that clients get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import LOG, Confluent
from tests.clients.interface import PATIENCE_S, Client, Record
from tests.clients.ports import free_ports
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Three nodes in one process."""
    with running_broker(tmp_path_factory.mktemp("cluster"), nodes=3) as running:
        yield running


def addresses(servers: str) -> dict[int, str]:
    """Return the cluster's nodes by id, as a client sees them that bootstraps from `servers`."""
    admin = AdminClient({"bootstrap.servers": servers}, logger=LOG)
    return {node.id: f"{node.host}:{node.port}" for node in admin.list_topics(timeout=PATIENCE_S).brokers.values()}


def test_every_node_returns_all_nodes(cluster: RunningBroker) -> None:
    announced = cluster.bootstrap_servers.split(",")
    for server in announced:
        assert sorted(addresses(server).values()) == sorted(announced)


def test_leaders_are_spread_over_nodes_and_every_client_finds_them(
    cluster: RunningBroker, topic_name: str, client: Client
) -> None:
    one = cluster.bootstrap_servers.split(",")[0]
    with client.admin(one) as admin:
        admin.create_topic(topic_name, 6, {})
    described = AdminClient({"bootstrap.servers": one}, logger=LOG).list_topics(topic_name, timeout=PATIENCE_S)
    leaders = Counter(partition.leader for partition in described.topics[topic_name].partitions.values())
    assert sorted(leaders.values()) == [2, 2, 2]

    with client.producer(one) as producer:
        for partition in range(6):
            records = [Record(b"k", b"%d of %d" % (index, partition)) for index in range(2)]
            assert producer.send(topic_name, records, partition) == [0, 1]
    with client.consumer(one, topic_name, range(6)) as consumer:
        found = sorted((read.partition, read.offset, read.record.value) for read in consumer.read(12))
    assert found == [(partition, index, b"%d of %d" % (index, partition)) for partition in range(6) for index in (0, 1)]


def test_ports_of_additional_nodes_are_consecutive(tmp_path: Path) -> None:
    first = free_ports(3)
    with running_broker(tmp_path, f"listeners=PLAINTEXT://127.0.0.1:{first}", nodes=3) as running:
        told = addresses(f"127.0.0.1:{first}")
        assert running.bootstrap_servers == ",".join(told.values())
    assert told == {1 + index: f"127.0.0.1:{first + index}" for index in range(3)}


def test_each_listener_returns_its_own_advertised_address(tmp_path: Path, client: Client) -> None:
    inside, outside = free_ports(), free_ports()
    settings = (
        f"listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
        f"advertised.listeners=INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name=INSIDE",
    )
    with running_broker(tmp_path, *settings) as running:
        assert running.bootstrap_servers == f"127.0.0.1:{inside},localhost:{outside}"
        with Confluent().admin(running.bootstrap_servers) as admin:
            admin.create_topic("t", 1, {})
        for index, (server, told) in enumerate(
            ((f"127.0.0.1:{inside}", f"127.0.0.1:{inside}"), (f"127.0.0.1:{outside}", f"localhost:{outside}"))
        ):
            assert list(addresses(server).values()) == [told]
            with client.producer(server) as producer:
                assert producer.send("t", [Record(b"k", b"v")]) == [index]
            with client.consumer(server, "t") as consumer:
                assert len(consumer.read(index + 1)) == index + 1
