"""The proxy's own login is renewed before the session ends, between two requests of the client."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.apis import ApiKey, request_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import RequestHeader, request_header_version
from minibroker.protocol.messages.cluster import ApiVersionsResponse, DescribeClusterRequest
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from minibroker.proxy.proxy import Proxy
from minibroker.testing import Broker
from tests.proxy.upstreams import PATIENCE_S, answer, client_of, exactly, request, to_the_end

pytestmark = pytest.mark.usefixtures("leaves_sockets")

SESSION_MS = 60_000
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "wonderland",
}
UNKNOWN_API = 500


def test_a_client_keeps_its_connection_beyond_the_session_expiry() -> None:
    settings = {"connections.max.reauth.ms": str(SESSION_MS)}
    with (
        Broker(security="SASL_PLAINTEXT", users={"alice": "wonderland"}, settings=settings) as broker,
        Proxy(broker.bootstrap_servers, upstream_config=broker.client_config("confluent", user="alice")) as proxy,
        Client(ClientSettings({"bootstrap.servers": proxy.bootstrap_servers})) as client,
    ):
        proxy.journal.on()
        broker.journal.on()
        client.request(DescribeClusterRequest())
        logins = len(broker.journal.requests("SaslAuthenticate"))
        broker.clock.advance("50 s")
        pass_time(proxy, 52_000)
        broker.wait_for_requests("SaslAuthenticate", logins + len(proxy.ports), timeout=PATIENCE_S)
        broker.clock.advance("50 s")
        client.request(DescribeClusterRequest())
        first, *_, last = proxy.journal.requests("DescribeCluster")
        assert first.connection == last.connection
        assert not proxy.journal.requests("SaslAuthenticate")


def pass_time(proxy: Proxy, by_ms: float) -> None:
    proxy.on_loop(lambda: proxy.moving_clock.jump(by_ms))
    proxy.on_loop(lambda: None)  # behind the task that was woken


class Node:
    """A node that asks for a login, and whose answers are those of the test."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def frame(self) -> bytes:
        """The next request."""
        (size,) = struct.unpack(">i", exactly(self.connection, 4))
        return exactly(self.connection, size)

    def next_is(self, key: ApiKey, response: Message) -> None:
        """Answer the next request, which is one of this API."""
        frame = self.frame()
        header, _ = RequestHeader.decode_from(frame, request_header_version(key, struct.unpack_from(">h", frame, 2)[0]))
        assert header.request_api_key == key
        version = header.request_api_version
        tags = b"\0" if version in request_class(key).flexible and key != ApiKey.API_VERSIONS else b""
        self.connection.sendall(answer(header.correlation_id, tags + response.encode(version)))

    def log_in(self, error_code: int = 0) -> None:
        """Answer a whole login."""
        self.begin_login()
        self.end_login(error_code)

    def begin_login(self) -> None:
        self.next_is(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(mechanisms=["PLAIN"]))

    def end_login(self, error_code: int = 0) -> None:
        response = SaslAuthenticateResponse(session_lifetime_ms=SESSION_MS, error_code=error_code)
        self.next_is(ApiKey.SASL_AUTHENTICATE, response)


@contextmanager
def logged_in() -> Iterator[tuple[Proxy, socket.socket, Node]]:
    """A proxy that has logged in for its client, and both ends."""
    versions = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=request_class(key).versions[-1])
        for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        upstream = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            Proxy(upstream, upstream_config=LOGIN) as proxy,
            client_of(proxy) as client,
            server.accept()[0] as connection,
        ):
            connection.settimeout(PATIENCE_S)
            node = Node(connection)
            node.next_is(ApiKey.API_VERSIONS, ApiVersionsResponse(api_keys=versions))
            node.log_in()
            client.sendall(question := request(UNKNOWN_API, 0))
            assert node.frame() == question[4:]
            node.connection.sendall(answer(1))
            assert exactly(client, 8) == answer(1)
            yield proxy, client, node


def test_requests_wait_for_the_login_and_responses_do_not() -> None:
    first, second = request(UNKNOWN_API, 0, 1, b"first"), request(UNKNOWN_API, 0, 2, b"second")
    with logged_in() as (proxy, client, node):
        for _ in range(2):
            client.sendall(first)
            assert node.frame() == first[4:]
            pass_time(proxy, SESSION_MS)
            client.sendall(second)
            node.connection.sendall(answer(1, b"one"))
            assert exactly(client, 11) == answer(1, b"one")
            node.log_in()
            assert node.frame() == second[4:]
            node.connection.sendall(answer(2, b"two"))
            assert exactly(client, 11) == answer(2, b"two")


def test_a_request_forwarded_in_pieces_is_not_interrupted() -> None:
    large, small = request(UNKNOWN_API, 0, 1, bytes(100_000)), request(UNKNOWN_API, 0, 2)
    with logged_in() as (proxy, client, node):
        client.sendall(large[:50_000])
        assert exactly(node.connection, 50_000) == large[:50_000]
        pass_time(proxy, SESSION_MS)
        client.sendall(large[50_000:] + small)
        assert exactly(node.connection, len(large) - 50_000) == large[50_000:]
        node.connection.sendall(answer(1))
        node.log_in()
        assert node.frame() == small[4:]


def test_a_request_held_by_a_fault_follows_the_login() -> None:
    held = request(ApiKey.HEARTBEAT, 0, 1, struct.pack(">hih", 0, 0, 0))
    with logged_in() as (proxy, client, node):
        fault = proxy.faults.add(api="Heartbeat", delay="90 s", once=True)
        client.sendall(held)
        fault.wait_for_hits(1, timeout=PATIENCE_S)
        pass_time(proxy, SESSION_MS)
        node.begin_login()
        pass_time(proxy, SESSION_MS)
        node.end_login()
        assert node.frame() == held[4:]
        client.shutdown(socket.SHUT_WR)
        assert to_the_end(node.connection) == b""


def test_a_client_is_disconnected_if_the_new_login_fails(caplog: pytest.LogCaptureFixture) -> None:
    with logged_in() as (proxy, client, node):
        pass_time(proxy, SESSION_MS)
        node.log_in(error_code=58)
        assert to_the_end(client) == b""
    assert "cannot log in again" in caplog.text and "SASL_AUTHENTICATION_FAILED" in caplog.text
