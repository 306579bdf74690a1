"""Report what a client sends and receives: names, versions, sizes and times; never contents, which may be secret."""

from __future__ import annotations

import time
from collections.abc import Callable

from minibroker.client.blocking import BlockingNetwork, SocketLink
from minibroker.client.client_connection import Connection
from minibroker.client.client_errors import ProtocolError, get_error_name
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.protocol.apis import get_api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.legible import make_legible
from minibroker.protocol.response_errors import collect_error_codes

ReportLine = Callable[[str], None]


class TracedNetwork(BlockingNetwork):
    """Blocking sockets that report a line for each connection, request and answer."""

    def __init__(self, report: ReportLine) -> None:
        self._trace = report

    def _trace_line(self, text: str) -> None:
        """Give a line of the trace to the caller's function, without unprintable characters."""
        self._trace(make_legible(text))  # the text may contain a host name from a broker

    async def connect(self, host: str, port: int, settings: ClientSettings, timeout_s: float) -> SocketLink:
        """Connect, and report the address and how long it took. Raises OSError."""
        address, start_s = Address(host, port), time.monotonic()
        try:
            link = await super().connect(host, port, settings, timeout_s)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            self._trace_line(f"{address}: no connection after {_format_elapsed(start_s)}: {reason}")
            raise
        self._trace_line(f"{address}: connected in {_format_elapsed(start_s)}{', with TLS' if settings.tls else ''}")
        return link

    def make_connection(self, address: Address, settings: ClientSettings) -> Connection:
        """Return the protocol state for a new connection to this address, which traces requests and answers."""
        return TracedConnection(address, settings, self._trace_line)


class TracedConnection(Connection):
    """A connection that reports its requests and answers."""

    def __init__(self, address: Address, settings: ClientSettings, report: ReportLine) -> None:
        super().__init__(settings.client_id, settings.max_frame_bytes)
        self._address = address
        self._trace_line = report
        self._sent_s: dict[int, float] = {}  # by correlation id

    def encode_request(self, request: Message, version: int, *, is_answered: bool = True) -> tuple[int, bytes]:
        """Report a request, and return its correlation id and bytes."""
        correlation_id, data = super().encode_request(request, version, is_answered=is_answered)
        name = f"{get_api_name(request.api_key)} {version}"
        self._trace_line(f"{self._address}: request {correlation_id}: {name}, {len(data)} bytes")
        if is_answered:
            self._sent_s[correlation_id] = time.monotonic()
        return correlation_id, data

    def _decode_answer(self, frame: memoryview) -> None:
        """Decode an answer, and trace its size, its errors and how long it took."""
        request = self.pending[0] if self.pending else None
        try:
            super()._decode_answer(frame)
        except ProtocolError as error:
            self._trace_line(f"{self._address}: malformed answer, {len(frame)} bytes: {error}")
            raise
        assert request is not None
        name = f"{get_api_name(request.api_key)} {request.version}"
        codes = dict.fromkeys(collect_error_codes(self.answers[request.correlation_id]))
        errors = "".join(f", {get_error_name(code)}" for code in codes)
        took = _format_elapsed(self._sent_s.pop(request.correlation_id))
        self._trace_line(
            f"{self._address}: answer {request.correlation_id}: {name}, {len(frame)} bytes after {took}{errors}"
        )


def _format_elapsed(start_s: float) -> str:
    return f"{(time.monotonic() - start_s) * 1000:.1f} ms"
