"""A connection of the HTTP server: h11 reads and writes HTTP/1.1, and this file moves bytes and waits.

One request is answered at a time. Of a client that sends the next one meanwhile, or more of a body than anybody reads,
no more is read; an answer that the client does not read waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import h11

if TYPE_CHECKING:
    from minibroker.web.asgi import AsgiApplication

log = logging.getLogger("minibroker.web")

HEAD_BYTES: Final = 64 << 10  # of the line and the headers of a request
UNREAD_BYTES: Final = 64 << 10  # of a body: then no more is read until somebody asks for it
LATE_BYTES: Final = 16 << 20  # read of a body behind its answer, as a client that cannot send does not listen
LATE_SECONDS: Final = 1.0


def _make_head(status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
    return h11.Response(status_code=status, reason=HTTPStatus(status).phrase.encode(), headers=headers)


class WriteFlowControl:
    """Whether an answer may be written on: not while the client reads too slowly."""

    def __init__(self) -> None:
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_writing_paused(self) -> bool:
        """Whether writers must wait, as the client reads too slowly."""
        return not self._writable.is_set()

    def pause(self) -> None:
        """Let writers wait."""
        self._writable.clear()

    def resume(self) -> None:
        """Let writers go on."""
        self._writable.set()

    async def wait_until_writable(self) -> None:
        """Wait until more may be written."""
        await self._writable.wait()


class HttpConnection(asyncio.Protocol):
    """A connection. `connections` has those of the server, `tasks` what answers their requests.

    Beyond the first `most` of them, a connection gets 503.
    """

    def __init__(
        self, application: AsgiApplication, connections: set[HttpConnection], tasks: set[asyncio.Task[None]], most: int
    ) -> None:
        self._application, self._connections, self._tasks, self._most = application, connections, tasks, most
        self.parser = h11.Connection(h11.SERVER, HEAD_BYTES)
        self.flow = WriteFlowControl()
        self.transport: asyncio.Transport = cast(Any, None)
        self.cycle: RequestCycle | None = None
        self._is_one_too_many = False
        self._late_bytes: int | None = None  # read behind the last answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self._is_one_too_many = len(self._connections) > self._most

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self.cycle is not None:
            self.cycle.is_disconnected = True
            self.cycle.changed.set()
        self.flow.resume()

    def pause_writing(self) -> None:
        self.flow.pause()

    def resume_writing(self) -> None:
        self.flow.resume()

    def data_received(self, data: bytes) -> None:
        if self._late_bytes is not None:
            self._late_bytes += len(data)
            if self._late_bytes > LATE_BYTES:
                self.transport.close()
            return
        self.parser.receive_data(data)
        self.handle_events()

    def handle_events(self) -> None:
        """Handle requests, bodies and their ends as h11 reads them, until a request is not answered yet."""
        while not self.transport.is_closing():
            try:
                event = self.parser.next_event()
            except h11.RemoteProtocolError as error:
                return self.refuse_request(error.error_status_hint)
            if event is h11.PAUSED:
                return self.transport.pause_reading()
            if isinstance(event, h11.Request):
                self._begin_request(event)
            elif isinstance(event, h11.Data) and self.cycle is not None:
                self.cycle.add_to_request_body(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage) and self.cycle is not None:
                self.cycle.end_request_body()
                if self.parser.our_state is h11.DONE:
                    self.parser.start_next_cycle()
            else:  # more is needed, or the client is gone
                return

    def _begin_request(self, request: h11.Request) -> None:
        """Begin to run the application for a request, or refuse it."""
        if self._is_one_too_many:
            return self.refuse_request(503)
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            return self.refuse_request(400)  # a proxy may have read another body (RFC 9112, 6.1)
        self.cycle = RequestCycle(self, request)
        task = asyncio.get_running_loop().create_task(self.cycle.run(self._application))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def refuse_request(self, status: int) -> None:
        """Answer a request in the application's place, unless it has begun to, and close the connection."""
        if self.parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-length", b"0"), (b"connection", b"close")]  # an answer to HEAD has no body, either
            self.write_events([_make_head(status, headers), h11.EndOfMessage()])
        self.transport.close()

    def write_events(self, events: Iterable[Any]) -> None:
        """Write the bytes of these h11 events."""
        self.transport.write(b"".join(self.parser.send(event) or b"" for event in events))

    def begin_next_request(self) -> None:
        """Go on with the next request, if the connection stays."""
        if self.parser.our_state is not h11.DONE:
            return self._close_after_body()
        if self.parser.their_state is h11.DONE:
            self.parser.start_next_cycle()
        self.transport.resume_reading()
        self.handle_events()

    def _close_after_body(self) -> None:
        """Close the connection, but read on for a moment if the client still sends a body: then it sees the answer."""
        if self.parser.their_state is not h11.SEND_BODY or not self.transport.can_write_eof():
            return self.transport.close()
        self._late_bytes = 0
        self.transport.write_eof()
        self.transport.resume_reading()
        asyncio.get_running_loop().call_later(LATE_SECONDS, self.transport.close)

    def shutdown(self) -> None:
        """Close the connection once its request is answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.stays = False


class RequestCycle:
    """A request and its answer, as an application of ASGI has them."""

    def __init__(self, connection: HttpConnection, request: h11.Request) -> None:
        self._connection = connection
        path, _, query = request.target.partition(b"?")
        self._scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": request.method.decode("ascii"),
            "raw_path": path,
            "path": path.decode("ascii"),
            "query_string": query,
            "headers": list(request.headers),
        }
        self._body = bytearray()
        self._is_whole = self._was_told = False  # the body, and that it is
        self._start: MutableMapping[str, Any] | None = None  # the head of the answer, until it is sent
        self.response_complete = self.is_disconnected = False
        self.stays = True
        self.changed = asyncio.Event()

    async def run(self, application: AsgiApplication) -> None:
        """Run the application. Close the connection if it leaves the answer unfinished."""
        try:
            await application(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the server ends, and cuts its connections
        except Exception:
            log.exception("a request failed: %s %r", self._scope["method"], self._scope["raw_path"])
            if not self._connection.transport.is_closing():
                self._connection.refuse_request(500)
        if not self.response_complete:
            self._connection.transport.close()

    def add_to_request_body(self, data: bytes) -> None:
        """Add a part of the body, unless it comes too late."""
        if self.response_complete:
            return
        self._body += data
        if len(self._body) > UNREAD_BYTES:
            self._connection.transport.pause_reading()
        self.changed.set()

    def end_request_body(self) -> None:
        """Note that the body is whole."""
        self._is_whole = True
        self.changed.set()

    async def receive(self) -> MutableMapping[str, Any]:
        """Return an ASGI message: the next part of the body, or that the client is gone or has its answer."""
        connection = self._connection
        if connection.parser.they_are_waiting_for_100_continue and not connection.transport.is_closing():
            connection.write_events([h11.InformationalResponse(status_code=100, headers=[])])
        while not (self._body or self.is_disconnected or self.response_complete):
            if self._is_whole and not self._was_told:
                break
            self.changed.clear()
            connection.transport.resume_reading()
            await self.changed.wait()
        if self.is_disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._was_told = self._is_whole
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send the head or a part of the body that an ASGI message has; wait while the client does not read."""
        connection = self._connection
        await connection.flow.wait_until_writable()
        if self.is_disconnected or connection.transport.is_closing():
            return await asyncio.sleep(0)  # in which the application learns it
        if message["type"] == "http.response.start":
            self._start = message
            return
        events: list[Any] = []
        if self._start is not None:
            closing = [] if self.stays else [(b"connection", b"close")]
            events.append(_make_head(self._start["status"], [*self._start["headers"], *closing]))
            self._start = None
        if message.get("body"):
            events.append(h11.Data(data=message["body"]))
        if not message.get("more_body", False):
            events.append(h11.EndOfMessage())
            self.response_complete = True
        connection.write_events(events)
        if self.response_complete:
            self.changed.set()
            connection.begin_next_request()
