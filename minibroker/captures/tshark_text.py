"""Reads what `tshark -z follow,tls,raw,N` and `-z follow,tcp,raw,N` print: the bytes of both directions, in hex.

This is how the bytes of TLS connections are had: tshark decrypts them with the keys of a SSLKEYLOGFILE.

    Follow: tls,raw
    Filter: tcp.stream eq 0
    Node 0: 127.0.0.1:50000
    Node 1: 127.0.0.1:9093
    0000002400120003...             what node 0 has sent
    <tab>0000019a00000001...        what node 1 has sent
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from minibroker.captures.packets import Address, MalformedPacket
from minibroker.captures.tcp_streams import Connection, make_stream
from minibroker.protocol.legible import make_legible

_BEGIN: Final = re.compile(r"^Follow: \w+,raw\s*$", re.MULTILINE)
_NODE: Final = re.compile(r"Node [01]: (.*):(\d+)\s*")


def is_tshark_text(text: str) -> bool:
    """Return whether a text has streams that tshark has followed."""
    return _BEGIN.search(text) is not None


def iterate_connections(text: str) -> Iterator[Connection]:
    """Yield the connections. Raises Malformed."""
    for part in _BEGIN.split(text)[1:]:
        nodes: list[Address] = []
        data = bytearray(), bytearray()
        for line in part.splitlines():
            if (node := _NODE.fullmatch(line)) is not None:
                nodes.append(Address(make_legible(node[1].strip("[]")), int(node[2])))
            elif line.startswith("==="):
                break
            elif line.strip() and not line.startswith("Filter:"):
                data[line.startswith("\t")].extend(_parse_hex_line(line))
        if len(nodes) != 2 or not any(node.host for node in nodes):  # of TLS, tshark 4.0 names only one
            raise MalformedPacket("tshark found no such stream: -d tcp.port==9093,tls says that a port speaks TLS")
        client, server = nodes
        yield Connection(client, server, make_stream(bytes(data[0])), make_stream(bytes(data[1])), has_begin=False)


def _parse_hex_line(line: str) -> bytes:
    try:
        return bytes.fromhex(line)
    except ValueError:
        raise MalformedPacket(f"{line[:40]!r} is no line of hex: -z follow needs the mode raw") from None
