"""Record batches of format 2 built field by field, so that any one field can be made wrong.

Reading them, and well-formed batches for everyday use, live elsewhere.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_END = 21  # the CRC covers what follows it
LOG_OVERHEAD_BYTES = 12  # before what batch_length counts

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


class Record(NamedTuple):
    """A record of a batch; the offset delta is its place unless given."""

    value: bytes | None
    key: bytes | None = None
    timestamp_delta: int = 0
    offset_delta: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def batch(
    records: Iterable[Record | bytes],
    *,
    timestamp: int,
    count: int | None = None,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    magic: int = 2,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    batch_length: int | None = None,
    leader_epoch: int = -1,
    compressed: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """The batch; `count`, `last_offset_delta`, `batch_length` and `crc` are right unless given."""
    listed = [record if isinstance(record, Record) else Record(record) for record in records]
    payload = (
        compressed if compressed is not None else b"".join(encode_record(i, record) for i, record in enumerate(listed))
    )
    number = len(listed) if count is None else count
    latest = timestamp + max((record.timestamp_delta for record in listed), default=0)
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        number - 1 if last_offset_delta is None else last_offset_delta,
        timestamp,
        latest if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        number,
    )
    checked += payload
    length = len(checked) + 9 if batch_length is None else batch_length
    unchecked = struct.pack(">qiibI", base_offset, length, leader_epoch, magic, crc32c(checked) if crc is None else crc)
    return unchecked + checked


def gzipped(records: Sequence[Record | bytes], *, timestamp: int, **fields: int) -> bytes:
    """The batch with its records compressed; `fields` as of `batch`."""
    listed = [record if isinstance(record, Record) else Record(record) for record in records]
    data = b"".join(encode_record(place, record) for place, record in enumerate(listed))
    return batch(listed, timestamp=timestamp, attributes=GZIP, compressed=gzip.compress(data), **fields)


def encode_record(place: int, record: Record) -> bytes:
    offset_delta = place if record.offset_delta is None else record.offset_delta
    body = b"\0" + zigzag(record.timestamp_delta) + zigzag(offset_delta) + _blob(record.key) + _blob(record.value)
    body += zigzag(len(record.headers))
    for name, value in record.headers:
        body += _blob(name.encode()) + _blob(value)
    return zigzag(len(body)) + body


def zigzag(value: int) -> bytes:
    """A signed varint."""
    folded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def _blob(data: bytes | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + data


class Read(NamedTuple):
    """The header fields of a batch that tests look at."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    record_count: int
    crc_holds: bool
    payload: bytes


def read_batches(data: bytes, *, cut: bool = False) -> list[Read]:
    """Every batch in what a Fetch returned; the last may be cut off only if `cut` says so, and is passed over then."""
    found = []
    position = 0
    while position < len(data):
        if cut and not _is_whole(data, position):
            break
        (base_offset, length, epoch, _, crc, attributes, last_delta, first_time, last_time, _, _, _, count) = (
            HEADER.unpack_from(data, position)
        )
        end = position + LOG_OVERHEAD_BYTES + length
        assert end <= len(data), "a batch is cut"
        crc_holds = crc32c(data[position + CRC_END : end]) == crc
        payload = data[position + HEADER.size : end]
        found.append(Read(base_offset, epoch, attributes, last_delta, first_time, last_time, count, crc_holds, payload))
        position = end
    return found


def _is_whole(data: bytes, position: int) -> bool:
    if position + HEADER.size > len(data):
        return False
    length: int = struct.unpack_from(">qi", data, position)[1]
    return position + LOG_OVERHEAD_BYTES + length <= len(data)
