"""The client in an asyncio event loop. Any number of tasks may share it, and each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from minibroker.client.blocking import set_socket_options
from minibroker.client.client_connection import Connection
from minibroker.client.client_errors import ProtocolError
from minibroker.client.cluster_client import ClusterClient
from minibroker.client.connection_settings import ClientSettings

Result = TypeVar("Result")


class AsyncClient(ClusterClient):
    """Connections to the nodes of one cluster, made when they are first needed. Use it in an `async with` block."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, LoopNetwork())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LoopLink(asyncio.BufferedProtocol):
    """A connection over a transport of the event loop."""

    expires_s = float("inf")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self.used_s = self._loop.time()
        self._waiting: dict[int, asyncio.Future[Any]] = {}  # by correlation id
        self._error: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    # For the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self.connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand each complete answer to the task that waits for it."""
        try:
            self.connection.process_received_bytes(nbytes)
        except ProtocolError as error:
            self._fail_pending_requests(error)
        for correlation_id in self.connection.answers.keys() & self._waiting.keys():
            waiting, answer = self._waiting.pop(correlation_id), self.connection.answers.pop(correlation_id)
            if not waiting.done():  # the task may have been cancelled
                waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests that wait for an answer."""
        self._fail_pending_requests(exc or ConnectionResetError("the broker closed the connection"))

    def pause_writing(self) -> None:
        """Make writers wait, as the transport's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Wake the writers."""
        self._writable.set()

    # For the client

    async def write(self, data: bytes, timeout_s: float) -> None:
        """Send bytes, in the order of calls: the transport takes them before the first await."""
        if self._error is not None:
            raise self._error
        assert self._transport is not None
        self._transport.write(data)
        async with asyncio.timeout(timeout_s):
            await self._writable.wait()

    async def wait_for_answer(self, correlation_id: int, timeout_s: float) -> Any:
        """Return the decoded answer to a request, once it has come."""
        if correlation_id in self.connection.answers:
            return self.connection.answers.pop(correlation_id)
        if self._error is not None:
            raise self._error
        self._waiting[correlation_id] = waiting = self._loop.create_future()
        async with asyncio.timeout(timeout_s):
            return await waiting

    def is_open(self) -> bool:
        """Return whether the connection has not failed or been closed."""
        return self._error is None

    def close(self) -> None:
        """Close the connection."""
        self._fail_pending_requests(ConnectionAbortedError("the connection was closed"))

    def attach_protocol_to_transport(self, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
        """Let another protocol have the transport, as if it had just connected. Return the transport.

        Requests can still be sent here; the protocol has to pass their answers to `process_received_bytes`.
        """
        assert self._transport is not None
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        return self._transport

    def process_received_bytes(self, data: bytes | bytearray) -> None:
        """Process bytes of the broker that another protocol of the transport has received."""
        left = memoryview(data)
        while left:
            buffer = self.get_buffer(len(left))
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            self.buffer_updated(count)
            left = left[count:]

    def _fail_pending_requests(self, error: Exception) -> None:
        self._error = self._error or error
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._error)
        self._waiting.clear()


class LoopNetwork:
    """The running event loop."""

    def read_clock_s(self) -> float:
        """Return seconds of the loop's clock."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        await asyncio.sleep(seconds)

    async def call_blocking(self, function: Callable[[], Result]) -> Result:
        """Call a function in another thread, and return its result."""
        return await asyncio.to_thread(function)

    def make_lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a new lock between tasks."""
        return asyncio.Lock()

    async def connect(self, host: str, port: int, settings: ClientSettings, timeout_s: float) -> LoopLink:
        """Connect, with TLS if the settings say so. Raises OSError."""
        connection = Connection(settings.client_id, settings.max_frame_bytes)
        name = None if settings.tls is None else host
        async with asyncio.timeout(timeout_s):
            try:
                transport, link = await asyncio.get_running_loop().create_connection(
                    lambda: LoopLink(connection), host, port, ssl=settings.tls, server_hostname=name
                )
            except UnicodeError:  # of IDNA, as for a name with an empty part
                raise OSError(f"{host} cannot be the name of a host") from None
        connected: socket.socket = transport.get_extra_info("socket")
        set_socket_options(connected, settings)
        return link
