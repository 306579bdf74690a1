"""A way to a broker on which connections break off: after a random number of bytes, in either direction.

When a connection breaks, and who goes this way, is each test's business. Nothing here tests anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator

PIECE_BYTES = 1 << 14
LONGEST_BYTES = 50_000


class CuttingProxy:
    """Listens on `port` of 127.0.0.1 and passes on to `target_port`; a share of the connections breaks off."""

    def __init__(self, port: int, target_port: int, seed: int, share: float) -> None:
        self._ports = port, target_port
        self._chosen = random.Random(seed)
        self._share = share
        self.cuts = 0

    async def serve(self) -> asyncio.Server:
        """Begin to listen."""
        return await asyncio.start_server(self._connected, "127.0.0.1", self._ports[0])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._ports[1])
            writers.append(back)
            ways = [asyncio.ensure_future(way) for way in (self._pass_on(reader, back), self._pass_on(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except OSError:
            return  # the broker is away
        finally:
            for each in writers:
                each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cuts = self._chosen.random() < self._share
        left = self._chosen.randrange(1, LONGEST_BYTES) if cuts else None
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE_BYTES):
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                writer.write(data)
                await writer.drain()
                if left == 0:
                    self.cuts += 1
                    return


@contextlib.contextmanager
def cutting_proxy(port: int, target_port: int, seed: int, share: float) -> Iterator[CuttingProxy]:
    """A proxy that runs, in a thread of its own, as long as the block."""
    proxy = CuttingProxy(port, target_port, seed, share)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(proxy.serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))  # in which the transports close their sockets
        loop.close()
