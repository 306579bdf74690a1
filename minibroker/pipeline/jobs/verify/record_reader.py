"""Reading the records of one batch of format 2 one by one, strictly, to say in words what is wrong with them.

Which batches to look at so closely is found out in `records.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAX_VARINT_BYTES, MAX_VARLONG_BYTES = 5, 10


class Unreadable(ValueError):
    """Records that cannot be read: `kind` is that of the finding, the message its detail."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Read(NamedTuple):
    """A record as it is stored: deltas, and the key and value, None for null."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None


def what_is_wrong(
    payload: bytes | memoryview,
    *,
    count: int,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int | None,
    elided: bool,
    compacted: bool,
) -> tuple[str, str] | None:
    """(kind, detail) of the first thing that is wrong, None if nothing is.

    `max_timestamp` is None where it is the time of the append.
    """
    records: list[Read] = []
    try:
        for record in read_records(payload, count, elided=elided):
            records.append(record)
    except Unreadable as error:
        return error.kind, str(error)
    before = -1
    for place, record in enumerate(records):
        expected = f"between {before + 1} and {last_delta}" if compacted else str(place)
        delta = record.offset_delta
        if not before < delta <= last_delta or not compacted and delta != place:
            return "record-offset", f"record {place} has offset delta {delta}, expected {expected}"
        before = delta
    if not compacted and count != last_delta + 1:
        return "record-count", f"{count} records, the last offset delta is {last_delta}"
    largest = base_timestamp + max((record.timestamp_delta for record in records), default=0)
    if not records or max_timestamp in (None, largest):
        return None
    return "max-timestamp", f"{max_timestamp} in the header, {largest} in the records"


def read_records(payload: bytes | memoryview, count: int, *, elided: bool = False) -> Iterator[Read]:
    """The `count` records of a payload. Raises `Unreadable` at the first that is malformed, and for a wrong count."""
    data, at = bytes(payload), 0
    for place in range(count):
        if at == len(data):
            raise Unreadable("record-count", f"{count} records in the header, {place} in the batch")
        try:
            record, at = _read_record(data, at, elided)
        except (ValueError, IndexError) as error:
            raise Unreadable("record", f"record {place}: {error}") from error
        yield record
    if at != len(data):
        raise Unreadable("record-count", f"{len(data) - at} bytes are left behind the {count} records of the header")


def _read_record(data: bytes, at: int, elided: bool) -> tuple[Read, int]:
    length, at = _varint(data, at)
    end = at + length
    if not 0 < length <= len(data) - at:
        raise ValueError(f"a length of {length} bytes, {len(data) - at} are left")
    timestamp_delta, at = _varint(data, at if elided else at + 1, MAX_VARLONG_BYTES)
    offset_delta, at = _varint(data, at)
    key, at = _sized(data, at, end)
    value, at = _sized(data, at, end)
    headers, at = _varint(data, at)
    if not 0 <= headers <= end - at:
        raise ValueError(f"{headers} headers in {end - at} bytes")
    for _ in range(headers):
        name, at = _sized(data, at, end)
        if name is None:
            raise ValueError("a header without a key")
        _, at = _sized(data, at, end)
    if at != end:
        raise ValueError(f"it ends {end - at} bytes behind its headers")
    return Read(timestamp_delta, offset_delta, key, value), end


def _sized(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        return None, at
    if size > end - at:
        raise ValueError(f"a key, value or header of {size} bytes, {end - at} are left")
    return data[at : at + size], at + size


def _varint(data: bytes, at: int, max_bytes: int = MAX_VARINT_BYTES) -> tuple[int, int]:
    value = 0
    for place in range(max_bytes):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError(f"a number of more than {max_bytes} bytes")
