"""One request over a socket of its own, in any version, and its answer; what is asked is in the tests."""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any

from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.testing import Broker

SIZE = Struct(">i")


def asked(broker: Broker, request: Message, version: int, read_as: int | None = None) -> Any:
    """The answer to one request, None if the connection was closed without one."""
    key = ApiKey(request.api_key or 0)
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=5, client_id="raw")
    frame = header.encode(min(get_request_header_version(key, version), 2)) + request.encode(
        min(version, max(type(request).versions))
    )
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(SIZE.pack(len(frame)) + frame)
        with connection.makefile("rb") as stream:
            start = stream.read(SIZE.size)
            if not start:
                return None
            answer = stream.read(SIZE.unpack(start)[0])
    read_as = version if read_as is None else read_as
    _, position = ResponseHeader.decode_from(answer, get_response_header_version(key, read_as))
    return get_response_class(key).decode(answer, read_as, position)
