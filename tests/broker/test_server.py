"""Listening, and what ends a connection: addresses that cannot be taken, silence, and the broker's own end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from minibroker.broker.configs.listeners import Listener
from minibroker.broker.configs.settings import Settings
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.framing import OWN_BYTES, PATIENCE_MS
from minibroker.broker.server import IDLE_SWEEP_MS, STALL_SWEEP_MS, BindError, BoundListener, Server, bind_listener
from minibroker.operating_system import HAS_SENDFILE
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from tests.broker.harness import Harness, answer_in, frame_of

SETTINGS = Settings({"log.dirs": "/nowhere"})
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=secret;"
HELLO = frame_of(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)


def listener(host: str = "127.0.0.1", port: int = 0, advertised: tuple[str, int] = ("", 0)) -> Listener:
    return Listener("PLAINTEXT", "PLAINTEXT", host, port, *advertised)


@pytest.fixture
def bound() -> Iterator[BoundListener]:
    taken = bind_listener(listener(), SETTINGS)
    yield taken
    taken.socket.close()


def test_port_0_is_advertised_as_the_assigned_port(bound: BoundListener) -> None:
    assert bound.endpoint == ("127.0.0.1", bound.socket.getsockname()[1])


def test_clients_get_the_advertised_name() -> None:
    taken = bind_listener(listener(advertised=("broker.test", 1234)), SETTINGS)
    taken.socket.close()
    assert taken.endpoint == ("broker.test", 1234)


def test_a_client_may_connect_before_the_broker_accepts(bound: BoundListener) -> None:
    with socket.create_connection(bound.endpoint, timeout=10):
        assert bound.socket.getsockname()[1] == bound.endpoint.port


def test_an_empty_host_listens_on_all_addresses() -> None:
    taken = bind_listener(listener(host=""), SETTINGS)
    try:
        with socket.create_connection(("127.0.0.1", taken.socket.getsockname()[1]), timeout=10):
            assert taken.endpoint.host == socket.getfqdn()
    finally:
        taken.socket.close()


def test_a_port_in_use_is_reported_in_one_line(bound: BoundListener) -> None:
    with pytest.raises(
        BindError,
        match=rf"cannot listen on 127\.0\.0\.1:{bound.endpoint.port}: Address already in use; choose another port",
    ):
        bind_listener(listener(port=bound.endpoint.port), SETTINGS)


def test_an_address_of_another_machine_is_reported_in_one_line() -> None:
    with pytest.raises(BindError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"):
        bind_listener(listener(host="192.0.2.1"), SETTINGS)


def test_socket_buffer_sizes_are_configurable() -> None:
    settings = Settings({"log.dirs": "/nowhere", "socket.receive.buffer.bytes": "50000"})
    taken = bind_listener(listener(), settings)
    with taken.socket:
        assert taken.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000  # Linux doubles it


# --- connections ------------------------------------------------------------------------------------


class Served:
    """A server on a real socket and a clock that stands still, and one client that has said hello."""

    def __init__(self, harness: Harness, server: Server, client: socket.socket) -> None:
        self.harness = harness
        self.server = server
        self.client = client

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.client, data)

    async def receive(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        got = b""
        while len(got) < size and (data := await loop.sock_recv(self.client, size - len(got))):
            got += data
        return got

    @asynccontextmanager
    async def another_client(self) -> AsyncIterator[None]:
        """Speak for a client that has not said hello."""
        with socket.socket() as other:
            other.setblocking(False)
            await asyncio.get_running_loop().sock_connect(other, self.client.getpeername())
            self.client.close()
            self.client = other
            yield

    async def crowd(self, count: int, start: bytes, stack: ExitStack) -> list[socket.socket]:
        """Return so many more clients, each of which has sent these bytes and has been heard."""
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, self.client.getpeername())
            await asyncio.get_running_loop().sock_sendall(client, start)
            clients.append(client)
        await self.ask()
        return clients

    async def ask(self, data: bytes = HELLO, cut: int = 0) -> None:
        """Send a request, in two pieces unless `cut` is 0, and wait for its answer."""
        await self.send(data[:cut])
        for _ in range(3):
            await asyncio.sleep(0)
        await self.send(data[cut:])
        assert await self.answer()

    async def answer(self) -> bytes:
        size = await self.receive(4)
        return size + await self.receive(int.from_bytes(size, "big"))


def serve(
    directory: Path, talk: Callable[[Served], Awaitable[None]], protocol: str = "PLAINTEXT", **settings: str
) -> None:
    async def run() -> None:
        with Harness(directory, settings={key.replace("_", "."): value for key, value in settings.items()}) as harness:
            harness.create_topic("t")
            server = Server(asyncio.get_running_loop(), harness.cluster)
            taken = bind_listener(listener()._replace(security_protocol=protocol), harness.cluster.settings)
            await server.serve_listener(harness.cluster.nodes[1], taken)
            server.close_idle_connections()
            server.close_stalled_connections()
            with socket.socket() as client:
                client.setblocking(False)
                await asyncio.get_running_loop().sock_connect(client, taken.endpoint)
                served = Served(harness, server, client)
                await served.send(HELLO)
                _, response = answer_in(await served.answer(), ApiKey.API_VERSIONS, 3)
                assert response.error_code == 0
                await talk(served)
            await server.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize(("duration_us", "is_noted"), [("0", False), ("60", True)])
def test_reads_are_noted_for_busy_polling_only_if_it_is_enabled(
    tmp_path: Path, duration_us: str, is_noted: bool
) -> None:
    async def talk(served: Served) -> None:
        polling = served.server._shared.polling
        assert (polling is not None and polling._reads + polling._until > 0) is is_noted

    serve(tmp_path, talk, socket_busy_poll_us=duration_us)


def test_an_idle_connection_is_closed_after_its_timeout(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        served.harness.clock.advance(60_000)
        await served.send(HELLO)
        await served.answer()
        served.harness.clock.advance(60_000 + IDLE_SWEEP_MS)
        await served.send(HELLO)
        assert await served.answer(), "it spoke in between"
        served.harness.clock.advance(100_000 + 2 * IDLE_SWEEP_MS)
        assert await served.receive(1) == b""

    serve(tmp_path, talk, connections_max_idle_ms="100000")


def test_a_client_that_waits_for_a_response_is_not_idle(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        topic = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchTopic.FetchPartition()])
        request = FetchRequest(max_wait_ms=500_000, min_bytes=1, max_bytes=1000, topics=[topic])
        topic.partitions[0].partition_max_bytes = 1000
        await served.send(frame_of(request, 12))
        while not served.harness.partition("t").waiters:
            await asyncio.sleep(0)
        served.harness.clock.advance(300_000)
        served.harness.produce("t", "woken")
        assert b"woken" in await served.answer()

    serve(tmp_path, talk, connections_max_idle_ms="100000")


def test_many_half_sent_large_requests_block_no_other_client_and_are_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(served: Served) -> None:
        budget, sockets = served.server._shared.budget, served.server._shared.sockets
        with ExitStack() as stack:
            await served.crowd(300, pack(">i", 100_000_000) + bytes(20), stack)
            assert budget.held_bytes <= 300 * OWN_BYTES
            for cut in (2, 10, len(HELLO) - 1):
                await served.ask(HELLO, cut)
            served.harness.clock.advance(29_999)
            await served.ask()
            assert len(sockets) == 301
            served.harness.clock.advance(1)
            while len(sockets) > 1:
                await served.ask()
            assert budget.held_bytes == 0
        served.harness.clock.advance(500_000)
        await served.ask()

    serve(tmp_path, talk)
    (told,) = [message for message in caplog.messages if "sent nothing more" in message]
    assert "and 299 others: it sent nothing more of a request for 30000 ms" in told


def test_a_slow_sender_is_not_closed_while_memory_is_available(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        (client,) = served.server._shared.sockets
        for byte in HELLO:
            served.harness.clock.advance(9_000)
            await served.send(bytes([byte]))
            while client.progress_ms < served.harness.clock.monotonic_ms():
                await asyncio.sleep(0)
        assert await served.answer()

    serve(tmp_path, talk, connections_max_stall_ms="10000")


def test_slow_senders_are_closed_early_while_others_wait_for_memory(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        server = served.server
        server._shared.budget.large.limit_bytes = 1
        start = pack(">i", 100_000_000) + bytes(30_000)
        with ExitStack() as stack:
            slow, waiting = await served.crowd(2, start, stack)
            while sum(client.connection.has_partial_request for client in server._shared.sockets) != 1:
                await served.ask()
            await asyncio.get_running_loop().sock_sendall(slow, bytes(1000))
            await served.ask()
            served.harness.clock.advance(PATIENCE_MS)
            while len(server._shared.sockets) > 2:
                await served.ask()
            (left,) = [client for client in server._shared.sockets if client.connection.has_partial_request]
            assert left.peer == f"127.0.0.1:{waiting.getsockname()[1]}"

    serve(tmp_path, talk)


@pytest.mark.skipif(not HAS_SENDFILE, reason="records do not wait in their files there")
def test_a_client_that_reads_no_responses_is_closed_after_the_stall_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(served: Served) -> None:
        sockets, unread = served.server._shared.sockets, served.server._shared.unread
        dispatcher = served.server._dispatcher

        class Lengthy:
            call_when_turn_ends = dispatcher.call_when_turn_ends

            def execute_or_close(self, connection: Connection, frame: memoryview) -> Any:
                return [bytes(24 << 20)] if len(frame) == 100 else dispatcher.execute(connection, frame)

        monkeypatch.setattr(served.server, "_dispatcher", Lengthy())
        with ExitStack() as stack:
            silent, slow = await served.crowd(2, pack(">i", 100) + bytes(100), stack)
            while unread.held_bytes < 24 << 20:
                await served.ask()
            for _ in range(6):
                served.harness.clock.advance(STALL_SWEEP_MS)
                untaken_bytes = sum(client.count_unread_bytes() for client in sockets)
                while sum(client.count_unread_bytes() for client in sockets) == untaken_bytes:
                    await asyncio.get_running_loop().sock_recv(slow, 100_000)
                    await served.ask()
            served.harness.clock.advance(STALL_SWEEP_MS)
            while len(sockets) > 2:
                await served.ask()
            assert slow.getsockname()[1] in [int(client.peer.rpartition(":")[2]) for client in sockets]
            assert 0 < unread.held_bytes < 24 << 20

    serve(tmp_path, talk)
    assert "it took nothing of its answers for 30000 ms" in caplog.text


def test_a_malformed_request_closes_the_connection_and_the_log_names_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(served: Served) -> None:
        await served.send(HELLO[:4] + b"\x7f\xff" + HELLO[6:])
        assert await served.receive(1) == b""

    with caplog.at_level(logging.WARNING, "minibroker.connections"):
        serve(tmp_path, talk)
    assert "(test 1): an unknown API (key 32767) version 3, which is not served here" in caplog.text


@pytest.mark.parametrize(
    ("request_bytes", "who"),
    [
        (pack(">hhih5s", 0, 14, 7, 5, b"old\n1"), r"client id 'old\n1'"),
        (pack(">hhih", 0, 14, 7, -1), "unnamed client"),
        (pack(">hhih", 0, 14, 7, 99), "unnamed client"),
    ],
)
def test_a_client_without_software_name_is_logged_by_its_client_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_bytes: bytes, who: str
) -> None:
    async def talk(served: Served) -> None:
        async with served.another_client():
            await served.send(pack(">i", len(request_bytes)) + request_bytes)
            assert await served.receive(1) == b""

    with caplog.at_level(logging.WARNING, "minibroker.connections"):
        serve(tmp_path, talk)
    assert f"({who}): Produce (key 0) version 14, which is not served here" in caplog.text


def test_a_failing_handler_closes_only_its_own_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk(served: Served) -> None:
        image = served.harness.cluster.image
        with monkeypatch.context() as patch:
            patch.setattr(served.harness.cluster, "image", None)
            await served.send(HELLO)
            assert await served.receive(1) == b""
        assert served.harness.cluster.image is image
        async with served.another_client():
            await served.send(HELLO)
            assert await served.answer()

    serve(tmp_path, talk)
    assert "a request failed" in caplog.text
    assert "Traceback" in caplog.text


def test_stopping_the_broker_closes_its_connections(tmp_path: Path) -> None:
    async def talk(served: Served) -> None:
        await served.server.close()
        assert await served.receive(1) == b""

    serve(tmp_path, talk)


def test_a_client_that_does_not_authenticate_is_closed_after_the_stall_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(served: Served) -> None:
        served.harness.clock.advance(29_000)
        assert len(served.server.list_connections()) == 1
        served.harness.clock.advance(1_000 + STALL_SWEEP_MS)
        assert await served.receive(1) == b""

    settings = {"sasl_enabled_mechanisms": "PLAIN", "listener_name_plaintext_plain_sasl_jaas_config": JAAS}
    serve(tmp_path, talk, "SASL_PLAINTEXT", **settings)
    assert "it did not authenticate within 30000 ms" in caplog.text


def test_a_tls_client_on_a_plaintext_listener_is_recognized(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(served: Served) -> None:
        await served.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
        assert await served.receive(1) == b""

    serve(tmp_path, talk)
    assert "it sent what begins a TLS connection, and this listener has none" in caplog.text
