"""A moving window on the decompressed records of a batch, which drops the bytes that were processed.

    |dropped ...........|data: [position ...]| not decompressed yet ................|
    0                   start

So only a piece of the records is in memory. `LargeRecord` steps over a record that is larger (one of 100 MB may be
compressed to some kilobytes), header by header. It is as strict as the reader in `record.py`, and has the same errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.legible import format_bytes_left
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES, STEP_BYTES, UNBOUNDED_BYTES
from minibroker.protocol.records.record import MalformedRecord
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    Bytes,
    MalformedVarint,
    convert_from_zigzag,
    read_zigzag_varint,
)
from minibroker.protocol.steps import Steps

LARGE_BYTES = 1 << 14  # `LargeRecord` steps over larger records


class ByteWindow:
    """The part of the bytes from `chunks` that is at hand: `data`, which begins at byte `start` of all.

    `ended` says that nothing follows `data`. Records above `large_bytes` are large.
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
        """The end of `data`, counted from the start of all."""
        return self.start + len(self.data)

    def drop_and_read_next_chunk(self, position: int) -> int:
        """Drop the bytes before `position` in `data`, and append the next chunk. Return the position's new value.

        The position may lie behind the end of `data`. Raises what `chunks` raises.
        """
        chunk = next(self._chunks, None)
        if chunk is None:
            self.ended, chunk = True, b""
        dropped = min(position, len(self.data))
        kept = self.data[dropped:]
        self.data = b"".join((kept, chunk)) if kept else bytes(chunk)
        self.start += dropped
        return position - dropped

    def read_until_available(self, position: int, size_bytes: int) -> Steps[int]:
        """Read until `size_bytes` from `position` on are at hand, or all. Return their new position in `data`."""
        parts, missing = [self.data[position:]], position + size_bytes - len(self.data)
        self.start += position
        while missing > 0 and (chunk := next(self._chunks, None)) is not None:
            parts.append(bytes(chunk))
            missing -= len(chunk)
            yield
        self.data = b"".join(parts)
        return 0

    def skip_and_count_remaining_bytes(self, enough_bytes: int = UNBOUNDED_BYTES) -> Steps[int]:
        """Skip the rest. Return the number of all bytes, or as soon as they are `enough_bytes`, what they are so far.

        Raises what `chunks` raises.
        """
        while not self.ended and self.end < enough_bytes:
            self.drop_and_read_next_chunk(len(self.data))
            yield
        return self.end

    def find_record_extent(self, position: int) -> RecordExtent | None:
        """Return the extent of the record at `position` of `data`; None if more must be read for its length.

        Raises `MalformedVarint`, also if the data ends within the length.
        """
        try:
            raw, body = read_zigzag_varint(self.data, position, MAX_VARINT_BYTES)
        except MalformedVarint:
            if self.ended or len(self.data) - position >= MAX_VARINT_BYTES:
                raise
            return None
        return RecordExtent(convert_from_zigzag(raw), self.start + body)

    def needs_more_bytes(self, extent: RecordExtent) -> bool:
        """Return whether a record that is not large may be complete after reading more."""
        return 1 <= extent.length <= self.large_bytes and extent.end > self.end and not self.ended


class RecordExtent(NamedTuple):
    """A record's length, and the beginning of its body, counted from the start of all."""

    length: int
    body: int

    @property
    def end(self) -> int:
        """The end of the record, counted from the start of all."""
        return self.body + self.length


class LargeRecord:
    """A step over a large record. `position` is the progress in the window's data, at the end that of the next record.

    `step_over_record` sets `timestamp_delta`, `offset_delta`, `key_bytes` and `value_bytes` (-1: null), with `keeps` 1
    also `key`, and with 2 also `value`.
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

    def __init__(self, window: ByteWindow, extent: RecordExtent, *, keeps: int = 0) -> None:
        self.timestamp_delta = self.offset_delta = 0
        self.key_bytes = self.value_bytes = -1
        self.key: bytes | None = None
        self.value: bytes | None = None
        self.position = extent.body - window.start
        self._window = window
        self._end = extent.end
        self._keeps = keeps

    def step_over_record(self, *, with_headers: bool = True) -> Steps[None]:
        """Step over the record. Without `with_headers`, the headers are not checked.

        Raises `MalformedRecord` or `MalformedVarint`, also if the data ends in the record, and what the chunks raise.
        """
        yield from self._read_until_available(1)
        self.position += 1  # skips the attributes, which are unused
        self.timestamp_delta = yield from self._read_varint(MAX_VARLONG_BYTES)
        self.offset_delta = yield from self._read_varint(MAX_VARINT_BYTES)
        self.key_bytes, self.key = yield from self._skip_nullable_bytes()
        self.value_bytes, self.value = yield from self._skip_nullable_bytes()
        self._keeps = 0
        if with_headers:
            yield from self._skip_headers()
            if self._left_bytes:
                raise MalformedRecord(f"{format_bytes_left(self._left_bytes)} in it after its headers")
        self.position += self._left_bytes
        yield from self._read_until_available(0)
        if self.position > len(self._window.data):
            raise MalformedRecord("it ends early")

    @property
    def _left_bytes(self) -> int:
        """The number of bytes that are left of the record."""
        return self._end - self._window.start - self.position

    def _read_until_available(self, size_bytes: int) -> Steps[None]:
        """Read until `size_bytes` are at hand, or all."""
        window = self._window
        while len(window.data) - self.position < size_bytes and not window.ended:
            self.position = window.drop_and_read_next_chunk(self.position)
            yield

    def _read_varint(self, max_bytes: int) -> Steps[int]:
        """Read a number in zigzag encoding, in steps."""
        yield from self._read_until_available(max_bytes)
        at = self.position
        piece = self._window.data[at : at + max(min(max_bytes, self._left_bytes), 0)]
        raw, size = read_zigzag_varint(piece, 0, max_bytes)
        self.position = at + size
        return convert_from_zigzag(raw)

    def _skip_nullable_bytes(self) -> Steps[tuple[int, bytes | None]]:
        """Step over a key or value. Return its size, -1 for null, and its bytes if they are kept."""
        size = yield from self._read_varint(MAX_VARINT_BYTES)
        if size < 0:
            return -1, None
        if size > self._left_bytes:
            raise MalformedRecord(f"{size} bytes of a key or value, {self._left_bytes} are left")
        if self._keeps <= 0:
            self.position += size
            return size, None
        self._keeps -= 1
        if size > MAX_UNCOMPRESSED_BYTES:
            text = f"a key or value of {size} bytes is not held in memory: {MAX_UNCOMPRESSED_BYTES} is the most"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
        return size, (yield from self._read_bytes(size))

    def _read_bytes(self, size: int) -> Steps[bytes]:
        """Read bytes of any number, in steps."""
        parts, missing = [], size
        while missing:
            yield from self._read_until_available(1)
            part = self._window.data[self.position : self.position + missing]
            parts.append(part)
            self.position += len(part)
            missing -= len(part)
            if not part and self._window.ended:
                raise MalformedVarint("the data ends in a varint")
        return b"".join(parts)

    def _skip_headers(self) -> Steps[None]:
        """Step over all headers, and check them. Raises MalformedRecord."""
        count = yield from self._read_varint(MAX_VARINT_BYTES)
        if not 0 <= count <= self._left_bytes:
            raise MalformedRecord(f"{count} headers, {format_bytes_left(self._left_bytes)}")
        while count:
            yield from self._read_until_available(2)
            window = self._window
            limit = min(len(window.data), self._end - window.start, self.position + STEP_BYTES // 2)
            self.position, passed = skip_headers(window.data, self.position, limit, count)
            count -= passed
            yield
            if not passed:  # the header is not completely at hand, or unusual
                size, _ = yield from self._skip_nullable_bytes()
                if size < 0:
                    raise MalformedRecord("a header without a key")
                yield from self._skip_nullable_bytes()
                count -= 1


def skip_headers(data: bytes, position: int, limit: int, count: int) -> tuple[int, int]:
    """Step over up to `count` headers. Return the position of the next one, and how many were passed.

    They must end by `limit`, and their lengths take at most two bytes.
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
            if passed == 1:  # many equal headers are passed at once
                size_bytes = at - first
                times = min(count, (limit - first) // size_bytes)
                if data[first : first + times * size_bytes] == data[first:at] * times:
                    return first + times * size_bytes, times
    except IndexError:
        pass
    return position, passed
