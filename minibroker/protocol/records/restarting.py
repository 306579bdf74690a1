"""Records written anew with another start, in steps: their length, and what of the fixed fields is to change.

Some get other offsets or times; others lose the attributes byte, or get it back (`elision.py` draws both).

What follows the start, key, value and headers, is copied as it is, and a large record in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    Bytes,
    MalformedVarint,
    from_zigzag,
    read_raw,
    wrapped,
    zigzag_bytes,
)
from minibroker.protocol.records.windows import Window

# Called with the bytes at hand, where in them the record begins behind its length, that length, and the record's index;
# returns what stands for its start, and where the rest of it begins in these bytes; None: the record is left out.
NewStart = Callable[[bytes, int, int, int], tuple[bytes, int] | None]

_RECORDS_AT_ONCE = 512
_START_BYTES = 1 + MAX_VARLONG_BYTES + MAX_VARINT_BYTES  # what a `NewStart` may look at


def renumbered(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """The `count` records, which were checked, with offset deltas from 0 on."""
    return restarted(Window(chunks), count, _numbered)


def moved(chunks: Iterator[Bytes], stays: bytes | bytearray, by_ms: int) -> Iterator[Bytes]:
    """Of the records those whose byte in `stays` is not 0, with `by_ms` added to their timestamp deltas."""

    def new_start(data: bytes, body: int, length: int, index: int) -> tuple[bytes, int] | None:
        if not stays[index]:
            return None
        raw, rest = read_raw(data, body + 1, MAX_VARLONG_BYTES)
        start = data[body : body + 1] + zigzag_bytes(wrapped(from_zigzag(raw) + by_ms))
        return zigzag_bytes(length - (rest - body) + len(start)) + start, rest

    return restarted(Window(chunks), len(stays), new_start)


def elided(payload: bytes, count: int) -> bytes | None:
    """The `count` records in `payload` without their attributes; None if one has some. Raises `InvalidRecords`."""
    try:
        return b"".join(elided_chunks(iter((payload,)), count))
    except HasAttributes:
        return None


def restored(payload: bytes, count: int) -> bytes:
    """The `count` records in `payload`, which have no attributes, with them. Raises `InvalidRecords`."""
    return b"".join(restored_chunks(iter((payload,)), count))


def elided_chunks(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """Elide as `elided` does, of records that come in pieces. Raises `HasAttributes` where a record has attributes."""
    return restarted(Window(chunks), count, _without)


def restored_chunks(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """Restore as `restored` does, of records that come in pieces."""
    return restarted(Window(chunks), count, _with)


class HasAttributes(Exception):
    """A record has an attribute, which would be lost."""


def _without(data: bytes, body: int, length: int, index: int) -> tuple[bytes, int]:
    """Return what comes instead of a record's length and its attributes, and where the rest begins."""
    if data[body]:
        raise HasAttributes
    return zigzag_bytes(length - 1), body + 1


def _with(data: bytes, body: int, length: int, index: int) -> tuple[bytes, int]:
    """Return what comes instead of a record's length, and where the rest begins."""
    return zigzag_bytes(length + 1) + b"\0", body


def _numbered(data: bytes, body: int, length: int, index: int) -> tuple[bytes, int]:
    _, at = read_raw(data, body + 1, MAX_VARLONG_BYTES)
    _, rest = read_raw(data, at, MAX_VARINT_BYTES)
    start = data[body:at] + zigzag_bytes(index)
    return zigzag_bytes(length - (rest - body) + len(start)) + start, rest


def restarted(window: Window, count: int, new_start: NewStart) -> Iterator[Bytes]:
    """The records in the window, each with another start; a piece takes a millisecond at most, and may be empty.

    Raises `InvalidRecords`, what the window's chunks raise, and what `new_start` raises.
    """
    position = index = 0
    while index < count:
        out, position, index = _those_at_hand(window, position, index, (count, new_start))
        yield out
        if out or index == count:
            continue
        found = _extent(window, position)
        if found is not None and found[1] - found[0] > window.large_bytes and _starts(window, found[0]):
            position = yield from _large(window, found, index, new_start)
            index += 1
        elif window.ended:
            raise _malformed(window, position)
        elif found is None or found[1] > len(window.data):
            position = window.more(position)
    yield window.data[position:]
    while not window.ended:
        window.more(len(window.data))
        yield window.data


def _starts(window: Window, body: int) -> bool:
    """Whether a record's start is at hand, which begins at `body`."""
    left = len(window.data) - body
    return left >= _START_BYTES or (window.ended and left > 0)


def _large(window: Window, extent: tuple[int, int], index: int, new_start: NewStart) -> Generator[Bytes, None, int]:
    """A large record, in pieces; where in the window's data it ends."""
    body, end = extent
    restart = new_start(window.data, body, end - body, index)
    if restart is None:
        return (yield from _rest_of(window, body, window.start + end, stays=False))
    yield restart[0]
    return (yield from _rest_of(window, restart[1], window.start + end, stays=True))


def _those_at_hand(
    window: Window, position: int, index: int, wanted: tuple[int, NewStart]
) -> tuple[bytearray, int, int]:
    """The records that are whole from `position` on, some hundred of them, written anew; where the next one begins."""
    count, new_start = wanted
    data, out = window.data, bytearray()
    while index < count:
        found = _extent(window, position)
        if found is None or found[1] > len(data):
            break
        body, end = found
        restart = new_start(data, body, end - body, index)
        if restart is not None:
            out += restart[0]
            out += data[restart[1] : end]
        position, index = end, index + 1
        if index % _RECORDS_AT_ONCE == 0:
            break
    return out, position, index


def _rest_of(window: Window, position: int, end: int, *, stays: bool) -> Generator[Bytes, None, int]:
    """Yield what comes before byte `end`, or nothing of it; return where in the window's data it ends."""
    while True:
        at_hand = min(len(window.data), end - window.start)
        yield window.data[position:at_hand] if stays else b""
        if window.start + at_hand == end:
            return at_hand
        if window.ended:
            raise InvalidRecords(f"the record that ends at byte {end} is malformed: only {window.end} bytes are there")
        position = window.more(at_hand)


def _extent(window: Window, position: int) -> tuple[int, int] | None:
    """Where the record at `position` of the data begins behind its length, and where it ends, maybe beyond the data.

    None if too little is at hand.
    """
    try:
        length, body = read_raw(window.data, position, MAX_VARINT_BYTES)
    except MalformedVarint as error:
        if not window.ended and len(window.data) - position < MAX_VARINT_BYTES:
            return None
        raise InvalidRecords(f"the record at byte {window.start + position} is malformed: {error}") from error
    end = body + (length >> 1)
    if length & 1 or end == body:
        raise _malformed(window, position)
    return body, end


def _malformed(window: Window, position: int) -> InvalidRecords:
    length = read_raw(window.data, position, MAX_VARINT_BYTES)[0] >> 1
    return InvalidRecords(f"the record at byte {window.start + position} is malformed: a length of {length} bytes")
