"""Listeners that are added and removed while a broker runs."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack

import pytest

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE
from minibroker.testing import Broker
from tests.certificates import Authority, inline
from tests.clients.ports import free_ports

FIRST = "A://127.0.0.1:0"
PROTOCOLS = "A:PLAINTEXT,X:PLAINTEXT,TLS:SSL"
ASKED = bytes.fromhex("00000011 0012 0000 00000007 0007 636865636b6572")  # ApiVersions 0 of "checker"
PATIENCE_S = 5


def change(broker: Broker, node: int = 1, **settings: str) -> int:
    """Change settings of a broker, which have underscores for dots, and return the error code."""
    shape = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        shape.AlterableConfig(name=name.replace("_", "."), config_operation=0 if value else 1, value=value or None)
        for name, value in settings.items()
    ]
    resource = shape(resource_type=4, resource_name=str(node), configs=configs)
    with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers})) as client:
        client.fetch_metadata()
        answer = client.request(IncrementalAlterConfigsRequest(resources=[resource]), node)
    code: int = answer.responses[0].error_code
    return code


def answers(port: int, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a broker answers on this port."""
    try:
        with ExitStack() as stack:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            if context is not None:
                client = stack.enter_context(context.wrap_socket(client, server_hostname="localhost"))
            client.sendall(ASKED)
            return len(client.recv(4)) > 0
    except OSError:
        return False


@pytest.fixture
def port() -> int:
    return free_ports(1)


def test_an_added_listener_survives_a_restart_but_not_a_reset(port: int) -> None:
    with Broker({"listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}) as broker:
        assert change(broker, listeners=f"{FIRST},X://127.0.0.1:{port}") == ErrorCode.NONE
        assert answers(port)
        broker.restart()
        assert answers(port)
        broker.reset()
        assert not answers(port)


def test_a_listener_that_is_not_advertised_can_be_removed(port: int) -> None:
    names = {"listeners": FIRST, "advertised.listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}
    with Broker(names) as broker:
        assert change(broker, listeners=f"{FIRST},X://127.0.0.1:{port}") == ErrorCode.NONE
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            client.sendall(ASKED)
            assert client.recv(1000)
            assert change(broker, listeners=f"X://127.0.0.1:{port}") == ErrorCode.INVALID_REQUEST
            assert change(broker, listeners="") == ErrorCode.NONE
            assert client.recv(1000) == b""
        assert not answers(port)
        assert change(broker, listeners=f"{FIRST},X://127.0.0.1:{port}") == ErrorCode.NONE
        assert answers(port)


def test_a_listener_that_is_removed_at_once_is_not_opened(port: int) -> None:
    with Broker(
        {"listeners": FIRST, "advertised.listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}
    ) as broker:
        added = f"{FIRST},X://127.0.0.1:{port}"

        def change_twice() -> None:
            for listeners in (added, FIRST, added, FIRST):
                broker.running.cluster.controller.change_config(BROKER_RESOURCE, "1", {"listeners": listeners})

        broker.call_on_loop(change_twice)
        assert not answers(port)
        assert change(broker, listeners=added) == ErrorCode.NONE
        assert answers(port)
        assert change(broker, listeners="") == ErrorCode.NONE
        assert not answers(port)


def test_an_added_listener_uses_its_own_tls_keys(port: int, complaints: list[str]) -> None:
    complaints += ["listeners has no TLS", "it does not speak TLS"]
    authority = Authority()
    keys = {f"listener.name.tls.{name}": text for name, text in inline(authority, authority.sign()).items()}
    names = {"listeners": FIRST, "advertised.listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}
    with Broker(names | keys) as broker:
        assert change(broker, listeners=f"{FIRST},TLS://127.0.0.1:{port}") == ErrorCode.NONE
        context = ssl.create_default_context(cadata=authority.pem)
        assert answers(port, context) and not answers(port)
        assert change(broker, listeners="") == ErrorCode.NONE
        assert not answers(port, context)


def test_each_node_has_its_own_listeners(port: int) -> None:
    with Broker({"listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}, nodes=2) as broker:
        assert change(broker, 2, listeners=f"{FIRST},X://127.0.0.1:{port}") == ErrorCode.NONE
        assert answers(port)
        broker.stop_node(2)
        assert not answers(port)
        broker.start_node(2)
        assert answers(port)


def test_a_listener_whose_port_is_taken_is_not_opened(
    port: int, complaints: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    complaints.append("node 1 does not open the listener X")
    with Broker({"listeners": FIRST, "listener.security.protocol.map": PROTOCOLS}) as broker:
        with socket.create_server(("127.0.0.1", port)):
            assert change(broker, listeners=f"{FIRST},X://127.0.0.1:{port}") == ErrorCode.NONE
        assert f"node 1 does not open the listener X: cannot listen on 127.0.0.1:{port}" in caplog.text
        assert not answers(port)
        assert change(broker, log_retention_ms="1000") == ErrorCode.NONE
        assert answers(port), "the next change tries again"
