"""Servers and clients of plain sockets, with which a proxy cannot tell that they know no Kafka."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from minibroker.proxy.proxy import Proxy

PATIENCE_S = 60


@contextmanager
def connected() -> Iterator[tuple[Proxy, socket.socket, socket.socket]]:
    """A proxy, a client of it, and the end of the node, all of which are closed in the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        with (
            Proxy(f"127.0.0.1:{server.getsockname()[1]}") as proxy,
            client_of(proxy) as client,
            server.accept()[0] as node,
        ):
            node.settimeout(PATIENCE_S)
            yield proxy, client, node


def client_of(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def exactly(connection: socket.socket, count: int) -> bytes:
    """The next bytes of a connection, or fewer if it ends."""
    found = bytearray()
    while len(found) < count and (piece := connection.recv(min(count - len(found), 1 << 20))):
        found += piece
    return bytes(found)


def to_the_end(connection: socket.socket) -> bytes:
    found = bytearray()
    while piece := connection.recv(1 << 20):
        found += piece
    return bytes(found)


def request(api_key: int, version: int, correlation_id: int = 1, body: bytes = b"", client_id: str = "c") -> bytes:
    """The frame of a request with a header of version 1."""
    name = client_id.encode()
    frame = struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + body
    return struct.pack(">i", len(frame)) + frame


def answer(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body
