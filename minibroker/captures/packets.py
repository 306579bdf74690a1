"""Reads the TCP segments of a pcap or pcapng file. dpkt, of the extra `capture`, knows the formats and headers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

PCAP_MAGICS: Final = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1")
PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
MISSING_EXTRA: Final = "captures need the extra capture: python3 -m pip install dpkt"
# Link types (https://www.tcpdump.org/linktypes.html) whose packets begin with an IP header.
_RAW: Final = (12, 14, 101, 228, 229)
_VERSION_4: Final = 4


class MalformedPacket(ValueError):
    """A file that is no capture, or of a kind that cannot be read; the message says why."""


class Address(NamedTuple):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(NamedTuple):
    """A TCP segment. `time` is in seconds since 1970. `lost_bytes` of its end were not captured (a small snaplen)."""

    time: float
    source: Address
    target: Address
    sequence: int
    flags: int
    data: bytes
    lost_bytes: int


class Capture:
    """The segments of a file. `others` counts packets that are no TCP; `problem` says why reading ended early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.others = 0
        self.problem = ""

    def iterate_segments(self) -> Iterator[Segment]:
        """Yield all segments in their order. Raises Malformed for a file that is no capture of a known link type."""
        reader = _make_pcap_reader(self._data)
        decode = _find_link_layer_decoder(reader.datalink())
        for time, packet in self._iterate_packets(reader):
            segment = _parse_segment(time, packet, decode)
            if segment is None:
                self.others += 1
            else:
                yield segment

    def _iterate_packets(self, reader: Any) -> Iterator[tuple[float, bytes]]:
        """Yield the time and the bytes of each packet, up to the place where the file is cut off or damaged."""
        from dpkt import Error

        packets = iter(reader)
        while True:
            try:
                time, packet = next(packets)
            except StopIteration:
                return
            except (Error, ValueError) as error:
                reason = str(error) or type(error).__name__
                self.problem = f"the file ends in the middle of a packet, or is damaged: {reason}"
                return
            yield float(time), packet


def is_capture(data: bytes) -> bool:
    """Return whether the bytes begin like a pcap or pcapng file."""
    return data[:4] in PCAP_MAGICS or data[:4] == PCAPNG_MAGIC


def _make_pcap_reader(data: bytes) -> Any:
    """Return dpkt's reader. Raises Malformed, and ModuleNotFoundError without dpkt."""
    try:
        import dpkt
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING_EXTRA, name=error.name) from error
    file = io.BytesIO(data)
    try:
        return dpkt.pcapng.Reader(file) if data[:4] == PCAPNG_MAGIC else dpkt.pcap.Reader(file)
    except (dpkt.Error, ValueError) as error:
        raise MalformedPacket(f"the file is no capture: {str(error) or type(error).__name__}") from None


def _find_link_layer_decoder(link_type: int) -> Any:
    """Return what decodes a packet of a link type down to its IP packet. Raises Malformed."""
    from dpkt import ethernet, loopback, sll, sll2

    by_type = {0: loopback.Loopback, 108: loopback.Loopback, 1: ethernet.Ethernet, 113: sll.SLL, 276: sll2.SLL2}
    if link_type in _RAW:
        return _decode_raw_ip_packet
    if link_type not in by_type:
        known = "Ethernet, loopback, Linux's any, and IP"
        raise MalformedPacket(f"packets of link type {link_type} are not known, only those of {known}")
    return lambda packet: by_type[link_type](packet).data


def _decode_raw_ip_packet(packet: bytes) -> Any:
    from dpkt import ip, ip6

    return ip.IP(packet) if packet[:1] and packet[0] >> 4 == _VERSION_4 else ip6.IP6(packet)


def _parse_segment(time: float, packet: bytes, decode: Any) -> Segment | None:
    """Return the TCP segment in a packet, None if there is none."""
    from dpkt import Error, ip, ip6, tcp

    try:
        inner = decode(packet)
    except (Error, IndexError, ValueError):
        return None
    if not isinstance(inner, ip.IP | ip6.IP6) or not isinstance(inner.data, tcp.TCP):
        return None
    segment = inner.data
    data = bytes(segment.data)
    return Segment(
        time,
        Address(str(ip_address(inner.src)), segment.sport),
        Address(str(ip_address(inner.dst)), segment.dport),
        segment.seq,
        segment.flags,
        data,
        max(0, _count_payload_bytes(inner, segment) - len(data)),
    )


def _count_payload_bytes(inner: Any, segment: Any) -> int:
    """Return how many bytes of data the headers say; 0 if the packet was too large to say it (segmentation offload)."""
    header_bytes = segment.off * 4
    if hasattr(inner, "plen"):  # version 6
        extensions = sum(len(each) for each in inner.all_extension_headers)
        return int(inner.plen) - extensions - header_bytes if inner.plen else 0
    return int(inner.len) - inner.hl * 4 - header_bytes if inner.len else 0
