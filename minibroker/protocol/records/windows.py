"""The records of a batch, seen through a window that moves on: what was dealt with is dropped, however much follows.

    |dropped ...........|data: [position ...]| not decompressed yet ................|
    0                   start

So the records of a batch take no more memory than a piece of them, and a record larger than that (one of 100 MB may be
compressed to some kilobytes) is stepped over by `LargeRecord`, header by header. It is as strict as the reader in
`record.py`, and says the same of what is malformed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minibroker.protocol.records.compression import STEP_BYTES
from minibroker.protocol.records.record import Malformed
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    Bytes,
    MalformedVarint,
    from_zigzag,
    read_raw,
)
from minibroker.protocol.steps import Steps

LARGE_BYTES = 1 << 14  # records beyond this are stepped over by `LargeRecord`


class Window:
    """The bytes at hand of those that come in `chunks`: `data`, which begins at byte `start` of all.

    `ended` says that nothing follows `data`. `large_bytes` is the size beyond which a record counts as large.
    """

    __slots__ = ("data", "start", "ended", "large_bytes", "_chunks")

    def __init__(self, chunks: Iterator[Bytes], large_bytes: int = 0) -> None:
        self.data = b""
        self.start = 0
        self.ended = False
        self.large_bytes = large_bytes or LARGE_BYTES
        self._chunks = chunks

    @property
    def end(self) -> int:
        """Where `data` ends, counted from the start of all."""
        return self.start + len(self.data)

    def more(self, position: int) -> int:
        """Drop what lies before `position` in `data`, which may lie beyond it, and take in the next piece.

        Returns where that position is now. Raises what `chunks` raises.
        """
        chunk = next(self._chunks, None)
        if chunk is None:
            self.ended, chunk = True, b""
        dropped = min(position, len(self.data))
        kept = self.data[dropped:]
        self.data = b"".join((kept, chunk)) if kept else bytes(chunk)
        self.start += dropped
        return position - dropped

    def gather(self, position: int, size_bytes: int) -> Steps[int]:
        """Gather so many bytes from `position` on, or what there is of them; return where they begin in `data` then."""
        parts, missing = [self.data[position:]], position + size_bytes - len(self.data)
        self.start += position
        while missing > 0 and (chunk := next(self._chunks, None)) is not None:
            parts.append(bytes(chunk))
            missing -= len(chunk)
            yield
        self.data = b"".join(parts)
        return 0

    def drain(self) -> Steps[int]:
        """Let all that is left pass by; how many bytes there were in all. Raises what `chunks` raises."""
        while not self.ended:
            self.more(len(self.data))
            yield
        return self.end

    def extent(self, position: int) -> Extent | None:
        """Where the record at `position` of `data` lies, as its length has it; None if too little is at hand.

        Raises `MalformedVarint`, also where all ends in its length.
        """
        try:
            raw, body = read_raw(self.data, position, MAX_VARINT_BYTES)
        except MalformedVarint:
            if self.ended or len(self.data) - position >= MAX_VARINT_BYTES:
                raise
            return None
        return Extent(from_zigzag(raw), self.start + body)

    def awaits(self, extent: Extent) -> bool:
        """Whether a record that is not large may be whole once more is at hand."""
        return 1 <= extent.length <= self.large_bytes and extent.end > self.end and not self.ended


class Extent(NamedTuple):
    """A record's length, and where what it counts begins, counted from the start of all."""

    length: int
    body: int

    @property
    def end(self) -> int:
        """Where the record ends, counted likewise."""
        return self.body + self.length


class LargeRecord:
    """A record that is stepped over. `position`, in the window's data, is how far; at the end where the next begins.

    Once `walk` is through, `timestamp_delta`, `offset_delta`, `key_bytes` and `value_bytes` (-1: null) are known, with
    `keeps` 1 `key` itself, and with 2 also `value`. What lies beyond `position` was not touched.
    """

    __slots__ = (
        "timestamp_delta",
        "offset_delta",
        "key_bytes",
        "value_bytes",
        "key",
        "value",
        "position",
        "_window",
        "_end",
        "_keeps",
    )

    def __init__(self, window: Window, extent: Extent, *, keeps: int = 0) -> None:
        self.timestamp_delta = self.offset_delta = 0
        self.key_bytes = self.value_bytes = -1
        self.key: bytes | None = None
        self.value: bytes | None = None
        self.position = extent.body - window.start
        self._window = window
        self._end = extent.end
        self._keeps = keeps

    def walk(self, *, with_headers: bool = True) -> Steps[None]:
        """Step over it; without `with_headers` these are not looked at.

        Raises `Malformed`, `MalformedVarint`, and what the window's chunks raise; any of them where all ends before the
        record does.
        """
        yield from self._at_hand(1)
        self.position += 1  # no bit of the attributes has a meaning
        self.timestamp_delta = yield from self._number(MAX_VARLONG_BYTES)
        self.offset_delta = yield from self._number(MAX_VARINT_BYTES)
        self.key_bytes, self.key = yield from self._bytes()
        self.value_bytes, self.value = yield from self._bytes()
        self._keeps = 0
        if with_headers:
            yield from self._headers()
            if self._left:
                raise Malformed(f"{self._left} bytes are left in it after its headers")
        self.position += self._left
        yield from self._at_hand(0)
        if self.position > len(self._window.data):
            raise Malformed("it ends early")

    @property
    def _left(self) -> int:
        """How many bytes of the record follow."""
        return self._end - self._window.start - self.position

    def _at_hand(self, size_bytes: int) -> Steps[None]:
        """Go on until so many bytes are at hand, or as many as there are."""
        window = self._window
        while len(window.data) - self.position < size_bytes and not window.ended:
            self.position = window.more(self.position)
            yield

    def _number(self, max_bytes: int) -> Steps[int]:
        yield from self._at_hand(max_bytes)
        at = self.position
        piece = self._window.data[at : at + max(min(max_bytes, self._left), 0)]
        raw, size = read_raw(piece, 0, max_bytes)
        self.position = at + size
        return from_zigzag(raw)

    def _bytes(self) -> Steps[tuple[int, bytes | None]]:
        """Pass a key or value: its size, -1 for null, and it itself if it is to be kept."""
        size = yield from self._number(MAX_VARINT_BYTES)
        if size < 0:
            return -1, None
        if size > self._left:
            raise Malformed(f"{size} bytes of a key or value, {self._left} are left")
        if self._keeps <= 0:
            self.position += size
            return size, None
        self._keeps -= 1
        return size, (yield from self._kept(size))

    def _kept(self, size: int) -> Steps[bytes]:
        parts, missing = [], size
        while missing:
            yield from self._at_hand(1)
            part = self._window.data[self.position : self.position + missing]
            parts.append(part)
            self.position += len(part)
            missing -= len(part)
            if not part and self._window.ended:
                raise MalformedVarint("the data ends in a varint")
        return b"".join(parts)

    def _headers(self) -> Steps[None]:
        count = yield from self._number(MAX_VARINT_BYTES)
        if not 0 <= count <= self._left:
            raise Malformed(f"{count} headers, {self._left} bytes are left")
        while count:
            yield from self._at_hand(2)
            window = self._window
            limit = min(len(window.data), self._end - window.start, self.position + STEP_BYTES // 2)
            self.position, passed = pass_headers(window.data, self.position, limit, count)
            count -= passed
            yield
            if not passed:  # not all of it is at hand, or it is not like most
                size, _ = yield from self._bytes()
                if size < 0:
                    raise Malformed("a header without a key")
                yield from self._bytes()
                count -= 1


def pass_headers(data: bytes, position: int, limit: int, count: int) -> tuple[int, int]:
    """Step over up to `count` headers that end by `limit`, and whose lengths take two bytes at most.

    Returns where the next one begins, which is not such a one or lies beyond, and how many were passed.
    """
    passed = 0
    try:
        while passed < count:
            size, at = data[position], position + 1
            if size > 0x7F:
                size, at = size + SECOND_BYTE[data[at]], at + 1
            if size & 1:
                break
            at += size >> 1
            size, at = data[at], at + 1
            if size > 0x7F:
                size, at = size + SECOND_BYTE[data[at]], at + 1
            if not size & 1:
                at += size >> 1
            if at > limit:
                break
            first, position = position, at
            passed += 1
            if passed == 1:  # many that are equal are found so at once
                size_bytes = at - first
                times = min(count, (limit - first) // size_bytes)
                if data[first : first + times * size_bytes] == data[first:at] * times:
                    return first + times * size_bytes, times
    except IndexError:
        pass
    return position, passed
