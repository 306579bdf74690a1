"""Real sockets on both event loops: bytes and file regions arrive whole and in order, however slowly they are taken."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple, cast

import pytest

from minibroker.broker.clock import SystemClock
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.sockets import ClientSocket, SharedSocketState, SocketProtocol, get_host_name
from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.storage.files import Disk, File
from tests.loops import LOOPS

FILE_BYTES = 6 << 20


class Piece(NamedTuple):
    """A region of a file, as storage hands them out."""

    file: File
    position: int
    size_bytes: int


class Harness:
    """A listening socket whose connections answer every frame with what `answer(frame)` gives."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[bytes], list[Any]]) -> None:
        self.loop = loop
        self.answer = answer
        self.shared = SharedSocketState(SystemClock(loop))
        self.sockets: list[ClientSocket] = []
        self.copies = False

    async def start(self) -> int:
        def protocol() -> SocketProtocol:
            made = ClientSocket(self.loop, self.shared, self.attach)
            self.sockets.append(made)
            return SocketProtocol(made)

        self.server = await self.loop.create_server(protocol, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    def attach(self, outlet: ClientSocket, transport: asyncio.BaseTransport) -> Connection:
        outlet._copies = self.copies

        def execute(connection: Connection, frame: memoryview) -> list[Any]:
            return self.answer(bytes(frame))

        node: Any = None
        return Connection(node, "PLAINTEXT", outlet, execute, lambda: None, self.shared.budget, 1 << 20)

    async def stop(self) -> None:
        self.server.close()
        for made in self.sockets:
            made.abort()
        await asyncio.sleep(0)
        await self.server.wait_closed()


def frame(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on the one and on the other event loop."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = random.Random(5).randbytes(FILE_BYTES)
    (tmp_path / "data").write_bytes(data)
    return data


async def with_client(
    answer: Callable[[bytes], list[Any]],
    talk: Callable[[asyncio.AbstractEventLoop, socket.socket, Harness], Awaitable[None]],
    *,
    copies: bool = False,
    receive_buffer_bytes: int = 0,
) -> None:
    loop = asyncio.get_running_loop()
    harness = Harness(loop, answer)
    harness.copies = copies
    port = await harness.start()
    client = socket.socket()
    if receive_buffer_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    try:
        await talk(loop, client, harness)
    finally:
        client.close()
        await harness.stop()


async def receive(loop: asyncio.AbstractEventLoop, client: socket.socket, size: int, most: int = 1 << 16) -> bytes:
    got = bytearray()
    while len(got) < size:
        data = await loop.sock_recv(client, min(most, size - len(got)))
        if not data:
            break
        got += data
    return bytes(got)


@pytest.mark.parametrize("copies", [False, True], ids=["sendfile", "copy"])
@pytest.mark.parametrize("receive_buffer_bytes", [0, 8192])
def test_file_regions_and_bytes_of_a_response_arrive_in_order(
    run: Any, tmp_path: Path, content: bytes, copies: bool, receive_buffer_bytes: int
) -> None:
    source = random.Random(7)
    file = Disk().open(str(tmp_path / "data"))
    expected = bytearray()

    def answer(request: bytes) -> list[Any]:
        items: list[Any] = []
        for size in (1, 100, 16 << 10, (16 << 10) + 1, 300_000, 2_500_000):
            position = source.randrange(FILE_BYTES - size)
            items += [b"<%d>" % size, Piece(file, position, size)]
            expected.extend(b"<%d>" % size + content[position : position + size])
        return items

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678") * 2)
        got = await receive(loop, client, 2 * (sum((1, 100, 16384, 16385, 300_000, 2_500_000)) + 5 + 3 + 7 + 7 + 8 + 9))
        assert got == bytes(expected)
        assert not harness.sockets[0].is_congested

    run(with_client(answer, talk, copies=copies, receive_buffer_bytes=receive_buffer_bytes))


class CountingTransport:
    """A transport that counts the calls of `write`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.transport.write(data)


@pytest.mark.parametrize("copies", [False, True], ids=["sendfile", "copy"])
def test_responses_with_small_file_regions_are_written_at_once(
    run: Any, tmp_path: Path, content: bytes, copies: bool
) -> None:
    file = Disk().open(str(tmp_path / "data"))
    counting: list[CountingTransport] = []

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        await receive(loop, client, 104)
        outlet = harness.sockets[0]
        counting.append(CountingTransport(outlet._transport))
        outlet._transport = cast(asyncio.Transport, counting[0])
        await loop.sock_sendall(client, frame(b"12345678") * 12)
        assert await receive(loop, client, 12 * 104) == (b"head" + content[7:107]) * 12

    run(with_client(lambda request: [b"head", Piece(file, 7, 100)], talk, copies=copies))
    assert counting[0].writes == 1


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="open files cannot be removed there")
def test_a_region_stays_readable_after_its_file_was_removed(run: Any, tmp_path: Path, content: bytes) -> None:
    file: list[File] = [Disk().open(str(tmp_path / "data"))]

    def answer(request: bytes) -> list[Any]:
        os.unlink(tmp_path / "data")
        return [Piece(file.pop(), 0, FILE_BYTES)]

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        assert await receive(loop, client, FILE_BYTES) == content

    run(with_client(answer, talk, receive_buffer_bytes=8192))


def test_a_client_that_never_reads_takes_no_memory_and_blocks_no_other(
    run: Any, tmp_path: Path, content: bytes
) -> None:
    file = Disk().open(str(tmp_path / "data"))

    def answer(request: bytes) -> list[Any]:
        return [Piece(file, 0, FILE_BYTES)]

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678") * 30)
        other = socket.socket()
        other.setblocking(False)
        await loop.sock_connect(other, client.getpeername())
        await loop.sock_sendall(other, frame(b"12345678"))
        assert await receive(loop, other, FILE_BYTES) == content
        other.close()
        stalled = harness.sockets[0]
        assert stalled.is_congested
        assert stalled._transport.get_write_buffer_size() <= 64 << 10

    run(with_client(answer, talk, receive_buffer_bytes=8192))


def test_a_file_shorter_than_its_region_closes_the_connection(
    run: Any, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = Disk().open(str(tmp_path / "data"))

    def answer(request: bytes) -> list[Any]:
        return [Piece(file, FILE_BYTES - 100_000, 200_000)]

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        try:
            got = await receive(loop, client, 200_000)
        except ConnectionResetError:
            got = b""
        assert len(got) <= 100_000

    run(with_client(answer, talk))
    assert "ends before" in caplog.text


@pytest.mark.parametrize("size", [100, FILE_BYTES])
@pytest.mark.parametrize("copies", [False, True])
def test_a_failing_disk_closes_the_connection(
    run: Any, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture, size: int, copies: bool
) -> None:
    class FailingFile:
        path = "failing"

        def read(self, position: int, size: int) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

        def sendfile(self, descriptor: int, position: int, size: int) -> int:
            raise OSError(errno.EIO, "Input/output error")

    sound, failing = Piece(Disk().open(str(tmp_path / "data")), 0, FILE_BYTES), FailingFile()

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        try:
            assert len(await receive(loop, client, 3 * FILE_BYTES)) < FILE_BYTES + 8 + size
        except ConnectionResetError:
            return

    # The large region before it has the failing one read in a turn of its own, where nobody above would close.
    answer = [sound, b"head", Piece(cast(File, failing), 0, size)]
    run(with_client(lambda request: answer, talk, copies=copies))
    assert "reading failing at 0 failed" in caplog.text


def test_an_invalid_frame_size_closes_the_connection_and_is_logged(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, b"GET / HTTP/1.1\r\n\r\n")
        try:
            assert await loop.sock_recv(client, 10) == b""
        except ConnectionResetError:
            return

    run(with_client(lambda request: [b"never"], talk))
    assert "1195725856 bytes" in caplog.text


def test_nagles_algorithm_is_disabled(run: Any) -> None:
    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        assert await receive(loop, client, 2) == b"ok"
        connected = harness.sockets[0]._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(with_client(lambda request: [b"ok"], talk))


def test_queued_responses_are_sent_before_closing(run: Any, tmp_path: Path, content: bytes) -> None:
    file = Disk().open(str(tmp_path / "data"))

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        got = await receive(loop, client, 10)
        harness.sockets[0].close()
        got += await receive(loop, client, 2 * FILE_BYTES)
        assert got == content

    run(with_client(lambda request: [Piece(file, 0, FILE_BYTES)], talk, receive_buffer_bytes=8192))


def test_unread_responses_are_counted_as_memory_until_the_client_reads_them(run: Any) -> None:
    answer = bytes(range(256)) * (FILE_BYTES >> 6)

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678") * 3)
        unread = harness.shared.unread
        while not harness.sockets or not unread.held_bytes:
            await asyncio.sleep(0)
        assert 2 * len(answer) < unread.held_bytes < 3 * len(answer)
        assert await receive(loop, client, 3 * len(answer)) == 3 * answer
        while harness.sockets[0].is_congested:
            await asyncio.sleep(0)
        assert unread.held_bytes == 0

    run(with_client(lambda request: [answer], talk, receive_buffer_bytes=8192))


def test_unread_responses_are_limited_without_affecting_other_clients(run: Any) -> None:
    answer = bytes(range(256)) * (FILE_BYTES >> 6)

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        unread = harness.shared.unread
        unread.limit_bytes = 2 * len(answer)
        with ExitStack() as silent:
            for _ in range(8):
                other = silent.enter_context(socket.socket())
                other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
                other.setblocking(False)
                await loop.sock_connect(other, client.getpeername())
                await loop.sock_sendall(other, frame(b"12345678"))
                await loop.sock_sendall(client, frame(b"12345678"))
                assert await receive(loop, client, len(answer)) == answer
                assert unread.held_bytes <= unread.limit_bytes
            assert 1 <= len(harness.shared.sockets) - 1 <= 3, "of the silent ones those are left for whom there is room"
            assert unread.held_bytes > 0
        while len(harness.shared.sockets) > 1:
            await asyncio.sleep(0)
        assert unread.held_bytes == 0

    run(with_client(lambda request: [answer], talk))


def test_responses_held_back_by_the_broker_do_not_count_as_unread(run: Any) -> None:
    answer = bytes(range(256)) * (FILE_BYTES >> 6)

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        while not harness.sockets or not harness.sockets[0]._is_full:
            await asyncio.sleep(0)
        held = harness.sockets[0]
        held.hold_back_output()
        held.send([answer])
        assert len(answer) < harness.shared.unread.held_bytes < 2 * len(answer)
        assert await receive(loop, client, len(answer)) == answer
        while held._is_full:
            await asyncio.sleep(0)
        assert held.is_congested and harness.shared.unread.held_bytes == 0
        held.send_held_output()
        assert await receive(loop, client, len(answer)) == answer

    run(with_client(lambda request: [answer], talk, receive_buffer_bytes=8192))


def test_an_unread_file_region_does_not_count_as_unread(run: Any, tmp_path: Path, content: bytes) -> None:
    file = Disk().open(str(tmp_path / "data"))

    async def talk(loop: asyncio.AbstractEventLoop, client: socket.socket, harness: Harness) -> None:
        await loop.sock_sendall(client, frame(b"12345678"))
        while not harness.sockets or not harness.sockets[0]._is_full:
            await asyncio.sleep(0)
        assert harness.shared.unread.held_bytes == 0

    run(with_client(lambda request: [b"head", Piece(file, 0, FILE_BYTES)], talk, receive_buffer_bytes=8192))


@pytest.mark.parametrize(
    ("address", "as_java_writes_it"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff:1", "2001:db8:0:0:0:0:ff:1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_a_clients_host_is_formatted_as_by_java(address: str, as_java_writes_it: str) -> None:
    transport = asyncio.Transport(extra={"peername": (address, 50_000)})
    assert get_host_name(transport) == as_java_writes_it


def test_a_client_without_an_address_has_no_host() -> None:
    assert get_host_name(asyncio.Transport(extra={"peername": ""})) == ""
