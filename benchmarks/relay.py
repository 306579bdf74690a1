"""A plain TCP relay on uvloop, beside which the proxy is measured: it reads and writes, and looks at nothing."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class End(asyncio.Protocol):
    """One end of a connection; what arrives before the other end is there waits."""

    def __init__(self) -> None:
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is not None and self.other.waiting:
            self.transport.write(self.other.waiting)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.waiting += data
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Connector:
    """Connects clients with a node."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.connecting: set[asyncio.Task[object]] = set()

    def connect(self, client: End, node: End) -> End:
        """Begin the connection of `node`, and make it and the client's the ends of one; return the client's."""
        client.other, node.other = node, client
        loop = asyncio.get_running_loop()
        self.connecting.add(loop.create_task(loop.create_connection(lambda: node, self.host, self.port)))
        return client


async def serve(host: str, port: int) -> None:
    """Relay until the process ends."""
    connector = Connector(host, port)
    server = await asyncio.get_running_loop().create_server(lambda: connector.connect(End(), End()), "127.0.0.1", 0)
    print(f"relaying on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
