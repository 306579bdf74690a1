"""One connection without I/O: it encodes requests into bytes, and decodes received bytes into answers.

It assigns correlation ids. Answers must come in the order of their requests, as Kafka's do. A frame is kept whole, and
records in an answer are views of it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minibroker.client.client_errors import ForeignServer, ProtocolError, UnsupportedVersion
from minibroker.protocol.apis import ApiKey, get_api_name, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    find_response_version,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.primitives import MalformedMessage

NEWEST: Final = 32_767
START_BYTES: Final = 8  # enough to know another protocol by
_SIZE: Final = struct.Struct(">i")
_BUFFER_BYTES: Final = 16 << 10
_FRAME_BYTES: Final = 16 << 20  # for a larger frame, the buffer grows with the bytes that have come
_MAX_CORRELATION_ID: Final = (1 << 31) - 1

STARTS: Final = {
    b"HTTP/": "HTTP",
    b"SSH-": "SSH",
    b"AMQP": "AMQP",
    b"\x15\x03": "TLS",  # an alert
}


class PendingRequest(NamedTuple):
    """A request that waits for its answer."""

    correlation_id: int
    api_key: int
    version: int


class Connection:
    """The state of one connection. `versions` are those that the broker supports, by API key; empty before ApiVersions.

    `max_frame_bytes` bounds an answer. After a `ProtocolError` the connection cannot be used any more.
    """

    def __init__(self, client_id: str, max_frame_bytes: int) -> None:
        self.versions: Mapping[int, range] = {}
        self.answers: dict[int, Any] = {}  # by correlation id
        self.pending: deque[PendingRequest] = deque()
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._next_id = 0
        self._data = bytearray(_BUFFER_BYTES)
        self._filled = 0

    def choose_version(self, request: type[Message], lowest: int = 0, highest: int = NEWEST) -> int:
        """Return the newest version of a request that both sides support. Raises `UnsupportedVersion`."""
        theirs = self.versions.get(request.api_key, range(0))
        versions = range(max(lowest, request.versions[0], *theirs[:1]), min(highest, request.versions[-1]) + 1)
        if not theirs:
            raise UnsupportedVersion(f"the broker does not support {get_api_name(request.api_key)}")
        if not versions or theirs[-1] < versions[0]:
            supported = f"versions {theirs[0]} to {theirs[-1]}"
            raise UnsupportedVersion(
                f"the broker supports {supported} of {get_api_name(request.api_key)}, but we need {lowest} or newer"
            )
        return min(theirs[-1], versions[-1])

    def encode_request(self, request: Message, version: int, *, is_answered: bool = True) -> tuple[int, bytes]:
        """Return a request's correlation id, which will be the key of its answer in `answers`, and its bytes.

        A Produce request with acks=0 is not answered.
        """
        correlation_id = self._next_id
        self._next_id = correlation_id + 1 & _MAX_CORRELATION_ID
        key = ApiKey(request.api_key)
        header = RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=self._client_id
        )
        frame = header.encode(get_request_header_version(key, version)) + request.encode(version)
        if is_answered:
            self.pending.append(PendingRequest(correlation_id, key, version))
        return correlation_id, _SIZE.pack(len(frame)) + frame

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty."""
        return memoryview(self._data)[self._filled :]

    def process_received_bytes(self, count: int) -> None:
        """Process `count` bytes that were put into the buffer. Raises `ProtocolError`."""
        self._filled += count
        position = frame_bytes = 0
        while self._filled - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._data, position)
            if not 0 < size <= self._max_frame_bytes:
                raise _make_not_an_answer_error(bytes(self._data[position : min(self._filled, position + START_BYTES)]))
            frame_bytes = _SIZE.size + size
            if self._filled - position < frame_bytes:
                break
            self._decode_answer(memoryview(self._data)[position + _SIZE.size : position + frame_bytes])
            position, frame_bytes = position + frame_bytes, 0
        capacity = max(_BUFFER_BYTES, min(frame_bytes, max(_FRAME_BYTES, 2 * self._filled)))
        if position or capacity > len(self._data):
            rest = self._data[position : self._filled]
            self._data = bytearray(capacity)  # a new one, as answers keep views of the old one
            self._data[: len(rest)] = rest
            self._filled = len(rest)

    def _decode_answer(self, frame: memoryview) -> None:
        """Decode the frame of an answer, and put the answer into `answers`. Raises `ProtocolError`."""
        if not self.pending:
            raise ProtocolError("an answer without a request")
        request = self.pending.popleft()
        try:
            header, position = ResponseHeader.decode_from(
                frame, get_response_header_version(request.api_key, request.version)
            )
            if header.correlation_id != request.correlation_id:
                raise ProtocolError(f"an answer to request {header.correlation_id}, not to {request.correlation_id}")
            version = find_response_version(request.api_key, request.version, frame, position)
            answer = get_response_class(request.api_key).decode(frame, version, position)
        except MalformedMessage as error:
            raise ProtocolError(str(error)) from None
        self.answers[request.correlation_id] = answer


def _make_not_an_answer_error(start: bytes) -> ProtocolError:
    """Return the error for the first bytes of a frame with an impossible size, maybe of another protocol."""
    foreign = guess_foreign_protocol(start)
    return ForeignServer(foreign) if foreign else ProtocolError(f"a frame of {_SIZE.unpack_from(start)[0]} bytes")


def guess_foreign_protocol(start: bytes) -> str | None:
    """Return the name of the protocol of which these are the first bytes, or None if it is not known."""
    return next((name for beginning, name in STARTS.items() if start.startswith(beginning)), None)
