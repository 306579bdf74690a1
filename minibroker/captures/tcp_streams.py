"""Puts the bytes of TCP connections together: in order, each once, and with the places of those that are missing.

    segments of one direction, as captured     bytes of that direction
    [5..9) [0..5) [0..5) [12..15)              run 0: [0..9), 3 bytes are missing, run 1: [12..15)

Positions count from the first byte of the connection; if the capture does not have its begin, from the first byte that
was captured. Sequence numbers begin anywhere and start over at 2**32.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from minibroker.captures.packets import Address, Segment

FIN, SYN, RST, ACK = 1, 2, 4, 16
_WRAP: Final = 1 << 32
_HALF: Final = 1 << 31


class GaplessBytes(NamedTuple):
    """Bytes of a stream without a gap. `times` are (position, seconds) of the segments that brought them."""

    start: int
    data: bytes
    times: list[tuple[int, float]]

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def find_time_at(self, position: int) -> float | None:
        """Return when the byte at a position of the stream was captured, None if that is not known."""
        if not self.times:
            return None
        return self.times[max(0, bisect_right(self.times, position, key=lambda each: each[0]) - 1)][1]


class Stream(NamedTuple):
    """One direction of a connection. If `has_begin`, the first run starts with its first byte."""

    runs: list[GaplessBytes]
    has_begin: bool = True
    repeated_bytes: int = 0
    end: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(len(run.data) for run in self.runs)

    @property
    def missing_bytes(self) -> int:
        """How many bytes up to the last are not in the capture."""
        return self.end - self.size_bytes


class Connection(NamedTuple):
    """Two streams. `client` is who has opened it; that is a guess if the capture does not have the begin."""

    client: Address
    server: Address
    to_server: Stream
    to_client: Stream
    has_begin: bool

    def __str__(self) -> str:
        return f"{self.client} > {self.server}"

    def swap_ends(self) -> Connection:
        """Return the connection with client and server exchanged."""
        return Connection(self.server, self.client, self.to_client, self.to_server, self.has_begin)


def make_stream(data: bytes) -> Stream:
    """Return a stream of bytes that did not come from a capture: they have no times, and no gaps."""
    return Stream([GaplessBytes(0, data, [])] if data else [], end=len(data))


def collect_connections(segments: Iterable[Segment]) -> list[Connection]:
    """Return all connections in the order of their first segments. A port that is used again is a new one."""
    open_: dict[frozenset[Address], _TcpConnection] = {}
    pairs: list[_TcpConnection] = []
    for segment in segments:
        key = frozenset((segment.source, segment.target))
        pair = open_.get(key)
        if pair is None or pair.is_over_before(segment):
            pair = open_[key] = _TcpConnection(segment)
            pairs.append(pair)
        pair.add_segment(segment)
    return [pair.make_connection() for pair in pairs]


class _TcpConnection:
    """The segments of a connection in both directions."""

    def __init__(self, first: Segment) -> None:
        self._client = first.source
        self._server = first.target
        self._halves = {first.source: _TcpDirection(), first.target: _TcpDirection()}
        self._knows_client = False

    def is_over_before(self, segment: Segment) -> bool:
        """Return whether a segment opens another connection between the same ports."""
        first = self._halves[segment.source].first
        return bool(segment.flags & SYN) and first is not None and first != (segment.sequence + 1) % _WRAP

    def add_segment(self, segment: Segment) -> None:
        if segment.flags & SYN:
            answers = bool(segment.flags & ACK)
            self._client = segment.target if answers else segment.source
            self._server = segment.source if answers else segment.target
            self._knows_client = True
        self._halves[segment.source].add_segment(segment)

    def make_connection(self) -> Connection:
        to_server, to_client = self._halves[self._client].make_stream(), self._halves[self._server].make_stream()
        return Connection(self._client, self._server, to_server, to_client, self._knows_client)


class _TcpDirection:
    """The segments of one direction. `first` is the sequence number of the first byte, None if it is not known."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._next: int | None = None  # after the last byte so far, counted on beyond 2**32
        self._placed: list[tuple[int, int, Segment]] = []
        self._end = 0

    def add_segment(self, segment: Segment) -> None:
        sequence = segment.sequence
        if segment.flags & SYN:
            sequence = (sequence + 1) % _WRAP
            if self.first is None and self._next is None:
                self.first = self._next = sequence
        if self._next is None:
            self._next = sequence
        start = self._next + (sequence - self._next + _HALF) % _WRAP - _HALF
        end = start + len(segment.data) + segment.lost_bytes
        self._next = max(self._next, end)
        if end > start and not segment.flags & RST:
            self._placed.append((start, len(self._placed), segment))

    def make_stream(self) -> Stream:
        """Return the bytes in order, each once: of bytes that came twice the first."""
        placed = sorted(self._placed)
        if not placed:
            return Stream([], self.first is not None)
        base = self.first if self.first is not None else placed[0][0]
        position, repeated = base, 0
        runs: list[GaplessBytes] = []
        pieces: list[bytes] = []
        for start, _, segment in placed:
            end = start + len(segment.data)
            repeated += max(0, min(position, end) - start)
            if end <= position:
                continue
            if start > position or not runs:
                _set_bytes_of_last_run(runs, pieces)
                runs.append(GaplessBytes(max(start, position) - base, b"", []))
                position = max(start, position)
            runs[-1].times.append((position - base, segment.time))
            pieces.append(segment.data[position - start :])
            position = end
        _set_bytes_of_last_run(runs, pieces)
        last = max(start + len(segment.data) + segment.lost_bytes for start, _, segment in placed)
        return Stream(runs, self.first is not None, repeated, last - base)


def _set_bytes_of_last_run(runs: list[GaplessBytes], pieces: list[bytes]) -> None:
    """Give the last run its bytes."""
    if pieces:
        runs[-1] = runs[-1]._replace(data=b"".join(pieces))
        pieces.clear()
