"""Sends the requests of recorded exchanges to another cluster, and compares the answers.

Each recorded connection becomes one of its own, to the node with the same id if there is one, else to the bootstrap
server. A request is sent once all answers have come that the client had when it sent it; so what ran at the same time
does so again. Requests of logins are left out: the replay logs in by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from minibroker.client.asynchronous import AsyncClient, LoopNetwork
from minibroker.client.client_errors import FAILURES
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.client.opening import negotiate_and_authenticate
from minibroker.protocol.apis import ApiKey
from minibroker.proxy.comparing import ClusterIdentities, list_differences
from minibroker.proxy.requests import is_answered
from minibroker.testing.seen.exchange import Exchange

LOGIN: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
LEAVING: Final = "lost"  # the client did not wait for the answer
_SIZE: Final = Struct(">i")


class ReplayedRequest(NamedTuple):
    """A request that was sent again. `problem` says why there is no answer; without one, `differences` has lines."""

    exchange: Exchange
    differences: list[str]
    problem: str = ""
    is_skipped: bool = False


class ExchangeReplay:
    """A replay to the cluster of a client's settings."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._identities = ClusterIdentities()
        self._nodes: Mapping[int, Address] = {}
        self._lines: dict[str, RawConnection] = {}

    async def replay_exchanges(self, exchanges: Iterable[Exchange]) -> AsyncIterator[ReplayedRequest]:
        """Send all requests, and yield what came of each, in their order. Raises ClientError, OSError."""
        self._nodes = await _fetch_node_addresses(self._settings)
        running: list[
            tuple[float, asyncio.Task[ReplayedRequest]]
        ] = []  # by the number of the request that waits for it
        try:
            for exchange in sorted(exchanges, key=lambda each: each.number):
                while running and (before := min(running, key=lambda each: each[0]))[0] <= exchange.number:
                    running.remove(before)
                    yield await before[1]
                running.append((_get_end_time_ms(exchange), asyncio.create_task(self._replay_exchange(exchange))))
                await asyncio.sleep(0)  # so that its bytes are written before those of the next one
            for _, task in sorted(running, key=lambda each: each[0]):
                yield await task
        finally:
            for _, task in running:
                task.cancel()
            for line in self._lines.values():
                line.close()

    async def _replay_exchange(self, exchange: Exchange) -> ReplayedRequest:
        """Send a request again, and compare its answer."""
        if exchange.api_key in LOGIN:
            return ReplayedRequest(exchange, [], is_skipped=True)
        line = self._lines.get(exchange.connection)
        if line is None:
            address = self._nodes.get(exchange.node_id, self._settings.bootstrap[0])
            line = self._lines[exchange.connection] = RawConnection(address, self._settings)
        frame = self._identities.translate_request(exchange)
        expects = exchange.outcome != LEAVING and (
            exchange.api_key != ApiKey.PRODUCE or is_answered(memoryview(frame), exchange.version)
        )
        try:
            answer = await line.send_and_receive(frame, expects)
        except TimeoutError:
            return ReplayedRequest(exchange, [], f"no answer within {self._settings.request_timeout_ms:,} ms")
        except (*FAILURES, EOFError) as error:
            return ReplayedRequest(exchange, [], str(error) or "the connection was closed")
        if not expects or not exchange.answer_bytes:
            return ReplayedRequest(exchange, [])
        return ReplayedRequest(exchange, list_differences(exchange, answer, self._identities))


class RawConnection:
    """A connection for raw frames, opened with the first one."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._opening: asyncio.Task[tuple[asyncio.StreamReader, asyncio.StreamWriter]] | None = None
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()

    async def send_and_receive(self, frame: bytes, expects_answer: bool) -> bytes:
        """Send a frame; return the next answer, or nothing. Raises EOFError, or one of `FAILURES`."""
        try:
            return await self._send_frame(frame, expects_answer)
        except TimeoutError:
            self.close()  # or the next request would get the answer that comes late
            raise

    async def _send_frame(self, frame: bytes, expects_answer: bool) -> bytes:
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_connection())
        async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
            async with self._writing:  # in the order of the calls
                reader, writer = await asyncio.shield(self._opening)
                writer.write(_SIZE.pack(len(frame)) + frame)
            if not expects_answer:
                await writer.drain()
                return b""
            async with self._reading:
                size = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
                if not 0 <= size <= self._settings.max_frame_bytes:
                    raise ConnectionError(f"an answer of {size} bytes")
                return await reader.readexactly(size)

    async def _open_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        settings, network, timeout_s = self._settings, LoopNetwork(), self._settings.setup_timeout_ms / 1000
        link = await network.connect(self._address.host, self._address.port, settings, timeout_s)
        try:
            if settings.credentials is not None:
                await negotiate_and_authenticate(link, settings, network, timeout_s)
        except BaseException:
            link.close()
            raise
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = link.hand_over_transport(protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    def close(self) -> None:
        """Close the connection. Another request opens a new one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result()[1].close()
            opening.cancel()


async def _fetch_node_addresses(settings: ClientSettings) -> Mapping[int, Address]:
    """Return the addresses of all nodes. Raises ClientError."""
    async with AsyncClient(settings) as client:
        await client.connect_to_any_node()  # which does not try again for long
        answer = await client.metadata()
        return {each.node_id: Address(each.host, each.port) for each in answer.brokers}


def _get_end_time_ms(exchange: Exchange) -> float:
    return float("inf") if exchange.ended_before is None else exchange.ended_before
