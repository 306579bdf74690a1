"""The two sockets of a relayed connection: bytes in and out, and why a side is not read at the moment.

A side is not read while the other one takes nothing (backpressure), so that memory stays bounded in both directions.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final, Protocol, cast

from minibroker.broker.network.sockets import AT_ONCE, SharedSocketState
from minibroker.proxy.frame_splitting import FrameSplitter

READ_BYTES: Final = 256 << 10


class SideObserver(Protocol):
    """What connects the two sides."""

    def on_connected(self, side: ProxySide) -> None:
        """Called when a side is open."""

    def on_end_of_stream(self, side: ProxySide) -> None:
        """Called when a side sends nothing more."""

    def on_lost(self, side: ProxySide, error: Exception | None) -> None:
        """Called when a side is closed."""


class ProxySide(asyncio.BufferedProtocol):
    """A socket, and the other side of it. `splitter` takes what it sends."""

    def __init__(self, shared: SharedSocketState, between: SideObserver) -> None:
        self._scratch = shared.scratch[:READ_BYTES]
        self._between = between
        self._stops: set[str] = set()
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self.progress_ms = 0.0  # which the TLS layer sets
        self.splitter: FrameSplitter
        self.other: ProxySide
        self.has_ended = False

    # --- as the transport's protocol --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = cast(asyncio.Transport, transport)
        self._is_tls = transport.get_extra_info("ssl_object") is not None
        self._between.on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.splitter.get_buffer(self._scratch)

    def buffer_updated(self, nbytes: int) -> None:
        self.splitter.process_received_bytes(self._scratch, nbytes)
        if self.splitter.is_full:
            self.pause_reading("backlog")

    def eof_received(self) -> bool:
        self.has_ended = True
        self._between.on_end_of_stream(self)
        return not self._is_tls  # the other direction stays open, which TLS cannot do

    def pause_writing(self) -> None:
        self.other.pause_reading("the other side is full")

    def resume_writing(self) -> None:
        self.other.resume_reading("the other side is full")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if error is None:
            self.splitter.pass_incomplete_frame()
        self.splitter.close()
        self._between.on_lost(self, error)

    # --- for what is between ----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Return whether bytes can be sent to it."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_connected(self) -> bool:
        """Return whether it has a socket, which may be closing."""
        return self._transport is not None

    @property
    def transport(self) -> asyncio.Transport:
        """Return its transport, once it is connected."""
        assert self._transport is not None
        return self._transport

    def pause_reading(self, reason: str) -> None:
        """Do not read from it until `resume_reading` is called with the same reason."""
        if not self._stops and self.is_open:
            self.transport.pause_reading()
        self._stops.add(reason)

    def resume_reading(self, reason: str) -> None:
        """Read from it again, unless there is another reason not to."""
        if reason in self._stops:
            self._stops.discard(reason)
            if not self._stops and self.is_open:
                self.transport.resume_reading()

    def resume_splitting(self) -> None:
        """Split the bytes that wait in its splitter."""
        self.splitter.resume_after_hold()
        if not self.splitter.is_full:
            self.resume_reading("backlog")

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes, or drop them if it is closed."""
        if data and self.is_open:
            self.transport.write(data)

    def send_eof(self) -> None:
        """Send nothing more; what was written still goes out."""
        if not self.is_open:
            return
        if self._is_tls or self.has_ended:
            self.transport.close()
        else:
            with contextlib.suppress(OSError):  # it has been cut meanwhile
                self.transport.write_eof()

    def close(self) -> None:
        """Close once everything is sent."""
        if self.is_open:
            self.transport.close()

    def reset_connection(self) -> None:
        """Reset the connection."""
        if self.is_open:
            with contextlib.suppress(OSError):
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        if self._transport is not None:
            self._transport.abort()  # also one that is closing, as TLS waits for the other side then
