"""Both clients against running brokers, and against nodes that answer as a test says: where requests go, what is tried
again, and what is said when it fails.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.client.asynchronous import AsyncClient
from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, ErrorReaction, choose_error_reaction
from minibroker.client.connection_settings import ClientSettings
from minibroker.client.partition_offsets import LATEST, list_offsets
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from minibroker.protocol.messages.groups import FindCoordinatorResponse, ListGroupsRequest, ListGroupsResponse
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.testing.broker import Broker
from tests.cases import for_each
from tests.client.scripted import VERSIONS, Script, ScriptedNodes, scripted
from tests.running import RunningBroker, running_broker

IMPATIENT = {"request.timeout.ms": "300", "default.api.timeout.ms": "600"}
HUGE = (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Two nodes with the topic `apples` of 4 partitions."""
    with running_broker(tmp_path_factory.mktemp("broker"), nodes=2) as broker:
        with Client(settings(broker.bootstrap_servers)) as client:
            topic = CreateTopicsRequest.CreatableTopic(name="apples", num_partitions=4, replication_factor=-1)
            client.check(client.request(CreateTopicsRequest(topics=[topic])).topics[0].error_code, "creating apples")
        yield broker


def settings(servers: str, **given: str) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": servers, **{name.replace("_", "."): given[name] for name in given}})


def free_address() -> str:
    """Return an address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_leaders_and_coordinators_are_found_and_queried(broker: RunningBroker) -> None:
    with Client(settings(broker.bootstrap_servers)) as client:
        assert client.fetch_node_ids() == [1, 2]
        assert {client.find_leader(("apples", each)).node_id for each in range(4)} == {1, 2}
        for kind in ("group", "transaction"):
            node = client.find_coordinator(kind, "me")
            assert client.request(DescribeClusterRequest(), node).error_code == 0
        with pytest.raises(ClientError, match=r"127\.0\.0\.1:\d+.*: apples-4 does not exist"):
            client.find_leader(("apples", 4))


async def test_many_tasks_share_one_connection(broker: RunningBroker) -> None:
    async with AsyncClient(settings(broker.bootstrap_servers)) as client:
        assert await client.fetch_node_ids() == [1, 2]
        leaders = await asyncio.gather(*(client.find_leader(("apples", each)) for each in range(4)))
        answers = await asyncio.gather(*(client.request(DescribeClusterRequest(), 2) for _ in range(50)))
    assert {each.node_id for each in leaders} == {1, 2} and all(len(each.brokers) == 2 for each in answers)


async def test_a_cancelled_task_takes_no_response_of_another_task(broker: RunningBroker) -> None:
    async with AsyncClient(settings(broker.bootstrap_servers)) as client:
        await client.fetch_node_ids()
        given_up = asyncio.create_task(client.request(DescribeClusterRequest(), 1))
        kept = asyncio.create_task(client.request(MetadataRequest(topics=[]), 1))
        await asyncio.sleep(0)
        given_up.cancel()
        assert (await kept).brokers
        assert given_up.cancelled()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_one_reachable_bootstrap_server_is_enough(broker: RunningBroker, asynchronous: bool) -> None:
    servers = f"{free_address()}, {broker.bootstrap_servers}"
    assert nodes_by(settings(servers), asynchronous) == [1, 2]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_an_unreachable_broker_is_reported_in_one_line(asynchronous: bool) -> None:
    address = free_address()
    with pytest.raises(ClientError) as failure:
        nodes_by(ClientSettings({"bootstrap.servers": address, **IMPATIENT}), asynchronous)
    assert str(failure.value).startswith(f"{address}: Metadata: no connection: ")
    assert failure.value.is_retriable and "\n" not in str(failure.value)


@for_each("asynchronous", [False, True])
@for_each(
    ("answer", "message"),
    [
        HUGE,
        (b"\x00\x00\x00\x0a\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00", "an answer to request 99, not to 0"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x00", "the answer is malformed"),
        (b"\x00\x00", "no connection: the broker closed the connection on ApiVersions"),
        (b"", "no connection: "),
    ],
)
def test_a_hostile_broker_is_reported_in_one_line(answer: bytes, message: str, asynchronous: bool) -> None:
    with saying(answer) as address, pytest.raises(ClientError, match=message) as failure:
        nodes_by(ClientSettings({"bootstrap.servers": address, **IMPATIENT}), asynchronous)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_an_invalid_host_is_reported_in_one_line(asynchronous: bool) -> None:
    with pytest.raises(ClientError, match="a..b:9092: Metadata: no connection: ") as failure:
        nodes_by(ClientSettings({"bootstrap.servers": "a..b:9092", **IMPATIENT}), asynchronous)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_a_silent_broker_causes_a_timeout(asynchronous: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        short = {"socket.connection.setup.timeout.ms": "100", "default.api.timeout.ms": "1", "request.timeout.ms": "1"}
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClientError, match="Metadata: no answer in "):
            nodes_by(ClientSettings({"bootstrap.servers": where, **short}), asynchronous)


def test_the_reaction_to_each_error_code_is_that_of_javas_client() -> None:
    assert choose_error_reaction(ErrorCode.NOT_LEADER_OR_FOLLOWER) is ErrorReaction.FIND_LEADER
    assert choose_error_reaction(ErrorCode.NOT_COORDINATOR) is ErrorReaction.FIND_COORDINATOR
    assert choose_error_reaction(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is ErrorReaction.RETRY
    assert (
        choose_error_reaction(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        is choose_error_reaction(4711)
        is ErrorReaction.FATAL
    )


def test_a_moved_coordinator_is_looked_up_again() -> None:
    """The first answer names node 1, which refuses; the second one names node 2."""
    found = iter([1, 2])
    asked = []

    def list_groups(request: Any) -> Message:
        asked.append(request)
        return ListGroupsResponse(error_code=ErrorCode.NOT_COORDINATOR if len(asked) == 1 else ErrorCode.NONE)

    script = Script(
        versions={**VERSIONS, ApiKey.FIND_COORDINATOR: 3, ApiKey.LIST_GROUPS: 4},
        others={
            ApiKey.FIND_COORDINATOR: lambda request: FindCoordinatorResponse(node_id=next(found)),
            ApiKey.LIST_GROUPS: list_groups,
        },
    )
    with scripted(script, nodes=2) as nodes, Client(settings(nodes.bootstrap_servers)) as client:

        def ask() -> int:
            node = client.find_coordinator("group", "g")
            client.check(client.request(ListGroupsRequest(), node).error_code, "listing groups", node)
            return node

        assert client.retry(ask) == 2
    assert len(asked) == 2


def test_a_permanent_error_is_raised_with_its_name() -> None:
    script = Script(exists=True, leader=-1)
    with (
        scripted(script) as nodes,
        Client(ClientSettings({"bootstrap.servers": nodes.bootstrap_servers, **IMPATIENT})) as client,
    ):
        with pytest.raises(ClientError, match="t-0 has no leader") as failure:
            client.find_leader(("t", 0))
        assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asyncio"])
def test_an_idle_connection_that_was_closed_is_reopened(asynchronous: bool) -> None:
    async def ask_twice(nodes: ScriptedNodes) -> None:
        async with AsyncClient(settings(nodes.bootstrap_servers)) as client:
            await client.request(MetadataRequest(topics=[]))
            nodes.hang_up()
            await asyncio.sleep(0.05)
            await client.request(MetadataRequest(topics=[]))

    with scripted(Script()) as nodes:
        if asynchronous:
            return asyncio.run(ask_twice(nodes))
        with Client(settings(nodes.bootstrap_servers)) as client:
            client.request(MetadataRequest(topics=[]))
            nodes.hang_up()
            client.request(MetadataRequest(topics=[]))


@pytest.mark.parametrize("release", ["0.10.2", "1.1", "2.4", "3.9"])
def test_the_client_supports_old_brokers(release: str) -> None:
    with Broker(emulate=release) as old, Client(settings(old.bootstrap_servers)) as client:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        client.check(client.request(CreateTopicsRequest(topics=[topic])).topics[0].error_code, "creating t")
        assert list_offsets(client, {("t", 0): LATEST}) == {("t", 0): 0}
        assert client.find_coordinator("group", "g") == 1


def test_a_client_reauthenticates_when_its_session_expires() -> None:
    """The broker lets the client in for one millisecond at a time (KIP-368)."""
    greeted = []

    def authenticate(request: Any) -> Message:
        greeted.append(bytes(request.auth_bytes))
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=1)

    script = Script(
        others={
            ApiKey.SASL_HANDSHAKE: lambda request: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            ApiKey.SASL_AUTHENTICATE: authenticate,
        }
    )
    user = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
    with scripted(script) as nodes:
        given = {"bootstrap.servers": nodes.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", **user}
        with Client(ClientSettings(given)) as client:
            client.fetch_metadata()
            threading.Event().wait(0.01)
            client.fetch_metadata()
    assert greeted == [b"\0alice\0secret"] * 2


def nodes_by(given: ClientSettings, asynchronous: bool) -> list[int]:
    """Return the cluster's nodes, by either client."""

    async def ask() -> list[int]:
        async with AsyncClient(given) as client:
            return await client.fetch_node_ids()

    if asynchronous:
        return asyncio.run(ask())
    with Client(given) as client:
        return client.fetch_node_ids()


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """A broker that answers all that it is sent with the same bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
