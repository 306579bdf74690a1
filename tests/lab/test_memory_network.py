"""Sockets in memory behave as a kernel's: for asyncio's streams, and for a broker with its client."""

from __future__ import annotations

import asyncio
import socket

import pytest

from minibroker.broker.lifecycle import StartError
from minibroker.client.asynchronous import AsyncClient
from minibroker.client.connection_settings import ClientSettings
from minibroker.lab.memory_network import BUFFER_BYTES, MemoryNetwork, MemoryTransport
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.testing import Broker

LARGE = bytes(4 * BUFFER_BYTES)


@pytest.fixture
async def network(monkeypatch: pytest.MonkeyPatch) -> MemoryNetwork:
    for name in ("socket", "getaddrinfo", "getfqdn"):
        monkeypatch.setattr(socket, name, getattr(socket, name))
    network = MemoryNetwork(asyncio.get_running_loop())
    network.replace_sockets()
    return network


class Server:
    """Keeps what it gets; a test says what it does."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.got = bytearray()
        self.transport: MemoryTransport

    def protocol(self) -> asyncio.Protocol:
        server = self

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, MemoryTransport)
                server.transport = transport

            def data_received(self, data: bytes) -> None:
                server.got += data

            def pause_writing(self) -> None:
                server.events.append("pause")

            def resume_writing(self) -> None:
                server.events.append("resume")

            def connection_lost(self, error: Exception | None) -> None:
                server.events.append("lost")

        return Protocol()


async def connected(network: MemoryNetwork, server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    await asyncio.get_running_loop().create_server(server.protocol, sock=bound)
    return await asyncio.open_connection("localhost", port)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_written_bytes_arrive_even_if_the_connection_is_closed_immediately(network: MemoryNetwork) -> None:
    server = Server()
    _, writer = await connected(network, server)
    writer.write(b"first")
    writer.write(LARGE)
    writer.close()
    await turns()
    assert server.got == b"first" + LARGE
    assert server.events == ["lost"]


async def test_an_aborted_connection_loses_bytes_that_have_not_arrived(network: MemoryNetwork) -> None:
    server = Server()
    reader, writer = await connected(network, server)
    server.transport.write(b"never read")
    server.transport.abort()
    assert await reader.read() == b""
    assert writer.is_closing()


async def test_a_writer_pauses_while_its_reader_does_not_read(network: MemoryNetwork) -> None:
    server = Server()
    reader, writer = await connected(network, server)
    writer.transport.pause_reading()
    server.transport.set_write_buffer_limits(high=0)
    server.transport.write(LARGE)
    assert server.transport.get_write_buffer_size() == len(LARGE) - BUFFER_BYTES
    assert server.events == ["pause"]
    writer.transport.resume_reading()
    assert await reader.readexactly(len(LARGE)) == LARGE
    assert server.events == ["pause", "resume"]
    writer.close()


async def test_a_reader_that_pauses_within_a_buffer_gets_the_rest_when_it_resumes(network: MemoryNetwork) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer, self.got = bytearray(4), bytearray()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, MemoryTransport)
            self.transport = transport

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.buffer[:nbytes]
            self.transport.pause_reading()

    server = Server()
    _, writer = await connected(network, server)
    _, reader = await network.create_connection(Buffered, "localhost", writer.get_extra_info("peername")[1])
    assert isinstance(reader, Buffered)
    server.transport.write(b"0123456789")
    for got in (b"0123", b"01234567", b"0123456789"):
        await turns()
        assert reader.got == got
        reader.transport.resume_reading()
    writer.close()


async def test_a_connection_to_a_port_without_a_listener_is_refused(network: MemoryNetwork) -> None:
    with pytest.raises(ConnectionRefusedError, match="nobody listens on localhost:9092"):
        await asyncio.open_connection("localhost", 9092)


async def test_two_sockets_can_bind_a_port_but_only_one_can_listen(network: MemoryNetwork) -> None:
    async with Broker({"listeners": "PLAINTEXT://localhost:9092"}):
        with pytest.raises(StartError, match="cannot listen on localhost:9092: .*in use"):
            await Broker({"listeners": "PLAINTEXT://localhost:9092"}).astart()
    async with Broker({"listeners": "PLAINTEXT://localhost:9092"}) as again:
        assert again.bootstrap_servers == "localhost:9092"


async def test_a_broker_and_its_client_use_only_the_memory_network(network: MemoryNetwork) -> None:
    async with Broker({"listeners": "PLAINTEXT://localhost:9092"}, nodes=2) as broker:
        assert broker.bootstrap_servers == "localhost:9092,localhost:9093"
        settings = ClientSettings({"bootstrap.servers": broker.bootstrap_servers})
        async with AsyncClient(settings) as client:
            answer = await client.request(MetadataRequest(topics=None))
            assert [each.node_id for each in answer.brokers] == [1, 2]
            broker.kill()
            await turns()
            await broker.arestart()
            assert len((await client.request(MetadataRequest(topics=None))).brokers) == 2
