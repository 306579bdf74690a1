"""Records of format 2: the strict reader, which returns an object for each record.

The broker's check of a produced batch, in `validation.py`, creates no objects, and comes to the same result.

    length            varint   bytes after this field
    attributes        int8     unused
    timestamp_delta   varlong  timestamp - base_timestamp
    offset_delta      varint   offset - base_offset
    key_length        varint   -1: null
    key
    value_length      varint   -1: null
    value
    headers_count     varint
    headers           of each: key_length varint, key (UTF-8), value_length varint (-1: null), value
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import InvalidRecords
from minibroker.protocol.legible import format_bytes_left
from minibroker.protocol.records.batch import LOG_APPEND_TIME, BatchHeader
from minibroker.protocol.records.varints import Bytes, MalformedVarint, read_varint, read_varlong, wrap_to_64_bits


class Header(NamedTuple):
    """A header of a record. Keys may repeat, and are never null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record as applications see it. Null (None) and empty are different, in keys and in values."""

    offset: int = -1
    timestamp: int = -1  # ms since 1970, -1: none
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header | tuple[str, bytes | None], ...] = ()


def parse_records(payload: Bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records in `payload`, which must end with the last one.

    Raises `InvalidRecords` with the index of a malformed record, and the reason.
    """
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    position = 0
    for index in range(header.record_count):
        try:
            record, position = read_record(payload, position, header, append_time)
        except (MalformedVarint, MalformedRecord) as error:
            raise InvalidRecords(f"record {index} is malformed: {error}", ((index, str(error)),)) from error
        yield record
    if position != len(payload):
        raise InvalidRecords("Incorrect declared batch size, records still remaining in file")


class MalformedRecord(ValueError):
    """A record that contradicts itself."""


def read_record(
    payload: Bytes, position: int, header: BatchHeader, append_time: int | None, *, with_headers: bool = True
) -> tuple[Record, int]:
    """Return the record at `position`, and its end. Raises `MalformedVarint`, `MalformedRecord`."""
    length, position = read_varint(payload, position)
    if not 1 <= length <= len(payload) - position:
        raise MalformedRecord(f"a length of {length} bytes, {len(payload) - position} are left")
    end = position + length
    body = memoryview(payload)[:end]
    timestamp_delta, position = read_varlong(body, position + 1)
    offset_delta, position = read_varint(body, position)
    key, position = _read_bytes(body, position)
    value, position = _read_bytes(body, position)
    headers, position = _read_headers(body, position) if with_headers else ((), end)
    if position != end:
        raise MalformedRecord(f"{format_bytes_left(end - position)} in it after its headers")
    timestamp = wrap_to_64_bits(header.base_timestamp + timestamp_delta) if append_time is None else append_time
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers), end


def _read_headers(body: memoryview, position: int) -> tuple[tuple[Header, ...], int]:
    """Return the headers, whose count is at `position`, and the position after them."""
    count, position = read_varint(body, position)
    if not 0 <= count <= len(body) - position:
        raise MalformedRecord(f"{count} headers, {format_bytes_left(len(body) - position)}")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(body, position)
        if key is None:
            raise MalformedRecord("a header without a key")
        value, position = _read_bytes(body, position)
        headers.append(Header(key.decode(errors="replace"), value))
    return tuple(headers), position


def _read_bytes(body: memoryview, position: int) -> tuple[bytes | None, int]:
    """Return the bytes after their length at `position`, None for null, and the position after them."""
    length, position = read_varint(body, position)
    if length < 0:
        return None, position
    if length > len(body) - position:
        raise MalformedRecord(f"{length} bytes of a key or value, {len(body) - position} are left")
    return bytes(body[position : position + length]), position + length
