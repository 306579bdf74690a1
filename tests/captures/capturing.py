"""Captures for tests: TCP connections as tcpdump would have seen them, written by dpkt."""

from __future__ import annotations

import io
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import dpkt

CLIENT, SERVER = ("127.0.0.1", 50_000), ("127.0.0.1", 9092)
SYN, ACK, FIN, PUSH = 2, 16, 1, 8
LINUX_ANY, LINUX_ANY_2, LOOPBACK, RAW, ETHERNET = 113, 276, 0, 101, 1
FIRST_TIME = 1_700_000_000.0

Packet = tuple[float, bytes]


class Wire:
    """A connection whose packets are captured, a millisecond apart. Sequence numbers begin at `isn`."""

    def __init__(self, client: tuple[str, int] = CLIENT, server: tuple[str, int] = SERVER, isn: int = 1000) -> None:
        self.packets: list[Packet] = []
        self._ends = client, server
        self._next = [isn, isn + 7]
        self.link = ETHERNET

    def open(self) -> Wire:
        for side, flags in ((0, SYN), (1, SYN | ACK), (0, ACK)):
            self._packet(side, b"", flags)
            self._next[side] += bool(flags & SYN)
        return self

    def asks(self, data: bytes, segment_bytes: int = 1448) -> Wire:
        return self._sends(0, data, segment_bytes)

    def answers(self, data: bytes, segment_bytes: int = 1448) -> Wire:
        return self._sends(1, data, segment_bytes)

    def close(self) -> Wire:
        for side in (0, 1):
            self._packet(side, b"", FIN | ACK)
            self._next[side] += 1
        return self

    def _sends(self, side: int, data: bytes, segment_bytes: int) -> Wire:
        for start in range(0, len(data), segment_bytes):
            piece = data[start : start + segment_bytes]
            self._packet(side, piece, ACK | PUSH)
            self._next[side] += len(piece)
        return self

    def _packet(self, side: int, data: bytes, flags: int) -> None:
        (source, sport), (target, dport) = self._ends[side], self._ends[1 - side]
        segment = dpkt.tcp.TCP(
            sport=sport,
            dport=dport,
            seq=self._next[side] % 2**32,
            ack=self._next[1 - side] % 2**32,
            flags=flags,
            data=data,
        )
        addresses = {"src": ip_address(source).packed, "dst": ip_address(target).packed}
        packet: Any
        if ":" in source:
            packet = dpkt.ip6.IP6(nxt=6, hlim=64, plen=20 + len(data), data=segment, **addresses)
            packet.extension_hdrs = {}
        else:
            packet = dpkt.ip.IP(p=6, data=segment, len=40 + len(data), **addresses)
        self.packets.append((FIRST_TIME + len(self.packets) / 1000, self._framed(packet, ":" in source)))

    def _framed(self, packet: Any, is_6: bool) -> bytes:
        kind = 0x86DD if is_6 else 0x0800
        if self.link == ETHERNET:
            return bytes(dpkt.ethernet.Ethernet(type=kind, data=packet))
        if self.link == LINUX_ANY:
            return bytes.fromhex("0000 0304 0006 000000000000 0000") + kind.to_bytes(2, "big") + bytes(packet)
        if self.link == LINUX_ANY_2:
            return kind.to_bytes(2, "big") + bytes.fromhex("0000 00000001 0304 00 06 0000000000000000") + bytes(packet)
        if self.link == LOOPBACK:
            return (2).to_bytes(4, "little") + bytes(packet)
        return bytes(packet)


def pcap(packets: Iterable[Packet], link: int = ETHERNET, *, nano: bool = False) -> bytes:
    """Return a pcap file."""
    file = io.BytesIO()
    writer = dpkt.pcap.Writer(file, linktype=link, nano=nano)
    for time, packet in packets:
        writer.writepkt(packet, time)
    return file.getvalue()


def pcapng(packets: Iterable[Packet], link: int = ETHERNET) -> bytes:
    """Return a pcapng file."""
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file, linktype=link)
    for time, packet in packets:
        writer.writepkt(packet, time)
    return file.getvalue()
