"""Exchanges as a pcap file, which Wireshark, tshark and `minibroker explain` read.

The packets are made up from the frames, since the proxy sees no packets: IP and TCP without options, with the
addresses of the client and the node, a handshake at the beginning of a connection, and right checksums. What was
encrypted on the wire is plain here; passwords and proofs of a login are left out, as in the journal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import chain
from struct import Struct, pack
from typing import Final, NamedTuple

from minibroker.testing.seen.exchange import Exchange

MICROSECONDS: Final = 0xA1B2C3D4  # the magic number of a file whose times are in us
RAW_IP: Final = 101  # LINKTYPE_RAW: packets begin with the IP header
SNAPSHOT_BYTES: Final = 1 << 16
SEGMENT_BYTES: Final = 32 << 10  # of data in a packet
MOST_STREAMS: Final = 10_000
TCP: Final = 6
SYN, ACK, PUSH = 0x02, 0x10, 0x08
WINDOW: Final = 0xFFFF
NOWHERE: Final = ("0.0.0.0", 0)
_PACKET: Final = Struct("<IIII")
_TCP: Final = Struct(">HHIIBBHHH")
_SIZE: Final = Struct(">i")

Address = IPv4Address | IPv6Address


def make_pcap_header() -> bytes:
    """Return the head of a pcap file."""
    return pack("<IHHiIII", MICROSECONDS, 2, 4, 0, 0, SNAPSHOT_BYTES, RAW_IP)


class TcpEnd(NamedTuple):
    """One end of a TCP connection."""

    address: Address
    port: int


TcpEnds = tuple[TcpEnd, TcpEnd]


class TcpStream:
    """A TCP connection. `sent_bytes` are those of each end so far, its SYN included."""

    def __init__(self, client: TcpEnd, server: TcpEnd) -> None:
        self.ends = (client, server)
        self.sent_bytes = [0, 0]


class PacketWriter:
    """The packets of exchanges, which are formatted in the order in which they end."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, str], TcpStream] = OrderedDict()

    def iterate_packets(self, exchange: Exchange, server: str) -> Iterator[bytes]:
        """Return the packets of an exchange with the node at this address, each of which is made when it is wanted."""
        begin_us = exchange.started_ms * 1000
        end_us = begin_us + round((exchange.duration_ms or 0) * 1000)
        stream = self._streams.pop((exchange.connection, server), None)
        handshake: list[bytes] = []
        if stream is None:
            stream = TcpStream(_parse_tcp_end(exchange.connection), _parse_tcp_end(server))
            handshake += _make_handshake_packets(stream, begin_us)
        self._streams[exchange.connection, server] = stream
        if len(self._streams) > MOST_STREAMS:
            self._streams.popitem(last=False)
        request = _make_packets_of_frame(stream, 0, exchange.request_bytes, begin_us)
        answer = _make_packets_of_frame(stream, 1, exchange.answer_bytes, end_us) if exchange.answer_bytes else ()
        return chain(handshake, request, answer)


def _parse_tcp_end(text: str) -> TcpEnd:
    """Return the end with the address HOST:PORT; one that is no IP address becomes 0.0.0.0."""
    host, _, port = text.rpartition(":")
    try:
        return TcpEnd(ip_address(host.strip("[]").partition("%")[0]), int(port))
    except ValueError:
        return TcpEnd(ip_address(NOWHERE[0]), int(port) if port.isdecimal() else NOWHERE[1])


def _make_handshake_packets(stream: TcpStream, at_us: int) -> Iterator[bytes]:
    """Yield the three packets that open a TCP connection."""
    for sender, flags in ((0, SYN), (1, SYN | ACK), (0, ACK)):
        yield _make_packet(stream.ends, sender, flags, b"", at_us, tuple(stream.sent_bytes))
        if flags & SYN:
            stream.sent_bytes[sender] += 1


def _make_packets_of_frame(stream: TcpStream, sender: int, frame: bytes, at_us: int) -> Iterator[bytes]:
    """Return the packets of a frame. The stream's `sent_bytes` count it at once, so that others may follow."""
    before = list(stream.sent_bytes)
    stream.sent_bytes[sender] += _SIZE.size + len(frame)
    return _split_into_packets(stream.ends, sender, frame, at_us, before)


def _split_into_packets(ends: TcpEnds, sender: int, frame: bytes, at_us: int, sent_bytes: list[int]) -> Iterator[bytes]:
    """Yield the packets of a frame with its size, and add them to the sender's `sent_bytes`."""
    head = _SIZE.pack(len(frame))
    for start in range(-len(head), len(frame), SEGMENT_BYTES):
        piece = head + frame[: start + SEGMENT_BYTES] if start < 0 else bytes(frame[start : start + SEGMENT_BYTES])
        yield _make_packet(ends, sender, ACK | PUSH, piece, at_us, tuple(sent_bytes))
        sent_bytes[sender] += len(piece)


def _make_packet(ends: TcpEnds, sender: int, flags: int, data: bytes, at_us: int, sent_bytes: tuple[int, ...]) -> bytes:
    """Return a packet with its pcap header. `sent_bytes` are those that each end has sent before."""
    source, target = ends[sender], ends[1 - sender]
    sequence = sent_bytes[sender] & 0xFFFFFFFF
    acknowledged = sent_bytes[1 - sender] & 0xFFFFFFFF if flags & ACK else 0
    head = _TCP.pack(source.port, target.port, sequence, acknowledged, _TCP.size // 4 << 4, flags, WINDOW, 0, 0)
    addresses = _convert_to_same_ip_version(source.address, target.address)
    pseudo = b"".join(each.packed for each in addresses) + pack(">II", len(head) + len(data), TCP)
    checksum = _compute_checksum(pseudo + head + data)
    packet = _make_ip_packet(addresses, head[:16] + pack(">H", checksum) + head[18:] + data)
    return _PACKET.pack(at_us // 1_000_000, at_us % 1_000_000, len(packet), len(packet)) + packet


def _convert_to_same_ip_version(source: Address, target: Address) -> tuple[Address, Address]:
    """Return both as IPv4 or both as IPv6, as a packet has only one kind."""
    if source.version == target.version:
        return source, target
    return _convert_to_ipv6(source), _convert_to_ipv6(target)


def _convert_to_ipv6(address: Address) -> IPv6Address:
    return address if isinstance(address, IPv6Address) else IPv6Address(f"::ffff:{address}")


def _make_ip_packet(addresses: tuple[Address, Address], payload: bytes) -> bytes:
    source, target = addresses
    if source.version == 6:
        return pack(">IHBB", 6 << 28, len(payload), TCP, 64) + source.packed + target.packed + payload
    head = pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, TCP, 0) + source.packed + target.packed
    return head[:10] + pack(">H", _compute_checksum(head)) + head[12:] + payload


def _compute_checksum(data: bytes) -> int:
    """Return the checksum of RFC 1071: the complement of the sum of all 16-bit words."""
    if len(data) % 2:
        data += b"\0"
    total = int.from_bytes(data) % 0xFFFF  # 65536 is 1 modulo 65535, so this is the folded sum of the words
    return (0xFFFF - total) & 0xFFFF
