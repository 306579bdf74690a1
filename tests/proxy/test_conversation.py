"""What passes a proxy is what was sent, byte for byte and in both directions; it ends as it would without the proxy."""

from __future__ import annotations

import random
import socket
import struct
import threading

import pytest

from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.metadata import MetadataResponse
from minibroker.proxy.proxy import Proxy
from tests.cases import for_each
from tests.proxy.upstreams import PATIENCE_S, answer, client_of, connected, exactly, request, to_the_end

UNKNOWN_API, UNKNOWN_VERSION = 999, 99
PRODUCE, METADATA, SASL_HANDSHAKE = 0, 3, 17


@pytest.mark.parametrize("has_journal", [False, True], ids=["plain", "journal"])
def test_unknown_apis_and_versions_are_forwarded_with_their_responses(has_journal: bool) -> None:
    with connected() as (proxy, client, node):
        if has_journal:
            proxy.journal.on()
        asked = [request(UNKNOWN_API, 3, 7, b"what?"), request(METADATA, UNKNOWN_VERSION, 8, b"who?" * 50_000)]
        answered = [answer(7, b"that"), answer(8, b"they" * 50_000)]
        for question, said in zip(asked, answered, strict=True):
            client.sendall(question)
            assert exactly(node, len(question)) == question
            node.sendall(said)
            assert exactly(client, len(said)) == said
        if has_journal:
            first, second = proxy.journal.requests()
            assert (first.api, first.request, first.answer, first.outcome) == ("API 999", None, None, "answered")
            assert first.request_bytes == asked[0][4:] and second.answer_bytes == answered[1][4:]
            assert str(first).startswith("#1 127.0.0.1:") and second.as_json()["api"] == "Metadata"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\0\0\0\3abc",
        b"\0\0\0\0\0\0\0\0",
        bytes([22, 3, 1, 0, 200]) * 9,
    ],
    ids=["http", "negative size", "short frame", "empty frames", "tls"],
)
def test_bytes_that_are_not_kafka_are_forwarded_unchanged(said: bytes) -> None:
    with connected() as (_, client, node):
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        assert to_the_end(node) == said
        node.sendall(said[::-1])
        node.close()
        assert to_the_end(client) == said[::-1]


def test_random_bytes_in_random_pieces_are_forwarded_in_both_directions() -> None:
    chosen = random.Random(18)
    with connected() as (proxy, client, node):
        proxy.journal.on()
        there, back = chosen.randbytes(300_000), chosen.randbytes(300_000)

        def send(connection: socket.socket, data: bytes, at: random.Random) -> None:
            while data:
                size = at.randint(1, 5000)
                connection.sendall(data[:size])
                data = data[size:]
            connection.shutdown(socket.SHUT_WR)

        threads = [
            threading.Thread(target=send, args=(connection, data, random.Random(size)))
            for connection, data, size in ((client, there, 1), (node, back, 2))
        ]
        for thread in threads:
            thread.start()
        assert to_the_end(node) == there
        assert to_the_end(client) == back
        for thread in threads:
            thread.join()


class FailingAtRequests(Interceptor):
    """Fails before a request is forwarded."""

    def before_request(self, call: Call) -> None:
        raise ZeroDivisionError


class FailingAtResponses(Interceptor):
    """Fails when the node has answered."""

    def alter_response(self, call: Call, response: Message) -> Message:
        raise ZeroDivisionError


@pytest.mark.parametrize("failing", [FailingAtRequests, FailingAtResponses])
def test_a_failing_hook_closes_the_clients_connection(
    failing: type[Interceptor], caplog: pytest.LogCaptureFixture
) -> None:
    with connected() as (proxy, client, node):
        proxy.add_interceptor_first(failing())
        asked = request(METADATA, 1, 7, b"\0\0\0\0")
        client.sendall(asked)
        if failing is FailingAtResponses:
            assert exactly(node, len(asked)) == asked
            node.sendall(answer(7, MetadataResponse().encode(1)))
        assert to_the_end(client) == b""
    assert "a request failed" in caplog.text


def test_pipelined_requests_are_forwarded_before_the_first_response() -> None:
    with connected() as (_, client, node):
        asked = b"".join(request(UNKNOWN_API, 0, number) for number in range(5))
        client.sendall(asked)
        assert exactly(node, len(asked)) == asked
        answers = b"".join(answer(number) for number in range(5))
        node.sendall(answers)
        assert exactly(client, len(answers)) == answers


@for_each("version", [2, 7, 9, 12, UNKNOWN_VERSION])
@for_each("has_journal", [False, True])
def test_a_produce_with_acks_0_has_no_response(version: int, has_journal: bool) -> None:
    flexible, named = version >= 9, version >= 3
    tags = b"\0" if flexible else b""
    name = (b"\0" if flexible else b"\xff\xff") if named else b""
    body = tags + name + struct.pack(">hi", 0, 1000) + (b"\1\0" if flexible else b"\0\0\0\0")
    with connected() as (proxy, client, node):
        if has_journal:
            proxy.journal.on()
        question = request(PRODUCE, version, 5, body) + request(UNKNOWN_API, 0, 6)
        client.sendall(question)
        assert exactly(node, len(question)) == question
        node.sendall(answer(6, b"only this"))
        assert exactly(client, 17) == answer(6, b"only this")
        if has_journal:
            assert [each.outcome for each in proxy.journal.requests()] == ["unanswered", "answered"]


def test_raw_sasl_tokens_are_forwarded_until_requests_follow() -> None:
    with connected() as (proxy, client, node):
        proxy.journal.on()
        handshake = request(SASL_HANDSHAKE, 0, 1, struct.pack(">h5s", 5, b"PLAIN"))
        client.sendall(handshake)
        assert exactly(node, len(handshake)) == handshake
        said = answer(1, struct.pack(">hi", 0, 0))
        node.sendall(said)
        assert exactly(client, len(said)) == said
        token = struct.pack(">i", 13) + b"\0alice\0secret"
        client.sendall(token)
        assert exactly(node, len(token)) == token
        node.sendall(bytes(4))
        assert exactly(client, 4) == bytes(4)
        question = request(UNKNOWN_API % 400, 0, 2)
        client.sendall(question)
        assert exactly(node, len(question)) == question
        node.sendall(answer(2))
        assert exactly(client, 8) == answer(2)
        kept = proxy.journal.requests()
        assert len(kept) == 2 and not any(b"secret" in each.request_bytes for each in kept)


def test_a_half_closed_client_still_gets_responses() -> None:
    with connected() as (_, client, node):
        question = request(UNKNOWN_API, 0)
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        assert to_the_end(node) == question
        node.sendall(answer(1, b"late"))
        node.close()
        assert to_the_end(client) == answer(1, b"late")


def test_a_client_is_disconnected_if_its_node_closes_within_a_response() -> None:
    with connected() as (proxy, client, node):
        proxy.journal.on()
        client.sendall(request(UNKNOWN_API, 0))
        assert exactly(node, 15)
        node.sendall(answer(1, b"half of it")[:10])
        node.close()
        assert to_the_end(client) == answer(1, b"half of it")[:10]
        client.close()
        (kept,) = proxy.wait_for_requests(where=lambda each: each.outcome == "lost", timeout=PATIENCE_S)
        assert kept.answer_bytes == b""


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "node"])
def test_a_connection_reset_is_passed_to_the_other_side(is_client: bool) -> None:
    with connected() as (_, client, node):
        client.sendall(request(UNKNOWN_API, 0))
        assert exactly(node, 15)
        cut, other = (client, node) if is_client else (node, client)
        cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        cut.close()
        with pytest.raises(ConnectionResetError):
            other.recv(1)


def test_a_client_is_disconnected_if_its_node_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Proxy(f"127.0.0.1:{port}") as proxy, client_of(proxy) as client:
        client.sendall(request(UNKNOWN_API, 0))
        assert to_the_end_or_reset(client) == b""


def to_the_end_or_reset(client: socket.socket) -> bytes:
    try:
        return to_the_end(client)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("is_client", [True, False], ids=["client", "node"])
@pytest.mark.parametrize("has_journal", [False, True], ids=["plain", "journal"])
def test_backpressure_is_passed_to_the_other_side(is_client: bool, has_journal: bool) -> None:
    with connected() as (proxy, client, node):
        if has_journal:
            proxy.journal.on()
        body = bytes(1 << 20)
        client.sendall(b"".join(request(UNKNOWN_API, 0, number) for number in range(100)))
        assert exactly(node, 1500)
        writer, reader = (client, node) if is_client else (node, client)
        writer.settimeout(0.5)
        sent_bytes = 0
        with pytest.raises(TimeoutError):  # without backpressure it would take all
            for number in range(100):
                data = request(UNKNOWN_API, 0, number, body) if is_client else answer(number, body)
                writer.sendall(data)
                sent_bytes += len(data)
        assert sent_bytes < 60 << 20
        assert len(exactly(reader, sent_bytes)) == sent_bytes  # and it goes on once that is taken


def test_many_unanswered_requests_pause_the_client() -> None:
    with connected() as (proxy, client, node):
        proxy.journal.on()
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for number in range(1_000_000):
                client.sendall(request(UNKNOWN_API, 0, number, bytes(1000)))
        assert proxy.journal.seen < 1_500
        client.settimeout(PATIENCE_S)


def test_an_invalid_host_name_of_a_node_closes_the_clients_connection() -> None:
    with Proxy(f"{'a' * 70}:9092") as proxy, client_of(proxy) as client:
        client.settimeout(PATIENCE_S)
        assert client.recv(1) == b""


def test_a_request_that_exceeds_the_memory_is_forwarded_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as (proxy, client, node):
        proxy.journal.on()
        proxy.memory.limit_bytes = 0
        asked = request(METADATA, UNKNOWN_VERSION, 8, b"who?" * 50_000)
        client.sendall(asked)
        assert exactly(node, len(asked)) == asked
        node.sendall(answer(8, b"they"))
        assert exactly(client, 12) == answer(8, b"they")
        assert not proxy.journal.requests()
    assert [each.getMessage() for each in caplog.records if f"{len(asked)} bytes" in each.getMessage()]
