"""A blocking connection: one request, one answer, in any version.

What is sent and what must come back lives in the tests. The messages are minibroker's own, which `conformance/messages`
holds against Kafka's definitions. The socket is plain, without `minibroker.client`, as tests also send bytes that no
client sends, and look at the bytes that come back.
"""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any

from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)

TIMEOUT_S = 20
MAX_ANSWER_BYTES = 64 << 20


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class Connection:
    """To one broker, from one of this machine's addresses; closed at the end of a with block."""

    def __init__(self, bootstrap: str, client_id: str = "wire", address: str = "127.0.0.1") -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.bootstrap = bootstrap
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S, source_address=(address, 0))
        self._correlation_ids = itertools.count(7)
        self._client_id = client_id

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """The decoded answer: an object of the response's class. Raises ConnectionClosed."""
        return self.answer(request.api_key, version, self.send(request, version))

    def send(self, request: Message, version: int) -> int:
        """Sends only; returns the correlation id."""
        header_version = get_request_header_version(request.api_key, version)
        return self.send_request(request.api_key, version, request.encode(version), header_version=header_version)

    def send_request(self, api_key: int, version: int, body: bytes, *, header_version: int = 1) -> int:
        """A request of any key and version, with whatever follows its header; returns the correlation id."""
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._client_id,
        )
        self.send_frame(header.encode(header_version) + body)
        return correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def answer(self, api_key: int, version: int, correlation_id: int) -> Any:
        """The next answer, decoded to its very end. Raises ConnectionClosed."""
        frame = self.frame()
        header, position = ResponseHeader.decode_from(frame, get_response_header_version(api_key, version))
        assert header.correlation_id == correlation_id
        return get_response_class(ApiKey(api_key)).decode(frame, version, position)

    def frame(self) -> bytes:
        """The next answer with its header, as it came. Raises ConnectionClosed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        assert 0 <= size <= MAX_ANSWER_BYTES
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Waits for the broker to close the connection, and tells whether it did so without a byte."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self._socket.recv(size - len(data))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise ConnectionClosed
            data += chunk
        return bytes(data)
