"""Rewrites the start of records, in steps: the length, and some of attributes, timestamp delta and offset delta.

It changes offsets or timestamps, or removes or restores the attributes byte (see `elision.py`). The rest of a record,
key, value and headers, is copied unchanged, and in pieces if it is large.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    Bytes,
    MalformedVarint,
    convert_from_zigzag,
    encode_zigzag,
    read_zigzag_varint,
    wrap_to_64_bits,
)
from minibroker.protocol.records.windows import ByteWindow

# Takes the bytes at hand, the position of the record behind its length, that length, and the record's index. Returns
# the new start, and the position of the rest of the record; None: the record is left out.
MakeRecordStart = Callable[[bytes, int, int, int], tuple[bytes, int] | None]

_RECORDS_AT_ONCE = 512
_START_BYTES = 1 + MAX_VARLONG_BYTES + MAX_VARINT_BYTES  # the most that a `MakeRecordStart` reads


def renumber_records(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """Return the `count` records, which must be valid, with offset deltas from 0 on."""
    return rewrite_record_starts(ByteWindow(chunks), count, _make_record_start_with_offset_delta)


def add_to_timestamps(chunks: Iterator[Bytes], kept_record_flags: bytes | bytearray, by_ms: int) -> Iterator[Bytes]:
    """Return the records whose byte in `kept_record_flags` is not 0, with `by_ms` added to their timestamp deltas."""

    def make_record_start_with_new_timestamp(
        data: bytes, body_position: int, length: int, index: int
    ) -> tuple[bytes, int] | None:
        if not kept_record_flags[index]:
            return None
        raw, rest = read_zigzag_varint(data, body_position + 1, MAX_VARLONG_BYTES)
        start = data[body_position : body_position + 1] + encode_zigzag(
            wrap_to_64_bits(convert_from_zigzag(raw) + by_ms)
        )
        return encode_zigzag(length - (rest - body_position) + len(start)) + start, rest

    return rewrite_record_starts(ByteWindow(chunks), len(kept_record_flags), make_record_start_with_new_timestamp)


def elide_attributes_of_payload(payload: bytes, count: int) -> bytes | None:
    """Return the `count` records in `payload` without attributes; None if one is not 0. Raises `InvalidRecords`."""
    try:
        return b"".join(elide_attributes_of_chunks(iter((payload,)), count))
    except HasAttributes:
        return None


def restore_attributes_of_payload(payload: bytes, count: int) -> bytes:
    """Return the `count` records in `payload` with restored attributes. Raises `InvalidRecords`."""
    return b"".join(restore_attributes_of_chunks(iter((payload,)), count))


def elide_attributes_of_chunks(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """Elide as `elide_attributes_of_payload` does, from records in pieces. Raises `HasAttributes`."""
    return rewrite_record_starts(ByteWindow(chunks), count, _make_record_start_without_attributes)


def restore_attributes_of_chunks(chunks: Iterator[Bytes], count: int) -> Iterator[Bytes]:
    """Restore as `restore_attributes_of_payload` does, from records in pieces."""
    return rewrite_record_starts(ByteWindow(chunks), count, _make_record_start_with_attributes)


class HasAttributes(Exception):
    """A record has an attribute, which would be lost."""


def _make_record_start_without_attributes(
    data: bytes, body_position: int, length: int, index: int
) -> tuple[bytes, int]:
    """Return a record's length field, one less, and where behind its attributes the rest begins."""
    if data[body_position]:
        raise HasAttributes
    return encode_zigzag(length - 1), body_position + 1


def _make_record_start_with_attributes(data: bytes, body_position: int, length: int, index: int) -> tuple[bytes, int]:
    """Return a record's length field, one more, with empty attributes, and where the rest begins."""
    return encode_zigzag(length + 1) + b"\0", body_position


def _make_record_start_with_offset_delta(data: bytes, body_position: int, length: int, index: int) -> tuple[bytes, int]:
    """Return a record's fields up to the offset delta, which is `index`, and where the rest begins."""
    _, at = read_zigzag_varint(data, body_position + 1, MAX_VARLONG_BYTES)
    _, rest = read_zigzag_varint(data, at, MAX_VARINT_BYTES)
    start = data[body_position:at] + encode_zigzag(index)
    return encode_zigzag(length - (rest - body_position) + len(start)) + start, rest


def rewrite_record_starts(window: ByteWindow, count: int, make_start: MakeRecordStart) -> Iterator[Bytes]:
    """Yield the records in the window, each with the bytes before its key (length, deltas) that `make_start` returns.

    A piece takes a millisecond at most, and may be empty. Raises `InvalidRecords`, what the window's chunks raise, and
    what `make_start` raises.
    """
    position = index = 0
    while index < count:
        out, position, index = _rewrite_some_record_starts(window, position, index, (count, make_start))
        yield out
        if out or index == count:
            continue
        extent = _find_record_extent(window, position)
        if (
            extent is not None
            and extent[1] - extent[0] > window.large_bytes
            and _is_record_start_in_window(window, extent[0])
        ):
            position = yield from _rewrite_start_of_large_record(window, extent, index, make_start)
            index += 1
        elif window.ended:
            raise _make_incomplete_record_error(window, position)
        elif extent is None or extent[1] > len(window.data):
            position = window.drop_and_read_next_chunk(position)
    yield window.data[position:]
    while not window.ended:
        window.drop_and_read_next_chunk(len(window.data))
        yield window.data


def _is_record_start_in_window(window: ByteWindow, body_position: int) -> bool:
    """Return whether the window has all that a `MakeRecordStart` reads of the record, from `body_position` on."""
    left = len(window.data) - body_position
    return left >= _START_BYTES or (window.ended and left > 0)


def _rewrite_start_of_large_record(
    window: ByteWindow, extent: tuple[int, int], index: int, make_start: MakeRecordStart
) -> Generator[Bytes, None, int]:
    """Yield a large record with a new start, in pieces. Return its end in the window's data."""
    body, end = extent
    restart = make_start(window.data, body, end - body, index)
    if restart is None:
        return (yield from _yield_or_skip_bytes_until(window, body, window.start + end, yields=False))
    yield restart[0]
    return (yield from _yield_or_skip_bytes_until(window, restart[1], window.start + end, yields=True))


def _rewrite_some_record_starts(
    window: ByteWindow, position: int, index: int, count_and_make_start: tuple[int, MakeRecordStart]
) -> tuple[bytearray, int, int]:
    """Return the next records, some hundred, with new starts, and the position and index of the one behind them."""
    count, make_start = count_and_make_start
    data, out = window.data, bytearray()
    while index < count:
        extent = _find_record_extent(window, position)
        if extent is None or extent[1] > len(data):
            break
        body, end = extent
        restart = make_start(data, body, end - body, index)
        if restart is not None:
            out += restart[0]
            out += data[restart[1] : end]
        position, index = end, index + 1
        if index % _RECORDS_AT_ONCE == 0:
            break
    return out, position, index


def _yield_or_skip_bytes_until(
    window: ByteWindow, position: int, end: int, *, yields: bool
) -> Generator[Bytes, None, int]:
    """Yield the bytes before byte `end`, or skip them. Return where that is in the window's data."""
    while True:
        at_hand = min(len(window.data), end - window.start)
        yield window.data[position:at_hand] if yields else b""
        if window.start + at_hand == end:
            return at_hand
        if window.ended:
            raise InvalidRecords(f"the record that ends at byte {end} is malformed: only {window.end} bytes are there")
        position = window.drop_and_read_next_chunk(at_hand)


def _find_record_extent(window: ByteWindow, position: int) -> tuple[int, int] | None:
    """Return (start behind its length, end) of the record at `position`; None until its whole length is at hand."""
    try:
        length, body = read_zigzag_varint(window.data, position, MAX_VARINT_BYTES)
    except MalformedVarint as error:
        if not window.ended and len(window.data) - position < MAX_VARINT_BYTES:
            return None
        raise InvalidRecords(f"the record at byte {window.start + position} is malformed: {error}") from error
    end = body + (length >> 1)
    if length & 1 or end == body:
        raise _make_incomplete_record_error(window, position)
    return body, end


def _make_incomplete_record_error(window: ByteWindow, position: int) -> InvalidRecords:
    length = read_zigzag_varint(window.data, position, MAX_VARINT_BYTES)[0] >> 1
    return InvalidRecords(f"the record at byte {window.start + position} is malformed: a length of {length} bytes")
