"""The TLS layer of a connection: a protocol for the socket's transport, and a transport for its `ClientSocket`.

    transport --> get_buffer, buffer_updated --> OpenSSL --> application
    transport <------- write <---- OpenSSL <---- write <---- application

The TLS transports of asyncio and uvloop are not used: they buffer up to 512 KiB per connection outside of all budgets,
use the loop's clock for deadlines, and log failed handshakes with a traceback. Here a connection that is not read
buffers only the result of one read, which is counted; handshakes are limited in time and bytes; and each connection
starts with the current keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from minibroker.broker.network.framing import OWN_BYTES
from minibroker.broker.network.sockets import ClientSocket, SharedSocketState, get_host_name, get_peer_name
from minibroker.broker.security.distinguished_names import MalformedName, read_certificate_subject
from minibroker.broker.security.principal_mapping import NoRuleApplies
from minibroker.broker.security.principals import ANONYMOUS, USER, Principal

if TYPE_CHECKING:
    from minibroker.broker.clock import Timer
    from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
    from minibroker.broker.security.tls import TlsSettings

log = logging.getLogger("minibroker.connections")

READ_BYTES = 64 << 10
HANDSHAKE_BYTES = 256 << 10  # a certificate chain has at most 100 KiB
UNSENT_BYTES = 16 << 10  # of OpenSSL's own messages to a client that reads nothing
NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNSUPPORTED_PROTOCOL", "UNEXPECTED_MESSAGE")


class ConnectionAdmission(Protocol):
    """The limits that admit, mute or close new connections."""

    def admit_connection(self, connection: TlsLayer, close_soon: Callable[[], None]) -> None:
        """Admit a new connection, mute it, or close it."""

    def release_connection(self, connection: TlsLayer) -> None:
        """Remove a closed connection."""


class TlsLayer(asyncio.BufferedProtocol):
    """The TLS of a connection. `make_application` creates the protocol that serves it, after the handshake."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedSocketState,
        tls: TlsSettings,
        make_application: Callable[[], ClientSocket],
        limits: ConnectionAdmission,
        limit_ms: float,
        node_id: int,
        listener: str,
        statistics: AuthenticationStatistics,
    ) -> None:
        self.node_id = node_id
        self.listener = listener
        self._statistics = statistics
        self.principal = ANONYMOUS
        self._loop = loop
        self._shared = shared
        self._mapping = tls.mapping
        self._make_application = make_application
        self._application: ClientSocket | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._limits = limits
        self._limit_ms = limit_ms
        self._deadline: Timer | None = None
        self._handshake_bytes = 0
        self._paused = False  # by the application
        self._is_stopped = False  # whether the transport does not read
        self._is_muted = False
        self._is_full = False  # the transport
        self._counted_bytes = 0

    # --- as the transport's protocol ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer, self.host = get_peer_name(transport), get_host_name(transport)
        self._shared.handshakes.add(self)
        self._limits.admit_connection(self, self._abort_soon)
        if not self._is_muted:
            self._start_handshake_timeout()
        if self._shared.closed:
            self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.scratch[: OWN_BYTES if self._shared.budget.full else READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._shared.scratch[:nbytes])
        if self._application is None:
            self._handshake_bytes += nbytes
        else:
            self._application.progress_ms = self._shared.now_ms()
        self._process_received_data()

    def _process_received_data(self) -> None:
        if self._transport.is_closing():
            return
        if self._is_muted:
            self._transport.pause_reading()  # uvloop continues to read if this is called before it starts
            return
        if self._application is None:
            self._continue_handshake()
        if self._application is not None:
            self._decrypt_received()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_full = True
        if self._application is not None:
            self._application.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush_output()
        if self._application is not None:
            self._application.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._shared.handshakes and self._handshake_bytes:
            log.info("%s has gone during the TLS handshake", self.peer)
        self._end_handshake()
        self._limits.release_connection(self)
        self._update_backlog_bytes(0)
        if self._application is not None:
            self._application.connection_lost(error)
            self._application = None

    # --- handshake ------------------------------------------------------------------------------

    @property
    def progress_ms(self) -> float:
        """Return when bytes were last received or sent, by the monotonic clock; now, during the handshake."""
        return self._shared.now_ms() if self._application is None else self._application.progress_ms

    def mute(self) -> None:
        """Read and decrypt nothing until `unmute`, as there are too many connections."""
        self._is_muted = True
        self._transport.pause_reading()

    def unmute(self) -> None:
        """Resume a muted connection; its timeout begins now."""
        self._is_muted = False
        if not self._transport.is_closing():
            self._start_handshake_timeout()
            self._transport.resume_reading()
            self._loop.call_soon(self._process_received_data)

    def _abort_soon(self) -> None:
        self._loop.call_soon(self.abort)

    def _start_handshake_timeout(self) -> None:
        self._deadline = self._shared.clock.call_later(self._limit_ms, self._close_after_handshake_timeout)

    def _continue_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_output()
            if self._handshake_bytes > HANDSHAKE_BYTES:
                self._close_with_warning(f"it sent more than {HANDSHAKE_BYTES} bytes of a TLS handshake")
            return
        except ssl.SSLError as error:
            self._close_with_warning(_explain_tls_error(error))
            return
        self._flush_output()
        try:
            self.principal = self._identify_client()
        except (NoRuleApplies, MalformedName) as error:
            self._close_with_warning(str(error))
            return
        self._end_handshake()
        self._application = self._make_application()
        self._application.connection_made(cast(asyncio.Transport, self))

    def _identify_client(self) -> Principal:
        """Return the identity in the client's certificate. Raises NoRuleApplies, MalformedName."""
        certificate = self._tls.getpeercert(binary_form=True)
        if certificate is None or self._mapping is None:
            return ANONYMOUS
        return Principal(USER, self._mapping.map_distinguished_name(read_certificate_subject(certificate)))

    def _end_handshake(self) -> None:
        self._shared.handshakes.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def _close_after_handshake_timeout(self) -> None:
        self._close_with_warning(f"its TLS handshake took more than {self._limit_ms:g} ms")

    def _close_with_warning(self, reason: str) -> None:
        log.warning("closing %s: %s", self.peer, reason)
        self._statistics.failed += 1
        self._flush_output()  # TLS tells the client, too
        self._end_handshake()
        self._transport.close()

    # --- reading --------------------------------------------------------------------------------

    def _decrypt_received(self) -> None:
        """Pass received data to the application, as far as it accepts it."""
        ended = False
        while not (ended or self._paused or self._transport.is_closing()):
            if not self._has_undecrypted_data():
                break
            application = self._application
            assert application is not None
            room = application.get_buffer(-1)
            count, ended = self._decrypt_into_buffer(room)
            if count == 0:
                break
            application.buffer_updated(count)
        self._flush_output()
        if ended and not self._transport.is_closing():
            self.close()
        self._update_backlog_bytes(self._incoming.pending if self._paused else 0)

    def _has_undecrypted_data(self) -> bool:
        return bool(self._incoming.pending or self._tls.pending())

    def _decrypt_into_buffer(self, buffer: memoryview) -> tuple[int, bool]:
        """Decrypt into `buffer`; return the number of bytes, and whether the client has finished sending."""
        filled = 0
        try:
            while filled < len(buffer):
                count = cast(int, self._tls.read(len(buffer) - filled, cast(bytearray, buffer[filled:])))
                if count == 0:
                    return filled, True
                filled += count
                if not self._has_undecrypted_data():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLZeroReturnError):
                log.warning("closing %s: %s", self.peer, _explain_tls_error(error))
            return filled, True
        return filled, False

    def _update_backlog_bytes(self, waiting_bytes: int) -> None:
        """Count encrypted data that waits as bytes behind unfinished requests."""
        if waiting_bytes != self._counted_bytes:
            self._shared.budget.add_backlog_bytes(waiting_bytes - self._counted_bytes)
            self._counted_bytes = waiting_bytes

    def _decrypt_unless_paused(self) -> None:
        if self._paused or self._application is None or self._transport.is_closing():
            return
        self._decrypt_received()
        if not self._paused:
            self._resume_stopped_reading()

    def _flush_output(self) -> None:
        """Send OpenSSL's output; while the client reads nothing, keep a little of it."""
        if not self._is_full:
            data = self._outgoing.read()
            if data:
                self._transport.write(data)
        elif self._outgoing.pending > UNSENT_BYTES:
            self._transport.abort()

    # --- as the application's transport ---------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._transport.is_closing() or not data:
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:  # the client has ended TLS
            self._transport.abort()
            return
        self._transport.write(self._outgoing.read())

    def pause_reading(self) -> None:
        self._paused = True
        if not self._is_stopped:
            self._is_stopped = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._has_undecrypted_data():
            self._loop.call_soon(self._decrypt_unless_paused)
        else:
            self._resume_stopped_reading()

    def _resume_stopped_reading(self) -> None:
        if self._is_stopped and not self._transport.is_closing():
            self._is_stopped = False
            self._transport.resume_reading()

    def close(self) -> None:
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the client has not ended TLS yet, and need not
                self._tls.unwrap()
            self._transport.write(self._outgoing.read())
            self._transport.close()

    def abort(self) -> None:
        self._end_handshake()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self.principal if name == "principal" else self._transport.get_extra_info(name, default)


def _explain_tls_error(error: ssl.SSLError) -> str:
    """Return the client's error, in one line."""
    reason = error.reason or str(error)
    if reason in NOT_TLS:
        return f"it does not speak TLS as this listener does ({reason})"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return f"TLS failed: {reason}"
