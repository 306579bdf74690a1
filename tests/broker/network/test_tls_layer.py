"""TLS on real sockets and both event loops: bytes and regions in order, bounds, and who does not speak it."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from minibroker.broker.network import tls_layer
from minibroker.broker.network.connection import BACKLOG_LIMIT_BYTES, Connection
from minibroker.broker.network.tls_layer import READ_BYTES
from minibroker.storage.files import Disk
from tests.broker.delaying import Delaying
from tests.broker.network.test_sockets import FILE_BYTES, Piece, frame
from tests.broker.network.tls_served import (
    LIMIT_MS,
    RECORD_BYTES,
    REQUEST,
    Client,
    Content,
    Served,
    authority,
    echo,
    stranger,
    trusting,
    until,
    with_client,
)
from tests.certificates import Signed
from tests.loops import LOOPS


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on the one and on the other event loop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield lambda talk: runner.run(asyncio.wait_for(talk, 60))


@pytest.fixture
def content(tmp_path: Path) -> Content:
    data = random.Random(5).randbytes(FILE_BYTES)
    (tmp_path / "data").write_bytes(data)
    return Content(tmp_path / "data", data)


# --- what goes through --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("receive_buffer_bytes", [0, 8192])
def test_file_regions_and_bytes_of_a_response_arrive_in_order_over_tls(
    run: Any, content: Content, version: ssl.TLSVersion, receive_buffer_bytes: int
) -> None:
    file, long = Disk().open(str(content.path)), content.data[:3_000_001]
    answer = [b"head", Piece(file, 5, 100), b"", bytearray(long), Piece(file, 0, FILE_BYTES), b"tail"]

    async def talk(served: Served, client: Client) -> None:
        context = trusting()
        context.minimum_version = context.maximum_version = version
        await client.shake_hands(context)
        await client.send(REQUEST * 3)
        expected = b"head" + content.data[5:105] + long + content.data + b"tail"
        for _ in range(3):
            assert await client.receive(len(expected)) == expected

    run(with_client(lambda *_: list(answer), talk, receive_buffer_bytes=receive_buffer_bytes))


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_tls_input_split_at_any_byte_gets_the_same_responses(run: Any, cut: int) -> None:
    sent = b"".join(frame(b"%08d" % number + bytes(number * 50)) for number in range(20))

    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting(), cut)
        await client.send(sent, cut)
        assert await client.receive(len(sent)) == sent

    run(with_client(echo, talk))


def test_a_large_request_arrives_completely_over_tls(run: Any) -> None:
    sent = frame(random.Random(1).randbytes(1_000_000)) + REQUEST

    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        await client.send(sent)
        assert await client.receive(len(sent)) == sent
        assert served.shared.budget.held_bytes == 0

    run(with_client(echo, talk))


def test_a_close_notify_closes_the_connection_after_its_responses(run: Any) -> None:
    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        await client.send(REQUEST)
        await client.end()
        assert await client.receive(len(REQUEST) + 1) == REQUEST
        await until(lambda: not served.shared.sockets)

    run(with_client(echo, talk))


def test_the_broker_sends_a_close_notify(run: Any) -> None:
    def last(connection: Connection, request: memoryview) -> list[Any]:
        connection.close_after_answers()
        return echo(connection, request)

    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        await client.send(REQUEST)
        assert await client.receive(len(REQUEST)) == REQUEST
        assert client._tls.read(1) == b"" if client._incoming.pending else await client.receive(1) == b""

    run(with_client(last, talk))


# --- bounds -------------------------------------------------------------------------------------------


def test_tls_input_after_a_delayed_request_is_limited_and_counted_as_memory(run: Any) -> None:
    delayed: list[Delaying] = []

    def execute(connection: Connection, request: memoryview) -> Any:
        if delayed:
            return echo(connection, request)
        delayed.append(Delaying(connection.send_delayed_answer))
        return delayed[0].operation

    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        sent = frame(b"12345678" + bytes(1000)) * 20_000
        sending = asyncio.ensure_future(client.send(sent))
        await until(lambda: served.shared.budget.held_bytes >= BACKLOG_LIMIT_BYTES)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not sending.done(), "the kernel's buffers are full"
        layer = served.layers[0]
        held_bytes = served.shared.budget.held_bytes
        assert held_bytes == len(served.connection._backlog or b"") + layer._incoming.pending
        assert held_bytes <= 2 * BACKLOG_LIMIT_BYTES + READ_BYTES + 2 * RECORD_BYTES
        delayed[0].complete(b"")
        size = len(frame(b"12345678" + bytes(1000)))
        assert await client.receive(size * 19_999) == sent[: size * 19_999]
        await sending
        assert served.shared.budget.held_bytes == 0

    run(with_client(execute, talk))


def test_tls_input_counted_as_memory_is_released_when_the_client_disconnects(run: Any) -> None:
    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        sending = asyncio.ensure_future(client.send(frame(b"12345678" + bytes(1000)) * 5_000))
        await until(lambda: served.shared.budget.held_bytes >= BACKLOG_LIMIT_BYTES)
        sending.cancel()
        client.socket.close()
        served.layers[0].abort()
        await until(lambda: not served.shared.sockets)
        await until(lambda: not served.shared.budget.held_bytes)  # what is left runs for nobody, a slice each turn

    run(with_client(lambda connection, _: Delaying(connection.send_delayed_answer).operation, talk))


def test_a_client_that_never_reads_takes_no_memory_and_blocks_no_other(run: Any, content: Content) -> None:
    file = Disk().open(str(content.path))

    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        await client.send(REQUEST * 8)
        other = Client(served.loop)
        await other.connect(served.address)
        await other.shake_hands(trusting())
        await other.send(REQUEST)
        assert await other.receive(FILE_BYTES) == content.data
        other.socket.close()
        assert served.layers[0].get_write_buffer_size() <= 128 << 10
        assert await client.receive(8 * FILE_BYTES) == 8 * content.data

    run(with_client(lambda *_: [Piece(file, 0, FILE_BYTES)], talk, receive_buffer_bytes=8192))


# --- handshakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (pack(">ihhih", 20, 18, 3, 1, -1) + bytes(10), "it does not speak TLS as this listener does"),
        (b"GET / HTTP/1.1\r\n\r\n", "it does not speak TLS as this listener does (HTTP_REQUEST)"),
        (random.Random(2).randbytes(1000), "TLS"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "TLS failed"),
    ],
    ids=["plaintext", "http", "random", "short hello"],
)
def test_a_client_without_tls_is_disconnected_with_one_log_line(
    run: Any, caplog: pytest.LogCaptureFixture, first: bytes, reason: str
) -> None:
    async def talk(served: Served, client: Client) -> None:
        await served.loop.sock_sendall(client.socket, first)
        await client.rest()
        assert not served.shared.handshakes and not served.shared.sockets

    run(with_client(echo, talk))
    (line,) = [record for record in caplog.records if record.name == "minibroker.connections"]
    assert line.getMessage().startswith("closing 127.0.0.1:") and reason in line.getMessage()
    assert line.exc_info is None


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00"])
def test_a_tls_handshake_has_a_timeout(run: Any, caplog: pytest.LogCaptureFixture, first: bytes) -> None:
    async def talk(served: Served, client: Client) -> None:
        await served.loop.sock_sendall(client.socket, first)
        await until(lambda: bool(served.shared.handshakes))
        served.clock.advance(LIMIT_MS - 1)
        await asyncio.sleep(0.01)
        assert served.shared.handshakes
        served.clock.advance(1)
        assert await client.rest() == b""
        assert not served.shared.handshakes
        assert served.statistics.failed == 1

    run(with_client(echo, talk))
    assert f"its TLS handshake took more than {LIMIT_MS} ms" in caplog.text


def test_the_handshake_timeout_ends_with_the_handshake(run: Any) -> None:
    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting())
        await until(lambda: not served.shared.handshakes)
        served.clock.advance(10 * LIMIT_MS)
        await client.send(REQUEST)
        assert await client.receive(len(REQUEST)) == REQUEST

    run(with_client(echo, talk))


def test_a_tls_handshake_is_limited_in_bytes(
    run: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_layer, "HANDSHAKE_BYTES", 1000)

    async def talk(served: Served, client: Client) -> None:
        await served.loop.sock_sendall(client.socket, b"\x16\x03\x01\x20\x00\x01\x00\x1f\xfc\x03\x03" + bytes(2000))
        await client.rest()
        assert not served.shared.handshakes

    run(with_client(echo, talk))
    assert "it sent more than 1000 bytes of a TLS handshake" in caplog.text


def test_a_client_that_leaves_during_the_handshake_is_forgotten(run: Any) -> None:
    async def talk(served: Served, client: Client) -> None:
        await served.loop.sock_sendall(client.socket, b"\x16\x03\x01\x02\x00")
        await until(lambda: bool(served.shared.handshakes))
        client.socket.close()
        await until(lambda: not served.shared.handshakes)

    run(with_client(echo, talk))


def test_the_handshake_of_a_client_above_the_connection_limit_and_its_timeout_start_once_it_is_admitted(
    run: Any,
) -> None:
    async def talk(served: Served, client: Client) -> None:
        await until(lambda: len(served.gate.open) == 1)
        served.gate.mutes = True
        other = Client(served.loop)
        await other.connect(served.address)
        shaking = asyncio.ensure_future(other.shake_hands(trusting()))
        await until(lambda: len(served.gate.open) == 2)
        served.clock.advance(10 * LIMIT_MS)
        await asyncio.sleep(0.01)
        assert not shaking.done()
        served.gate.open[-1].unmute()
        served.clock.advance(LIMIT_MS - 1)
        await shaking
        other.socket.close()

    run(with_client(echo, talk))


def test_a_client_above_the_connection_limit_of_its_address_is_closed_before_the_handshake(run: Any) -> None:
    async def talk(served: Served, client: Client) -> None:
        await until(lambda: len(served.gate.open) == 1)
        served.gate.closes = True
        other = Client(served.loop)
        await other.connect(served.address)
        assert await other.rest() == b""
        other.socket.close()
        await until(lambda: len(served.gate.open) == 1)

    run(with_client(echo, talk))


def test_every_failed_handshake_is_logged_in_one_line(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes of the client's part are changed, left out or repeated, in the handshake and behind it."""
    source, unforeseen = random.Random(11), []

    async def spoiled(served: Served) -> None:
        client = Client(served.loop)
        await client.connect(served.address)
        context = trusting()
        context.maximum_version = source.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
        spare = source.randrange(3)

        async def spoil(cut: int) -> None:
            nonlocal spare
            spare -= 1
            data = bytearray(client._outgoing.read())
            if spare < 0 and data:
                at = source.randrange(len(data))
                if source.random() < 0.6:
                    data[at] ^= 1 << source.randrange(8)
                elif source.random() < 0.5:
                    del data[at : at + source.randrange(1, 50)]
                else:
                    data[at:at] = data[at // 2 : at]
            await served.loop.sock_sendall(client.socket, data)

        client._flush = spoil  # type: ignore[method-assign]
        try:
            await asyncio.wait_for(client.shake_hands(context), 0.05)
            for _ in range(3):
                await client.send(REQUEST)
                await asyncio.wait_for(client.receive(len(REQUEST)), 0.05)
        except (TimeoutError, OSError):
            pass
        client.socket.close()

    async def talk(served: Served, client: Client) -> None:
        served.loop.set_exception_handler(lambda loop, context: unforeseen.append(context))
        for _ in range(150):
            await spoiled(served)
        await until(lambda: len(served.gate.open) == 1)
        assert len(served.shared.handshakes) == 1 and not served.shared.sockets
        assert served.shared.budget.held_bytes == 0

    run(with_client(echo, talk))
    assert unforeseen == []
    assert all(record.exc_info is None for record in caplog.records)


# --- certificates of clients --------------------------------------------------------------------------

RULES = "RULE:^CN=([a-z]+),OU=people$/$1/"


@pytest.mark.parametrize(
    ("own", "auth", "rules", "principal"),
    [
        (None, "none", "DEFAULT", "User:ANONYMOUS"),
        (None, "requested", RULES, "User:ANONYMOUS"),
        (authority.sign("CN=alice,OU=people", ()), "none", "DEFAULT", "User:ANONYMOUS"),
        (authority.sign("CN=alice,OU=people", ()), "requested", "DEFAULT", "User:CN=alice,OU=people"),
        (authority.sign("CN=alice,OU=people", ()), "required", "DEFAULT", "User:CN=alice,OU=people"),
        (authority.sign("CN=alice,OU=people", ()), "required", RULES, "User:alice"),
    ],
)
def test_the_principal_is_the_certificates_subject(
    run: Any, tmp_path: Path, own: Signed | None, auth: str, rules: str, principal: str
) -> None:
    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting(tmp_path, own))
        await client.send(REQUEST)
        assert await client.receive(len(REQUEST)) == REQUEST
        assert str(served.connection.principal) == principal

    run(with_client(echo, talk, {"ssl.client.auth": auth, "ssl.principal.mapping.rules": rules}))


@pytest.mark.parametrize(
    ("own", "auth", "reason"),
    [
        (None, "required", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (
            stranger.sign("CN=alice,OU=people", ()),
            "required",
            "its certificate is not accepted: unable to get local issuer",
        ),
        (stranger.sign("CN=alice,OU=people", ()), "requested", "its certificate is not accepted: unable to get local"),
        (authority.sign("CN=alice,OU=people", (), expired=True), "required", "certificate has expired"),
        (authority.sign("CN=bob", ()), "required", "no rule of ssl.principal.mapping.rules applies to 'CN=bob'"),
    ],
)
def test_a_client_with_an_unacceptable_certificate_is_disconnected_with_one_log_line(
    run: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path, own: Signed | None, auth: str, reason: str
) -> None:
    async def talk(served: Served, client: Client) -> None:
        await client.shake_hands(trusting(tmp_path, own))  # with TLS 1.3 the broker's part comes after the client's
        await client.rest()
        assert not served.shared.handshakes and not served.shared.sockets

    run(with_client(echo, talk, {"ssl.client.auth": auth, "ssl.principal.mapping.rules": RULES}))
    (line,) = [record for record in caplog.records if record.name == "minibroker.connections"]
    assert reason in line.getMessage() and line.exc_info is None
