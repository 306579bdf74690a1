"""The sockets of connections: read into shared buffers, and write bytes and file regions in order.

The same class serves uvloop and asyncio, plaintext and TLS (`tls_layer` then stands between it and the socket). Frames
and requests are the connection's business.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, Final, cast

from minibroker.broker.clock import Clock
from minibroker.broker.network.busy_polling import BusyPolling
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.framing import FrameBudget
from minibroker.broker.network.output_items import BYTES, CLOSE, AnswerEndMark
from minibroker.broker.network.unread import UnreadBytes
from minibroker.operating_system import HAS_SENDFILE

if TYPE_CHECKING:
    from minibroker.broker.network.tls_layer import TlsLayer

log = logging.getLogger("minibroker.connections")

SCRATCH_BYTES: Final = 256 << 10
JOINED_REGION_BYTES: Final = 16 << 10  # up to this size a copy is cheaper than a separate sendfile
PILOT_BYTES: Final = 16 << 10  # written by the transport when the socket is full, so that it reports when there is room
COPY_BYTES: Final = 64 << 10  # above this, fresh memory for every read costs page faults
TURN_BYTES: Final = 1 << 20

AT_ONCE: Final = pack("ii", 1, 0)  # on, for 0 seconds
IPV4_MAPPED: Final = bytes(10) + b"\xff\xff"  # how IPv6 writes an address of IPv4 begins

Attach = Callable[["ClientSocket", asyncio.BaseTransport], Connection]
CALLED_BY_LOOP: Final = (
    "connection_made",
    "connection_lost",
    "get_buffer",
    "buffer_updated",
    "pause_writing",
    "resume_writing",
)


class SharedSocketState:
    """The shared state of all sockets of an event loop: clock, buffers and their limits, and the open sockets."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.now_ms = clock.monotonic_ms
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.budget = FrameBudget(clock=clock)
        self.unread = UnreadBytes(self.now_ms)
        self.sockets: set[ClientSocket] = set()
        self.handshakes: set[TlsLayer] = set()  # of clients that are no sockets yet
        self.lost: Callable[[Connection], None] = lambda _: None  # called with each that has been closed
        self.closed = False  # also for clients that are accepted meanwhile
        self.polling: BusyPolling | None = None


class SocketProtocol(asyncio.BufferedProtocol):
    """What a loop calls for a `ClientSocket`: its own methods, as no compiled class can be derived from asyncio's."""

    __slots__ = CALLED_BY_LOOP

    def __init__(self, client: ClientSocket) -> None:
        for name in CALLED_BY_LOOP:
            setattr(self, name, getattr(client, name))


class ClientSocket:
    """A client's socket. `attach(socket, transport)` creates its connection once the client has connected."""

    __slots__ = (
        "_attach",
        "_connection",
        "_copies",
        "_descriptor",
        "_held",
        "_is_full",
        "_loop",
        "_paused_reading",
        "_pump_due",
        "_queue",
        "_sent_bytes",
        "_shared",
        "_transport",
        "_write_paused",
        "connected_ms",
        "progress_ms",
    )
    __deletable__ = ("_connection",)  # mypyc's word for what `connection_lost` deletes

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedSocketState, attach: Attach) -> None:
        self._loop = loop
        self._shared = shared
        self._attach = attach
        self._queue: deque[Any] = deque()  # bytes, storage regions and marks, in the order of sending
        self._sent_bytes = 0  # of the region, or the long bytes, at the head of the queue
        self._write_paused = False  # the transport accepts no more (`_is_full`), or output is held back (`_held`)
        self._is_full = False
        self._held = False
        self._pump_due = False
        self._paused_reading = False
        self.progress_ms = self.connected_ms = shared.now_ms()

    # --- life -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected: socket.socket = transport.get_extra_info("socket")
        # asyncio leaves Nagle's algorithm on for sockets whose protocol number is 0: 40 ms stalls.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = connected.fileno()
        self._copies = transport.get_extra_info("ssl_object") is not None
        self._transport.set_write_buffer_limits(high=0)
        self._connection = self._attach(self, transport)
        self._shared.sockets.add(self)
        if self._shared.closed:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._shared.sockets.discard(self)
        self._drop_queued_output()
        self._connection.drop_lost_client()
        self._shared.lost(self._connection)
        del self._connection  # which refers to this socket, too

    def close(self) -> None:
        """Close once all queued output is sent."""
        if self._queue:
            self._queue.append(CLOSE)
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._drop_queued_output()
        if self._is_full and not self._transport.is_closing():
            # Otherwise the kernel would keep offering data that the client does not read.
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self._transport.abort()

    def abort_soon(self) -> None:
        """Close in the loop's next turn."""
        self._loop.call_soon(self.abort)

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def connection(self) -> Connection:
        return self._connection

    # --- reading --------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_receive_buffer(self._shared.scratch)

    def buffer_updated(self, nbytes: int) -> None:
        self.progress_ms = self._shared.now_ms()
        self._connection.process_received_data(self._shared.scratch, nbytes)
        if self._shared.polling is not None:
            self._shared.polling.keep_polling_after_read()

    def pause_reading(self) -> None:
        if not self._paused_reading:
            self._paused_reading = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._paused_reading and not self._transport.is_closing():
            self._paused_reading = False
            self.progress_ms = self._shared.now_ms()  # the client was idle because the broker did not read
            self._transport.resume_reading()

    # --- writing --------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Return whether output waits for the client to read it."""
        return bool(self._queue) or self._write_paused

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def send(self, items: list[Any]) -> None:
        if (
            len(items) == 1
            and not (self._queue or self._write_paused or self._pump_due)
            and items[0].__class__ in BYTES
            and not self._copies
            and not self._transport.is_closing()
        ):
            self._transport.write(items[0])  # as below; most answers are one, alone
            return
        self._queue += items
        if not self._write_paused and not self._pump_due:
            self._write_queue_to_kernel()
        elif self._is_full:
            self._report_unread_bytes()

    def count_unread_bytes(self) -> int:
        """Return how many written bytes the client has not read; while it is not 0, nothing more is written."""
        return self._transport.get_write_buffer_size()

    def _report_unread_bytes(self) -> None:
        queued_bytes = sum([len(item) for item in self._queue if item.__class__ in BYTES])
        self._shared.unread.set_unread_bytes(self, self.count_unread_bytes() + queued_bytes)

    def hold_back_output(self) -> None:
        """Hold back all output, as if the process were stopped."""
        self._held = self._write_paused = True

    def send_held_output(self) -> None:
        """Send the output that was held back."""
        if self._held:
            self._held = False
            self._resume_writes_if_allowed()

    def pause_writing(self) -> None:
        self._is_full = self._write_paused = True
        self._report_unread_bytes()

    def resume_writing(self) -> None:
        self._is_full = False
        self._shared.unread.remove_client(self)  # it read everything; what is left is booked again
        self._resume_writes_if_allowed()

    def _resume_writes_if_allowed(self) -> None:
        """Continue to write, unless the transport is full or output is held back."""
        self._write_paused = self._is_full or self._held
        if not self._write_paused:
            # It may be called inside transport.write: never pump here.
            self._schedule_output()

    def _schedule_output(self) -> None:
        if not self._pump_due:
            self._pump_due = True
            self._loop.call_soon(self._write_output_and_resume)

    def _write_output_and_resume(self) -> None:
        self._pump_due = False
        self.progress_ms = self._shared.now_ms()
        self._write_queue_to_kernel()
        if self.is_congested:
            self._report_unread_bytes()
        elif not self._transport.is_closing():
            self._shared.unread.remove_client(self)
            self._connection.resume_requests()

    def _write_queue_to_kernel(self) -> None:
        """Pass as much to the kernel as it accepts, at most about TURN_BYTES; the only place that writes."""
        budget_bytes = TURN_BYTES
        queue = self._queue
        while queue and not self._write_paused:
            if self._transport.is_closing():
                self._drop_queued_output()
                return
            if queue[0].__class__ in BYTES:
                is_long = self._must_write_in_pieces(queue[0])
                budget_bytes -= self._write_piece_of_long_bytes() if is_long else self._write_joined_items()
            elif queue[0] is CLOSE:
                self._drop_queued_output()
                self._transport.close()
                return
            elif queue[0].__class__ is AnswerEndMark:
                queue.popleft().report_answer_sent()
            else:
                budget_bytes -= self._send_region_part(queue[0])
            if budget_bytes <= 0 and queue:
                self._schedule_output()
                return

    def _write_joined_items(self) -> int:
        """Write the bytes and small regions at the head of the queue at once, as a write costs 10 us; return the size.

        A region that cannot be read stays in the queue, for whoever sends it alone.
        """
        queue = self._queue
        parts: list[Any] = [queue.popleft()]
        marks: list[AnswerEndMark] = []
        copied_bytes = 0
        while queue and queue[0] is not CLOSE:
            item = queue[0]
            if item.__class__ is AnswerEndMark:
                marks.append(item)
            elif item.__class__ in BYTES:
                if copied_bytes >= COPY_BYTES or self._must_write_in_pieces(item):
                    break
                parts.append(item)
            else:
                data = b""
                if item.size_bytes <= JOINED_REGION_BYTES:
                    data = self._read_region(item, item.position, item.size_bytes)
                if len(data) != item.size_bytes:
                    break
                parts.append(data)
                copied_bytes += len(data)
            queue.popleft()
        joined = parts[0] if len(parts) == 1 else b"".join(parts)
        self._transport.write(joined)
        for mark in marks:
            mark.report_answer_sent()
        return len(joined)

    def _must_write_in_pieces(self, item: Any) -> bool:
        """Return whether the item is bytes that would take too long to encrypt at once."""
        return self._copies and item.__class__ in BYTES and len(item) > TURN_BYTES

    def _write_piece_of_long_bytes(self) -> int:
        """Write a part of the long bytes at the head of the queue; return how many bytes."""
        data = self._queue[0]
        with memoryview(data) as view:
            piece = view[self._sent_bytes : self._sent_bytes + TURN_BYTES]
            self._transport.write(piece)
            self._sent_bytes += len(piece)
        if self._sent_bytes == len(data):
            self._queue.popleft()
            self._sent_bytes = 0
        return TURN_BYTES

    def _send_region_part(self, region: Any) -> int:
        """Send a part of the region at the head of the queue; return how many bytes."""
        position = region.position + self._sent_bytes
        left = region.size_bytes - self._sent_bytes
        try:
            send = self._send_copy_of_region if self._copies or not HAS_SENDFILE else self._send_region_from_file
            sent = send(region, position, left)
        except ConnectionError:
            self.abort()  # the client has disconnected
            return 0
        except OSError as error:
            log.error("reading %s at %d failed: %s", region.file.path, position, error)
            sent = 0
        if sent == 0:
            self._abort_for_missing_bytes(region)
        elif sent == left:
            self._queue.popleft()
            self._sent_bytes = 0
        else:
            self._sent_bytes += sent
        return sent

    def _send_region_from_file(self, region: Any, position: int, remaining_bytes: int) -> int:
        """Send a part of the region by sendfile, or a small copy if that would block; return how many bytes."""
        try:
            sent: int = region.file.sendfile(self._descriptor, position, min(remaining_bytes, TURN_BYTES))
            return sent
        except (BlockingIOError, InterruptedError):
            # The transport cannot report when there is room, except after a write that did not fit.
            return self._send_copy_of_region(region, position, min(remaining_bytes, PILOT_BYTES))

    def _send_copy_of_region(self, region: Any, position: int, remaining_bytes: int) -> int:
        """Read a part of the region and write it to the transport; return how many bytes."""
        data = self._read_region(region, position, min(remaining_bytes, COPY_BYTES))
        if data:
            self._transport.write(data)
        return len(data)

    def _read_region(self, region: Any, position: int, size_bytes: int) -> bytes:
        """Return bytes of a region: fewer if the file is shorter, none if the disk fails."""
        try:
            data: bytes = region.file.read(position, size_bytes)
            return data
        except OSError as error:
            log.error("reading %s at %d failed: %s", region.file.path, position, error)
            return b""

    def _drop_queued_output(self) -> None:
        self._shared.unread.remove_client(self)
        dropped = list(self._queue)
        self._queue.clear()
        for item in dropped:
            if item.__class__ is AnswerEndMark:
                item.report_answer_lost()

    def _abort_for_missing_bytes(self, region: Any) -> None:
        """Close the connection, as the length was already sent and the bytes are missing."""
        log.error("%s ends before the %d bytes at %d", region.file.path, region.size_bytes, region.position)
        self.abort()


def get_peer_name(transport: asyncio.BaseTransport) -> str:
    """Return the address of the client, for people."""
    name = transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "?")


def get_host_name(transport: asyncio.BaseTransport) -> str:
    """Return the client's IP address as Java writes it, for comparison with hosts in ACLs and quotas.

    IPv6 has all of its eight numbers; IPv4 in it is IPv4.
    """
    name = transport.get_extra_info("peername")
    host = name[0] if isinstance(name, tuple) else ""
    if ":" not in host:
        return host
    address, percent, scope = host.partition("%")
    packed = socket.inet_pton(socket.AF_INET6, address)
    if packed.startswith(IPV4_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(IPV4_MAPPED) :])
    return ":".join(f"{number:x}" for number in unpack(">8H", packed)) + percent + scope
