"""The client against a running broker: where things are, requests to a node, and what is said when that fails."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.client import cluster_client
from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from tests.running import RunningBroker, running_broker

HOUR_MS = 3_600_000
IMPATIENT = {"request.timeout.ms": "400", "default.api.timeout.ms": "800"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Two nodes with the topics `apples` (2 partitions) and `pears` (1)."""
    with running_broker(tmp_path_factory.mktemp("broker"), nodes=2) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic("apples", 2, 1), NewTopic("pears", 1, 1)]).values():
            created.result()
        yield broker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


def test_partitions_of_named_topics_or_of_all_topics_are_listed(client: Client) -> None:
    apples = [TopicPartition("apples", 0), TopicPartition("apples", 1)]
    assert client.list_partitions(["apples"]) == apples
    assert client.list_partitions() == [*apples, TopicPartition("pears", 0)]


def test_internal_topics_are_found_only_by_name(client: Client) -> None:
    client.find_coordinator("group", "a-group")
    assert "__consumer_offsets" not in {partition.topic for partition in client.list_partitions()}
    assert client.list_partitions(["__consumer_offsets"])


def test_an_unknown_topic_is_reported_and_not_created(client: Client) -> None:
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:\d+.*: topic plums does not exist"):
        client.list_partitions(["plums"])
    assert "plums" not in {partition.topic for partition in client.list_partitions()}


def test_each_partition_has_a_leader_among_the_nodes(client: Client) -> None:
    leaders = {client.find_leader(partition).node_id for partition in client.list_partitions(["apples"])}
    assert leaders == {1, 2}
    with pytest.raises(ClientError, match="apples-7 does not exist"):
        client.find_leader(TopicPartition("apples", 7))


def test_groups_and_transactions_have_a_coordinator(client: Client) -> None:
    assert client.find_coordinator("group", "a-group") in (1, 2)
    assert client.find_coordinator("transaction", "an-id") in (1, 2)


def test_a_request_reaches_the_node_that_it_names(client: Client) -> None:
    for partition in client.list_partitions(["apples"]):
        node_id = client.find_leader(partition).node_id
        assert client.request(DescribeClusterRequest(), node_id).brokers
        assert client.address(node_id) in client.bootstrap_servers


def test_an_unreachable_broker_is_reported_in_one_line() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(address, IMPATIENT) as client, pytest.raises(ClientError) as failure:
            client.list_partitions()
    assert str(failure.value) == f"{address}: Metadata: no connection: Connection refused"


def test_retries_end_at_their_timeout_whatever_the_request_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_client, "LEAST_ATTEMPT_MS", 200)
    patient = {"request.timeout.ms": str(HOUR_MS), "default.api.timeout.ms": "400"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(address, patient) as client, pytest.raises(ClientError, match="no connection"):
            client.list_partitions()
        taken.listen()  # connections are made, and nobody answers
        with Client(address, patient) as client, pytest.raises(ClientError, match=r"no answer in 0\.[0-9]+ s"):
            client.list_partitions()


def test_a_short_retry_timeout_allows_one_attempt(broker: RunningBroker) -> None:
    with Client(broker.bootstrap_servers, {"default.api.timeout.ms": "1"}) as client:
        assert client.list_partitions(["pears"]) == [TopicPartition("pears", 0)]


def test_one_reachable_bootstrap_server_is_enough(broker: RunningBroker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(f"{dead},{broker.bootstrap_servers}", {"request.timeout.ms": "5000"}) as client:
            assert client.list_partitions(["pears"]) == [TopicPartition("pears", 0)]


def test_a_broken_connection_is_reopened(client: Client, tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        broker.command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
        with Client(broker.bootstrap_servers) as client:
            assert client.list_partitions() == []
            broker.restart()
            assert client.list_partitions() == []


def test_an_unknown_option_is_rejected_by_name() -> None:
    with pytest.raises(OptionError, match=r"kafka\.fetch\.more is not known"):
        Client("127.0.0.1:9092", {"fetch.more": "1"})
    with pytest.raises(OptionError, match=r"kafka\.request\.timeout\.ms must be a whole number, not 'soon'"):
        Client("127.0.0.1:9092", {"request.timeout.ms": "soon"})
