"""Listeners that change while a broker runs, and limits of connections that a listener has of its own.

Every literal is what Apache Kafka 4.4 does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from conformance.conftest import Broker
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id, create_request, repeated, topic
from conformance.wire.test_configs import BROKER, DELETE, DONE, SET, alter, describe, values
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest, DescribeClusterRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.clients.ports import free_ports

LISTENERS, PROTOCOLS = "listeners", "listener.security.protocol.map"
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


class Listening:
    """The listeners of the broker as it was started; `port` is a free one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.here = str(broker_id(connection))
        found = values(describe(connection, BROKER, self.here, [LISTENERS, PROTOCOLS]))
        self.listeners, self.protocols = (str(found[name][0]) for name in (LISTENERS, PROTOCOLS))
        self.port = free_ports(1)

    def change(self, *listeners: str, validate_only: bool = True) -> list[tuple[ErrorCode, str]]:
        """Set the listeners, and protocols of X and Y."""
        changes = [(LISTENERS, SET, ",".join(listeners)), (PROTOCOLS, SET, f"{self.protocols},X:PLAINTEXT,Y:PLAINTEXT")]
        return alter(self.connection, (BROKER, self.here, changes), validate_only=validate_only)


@pytest.fixture
def listening(connection: Connection) -> Listening:
    return Listening(connection)


def test_listeners_can_change_at_run_time(listening: Listening) -> None:
    (found,) = describe(listening.connection, BROKER, listening.here, [LISTENERS]).configs
    assert not found.read_only
    assert listening.change(listening.listeners) == DONE
    assert listening.change(f"{listening.listeners},X://127.0.0.1:{listening.port}") == DONE
    assert listening.change(f"{listening.listeners},x://127.0.0.1:0") == DONE
    moved = listening.listeners.replace(listening.listeners.split(",")[0].rpartition(":")[2], str(listening.port))
    assert listening.change(moved) == DONE
    removed = alter(listening.connection, (BROKER, listening.here, [(LISTENERS, DELETE, None)]), validate_only=True)
    assert removed == DONE


def test_invalid_listeners_are_rejected(listening: Listening) -> None:
    present, port = listening.listeners, listening.port
    for texts, message in (
        ([present, f"Z://127.0.0.1:{port}"], "Z"),
        ([""], "listeners"),
        (["nope"], "nope"),
        ([present, f"X://127.0.0.1:{port}", f"X://127.0.0.1:{port}"], "duplicate"),
        ([present, f"X://127.0.0.1:{port}", f"Y://127.0.0.1:{port}"], "port"),
        ([present.replace("PLAINTEXT://127.0.0.1", "PLAINTEXT://0.0.0.0")], "0.0.0.0"),
    ):
        ((code, words),) = listening.change(*texts)
        assert code == INVALID_REQUEST and message in words, texts
    ((code, words),) = alter(listening.connection, (BROKER, "", [(LISTENERS, SET, present)]), validate_only=True)
    message = "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"
    assert (code, words) == (INVALID_REQUEST, message)


@contextmanager
def opened(port: int) -> Iterator[Connection]:
    def connect() -> Connection | None:
        try:
            return Connection(f"127.0.0.1:{port}")
        except ConnectionRefusedError:
            return None

    found = repeated(connect, lambda made: made is not None)
    assert found is not None
    with found:
        yield found


@pytest.fixture
def own(start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path) -> Iterator[Listening]:
    """Of a broker of the test's own, as the listener of a broker that is added here cannot be removed."""
    with start_broker(tmp_path) as running, Connection(running.bootstrap_servers) as client:
        yield Listening(client)


def test_an_added_listener_is_open_but_not_advertised(own: Listening) -> None:
    listening, name = own, "t"
    assert listening.connection.ask(create_request(topic(name)), 7).topics[0].error_code == 0
    added = f"{listening.listeners},X://127.0.0.1:{listening.port}"
    assert listening.change(added, validate_only=False) == DONE
    with opened(listening.port) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        topics = [MetadataRequest.MetadataRequestTopic(name=name)]
        metadata = client.ask(MetadataRequest(topics=topics), 9)
        (partition,) = metadata.topics[0].partitions
        assert metadata.brokers == [] and metadata.controller_id == int(listening.here)
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)
        assert client.ask(DescribeClusterRequest(), 1).brokers == []
        coordinator = client.ask(FindCoordinatorRequest(key="x"), 3)
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(listening.connection.ask(MetadataRequest(topics=[]), 9).brokers) == 1
        ((code, words),) = listening.change(listening.listeners)
        assert code == INVALID_REQUEST and "Advertised listeners" in words


LIMITS = ("max.connections", "max.connection.creation.rate")


@pytest.mark.parametrize("limit", LIMITS)
def test_invalid_connection_limits_of_a_listener_are_rejected(listening: Listening, limit: str) -> None:
    for prefix in ("listener.name.plaintext.", ""):
        for resource in (listening.here, ""):
            for value, message in (
                ("0", f"Invalid {limit} 0"),
                ("-1", f"{limit}: Value must be at least 0"),
                ("x", f"{limit}: Not a number of type INT"),
            ):
                change = [(f"{prefix}{limit}", SET, value)]
                ((code, words),) = alter(listening.connection, (BROKER, resource, change), validate_only=True)
                assert code == INVALID_REQUEST and message in words, (prefix, resource, value)
    of_none = [(f"listener.name.nowhere.{limit}", SET, "0")]
    assert alter(listening.connection, (BROKER, listening.here, of_none), validate_only=True) == DONE


def test_a_listener_admits_at_most_its_maximum_number_of_connections(listening: Listening, broker: Broker) -> None:
    limit = "listener.name.plaintext.max.connections"

    def waits() -> bool:
        with Connection(broker.bootstrap_servers) as late:
            late.send(ApiVersionsRequest(), 0)
            late._socket.settimeout(0.3)
            try:
                return not late._socket.recv(1)
            except TimeoutError:
                return True

    with Connection(broker.bootstrap_servers) as first:
        assert first.ask(ApiVersionsRequest(), 0).error_code == 0
        assert alter(listening.connection, (BROKER, listening.here, [(limit, SET, "1")])) == DONE
        try:
            assert repeated(waits, bool)
        finally:
            assert alter(listening.connection, (BROKER, listening.here, [(limit, DELETE, None)])) == DONE
        assert not repeated(waits, lambda waited: not waited)
