"""The floor below the ping-pong: a bare uvloop protocol that answers each request with the same bytes.

What it takes, the loop, the kernel and one Python call for each read take in every server on uvloop. Run as a program,
this file is that server: `floor.py REQUEST_BYTES ANSWER`, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import cast

import uvloop

import programs
import servers
import wire
from exchanges import RATE_COLUMNS, pinged
from report import Case, Sample, Section
from servers import Target


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each, as those of the ping-pong."""
    shapes = [("1 connection", 1, 1), ("50 connections", 50, 1), ("1 connection, 16 in flight", 1, 16)]
    return [
        Section(
            "floor",
            "The floor: the same ping-pong with a bare uvloop protocol, which knows the answer",
            RATE_COLUMNS,
            [_floor_case(*shape, seconds) for shape in shapes],
        )
    ]


def _floor_case(name: str, connections: int, depth: int, seconds: float) -> Case:
    def measure(target: Target) -> Sample:
        if target.name != "minibroker":
            raise programs.Unavailable("its loop is another one")
        with wire.topic(target.server) as topic:
            request = wire.produce_request(topic, wire.batch([b"x" * 100]))
            with socket.create_connection((target.server.host, target.server.port)) as client:
                client.sendall(request)
                answer = wire.receive(client)
            answer = len(answer).to_bytes(4, "big") + answer
            with servers.process([sys.executable, __file__, str(len(request)), answer.hex()]) as server:
                return pinged(server, request, wire.produce_error_at(topic), seconds, connections, depth)

    return Case(name, measure)


class Knowing(asyncio.Protocol):
    """Answers each request of a connection with the same bytes. All requests have the same size."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self.request_bytes = request_bytes
        self.answer = answer
        self.left_bytes = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        count, self.left_bytes = divmod(self.left_bytes + len(data), self.request_bytes)
        if count and self.transport is not None:
            self.transport.write(self.answer * count)


async def serve(request_bytes: int, answer: bytes) -> None:
    """Answer until the process ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Knowing(request_bytes, answer), "127.0.0.1", 0)
    print(f"answering on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), bytes.fromhex(sys.argv[2])))
