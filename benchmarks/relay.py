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


async def serve(host: str, port: int) -> None:
    """Relay until the process ends."""
    loop = asyncio.get_running_loop()
    connecting = set()

    def accept() -> End:
        client, node = End(), End()
        client.other, node.other = node, client
        connecting.add(loop.create_task(loop.create_connection(lambda: node, host, port)))
        return client

    server = await loop.create_server(accept, "127.0.0.1", 0)
    print(f"relaying on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
