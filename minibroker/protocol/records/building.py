"""Builds record batches of format 2, byte for byte as Kafka's producers do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    ELIDED_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    set_checksum,
    set_checksum_in_steps,
)
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes, encode_zigzag, wrap_to_64_bits
from minibroker.protocol.steps import Steps

_TO_CHECKSUM: Final = Struct(">qiibI")  # the two parts of a header
_FROM_ATTRIBUTES: Final = Struct(">hiqqqhii")
_NULL: Final = encode_zigzag(-1)
_NO_ATTRIBUTES: Final = b"\0"


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    keep_offsets: bool = False,
) -> bytearray:
    """Return a batch of `records` with its checksum.

    The records get consecutive offsets from `base_offset` on. With `keep_offsets` they keep their own, which must
    increase from `base_offset` on. `timestamp_type` 1 is log append time: all records get the largest timestamp. Raises
    `ValueError` for no records.
    """
    kept = list(records)
    if not kept:
        raise ValueError("a batch contains at least one record")
    deltas = [record.offset - base_offset for record in kept] if keep_offsets else range(len(kept))
    base_timestamp = kept[0].timestamp
    payload = b"".join(
        encode_record(record, delta, record.timestamp - base_timestamp)
        for record, delta in zip(kept, deltas, strict=True)
    )
    attributes = _make_attributes(compression, timestamp_type, transactional, control)
    timestamps = base_timestamp, max(record.timestamp for record in kept)
    producer = producer_id, producer_epoch, base_sequence
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, deltas[-1], *timestamps, *producer, len(kept)
    )  # length and checksum come last
    return assemble_batch(header, compress(compression, payload, level))


def build_plain_batch(
    entries: Sequence[tuple[bytes, bytes | None]], timestamp: int, *, producer: tuple[int, int] | None = None
) -> bytearray:
    """Build a batch of keys and values with one timestamp, in a quarter of the time of `build_batch`.

    With a `producer` (id and epoch) it is a batch of its transaction.
    """
    producer_id, epoch = producer or (-1, -1)
    attributes, count = 0 if producer is None else TRANSACTIONAL_BIT, len(entries)
    parts = [_FROM_ATTRIBUTES.pack(attributes, count - 1, timestamp, timestamp, producer_id, epoch, -1, count)]
    for delta, (key, value) in enumerate(entries):
        before_key, before_value = _encode_record_start(delta, len(key), -1 if value is None else len(value))
        parts += (before_key, key, before_value, value or b"", b"\0")
    body = b"".join(parts)
    return assemble_plain_batch(body, crc32c(body))


def assemble_plain_batch(body: bytes, crc: int) -> bytearray:
    """Return the batch whose bytes from the attributes on are `body`, with the checksum `crc`."""
    batch = bytearray(_TO_CHECKSUM.pack(0, CRC_START + len(body) - LOG_OVERHEAD_BYTES, -1, MAGIC, crc))
    batch += body
    return batch


@lru_cache(maxsize=1024)
def _encode_record_start(offset_delta: int, key_bytes: int, value_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes of a record before its key, and those between key and value. `value_bytes` is -1 for null."""
    offset, key_length, value_length = encode_zigzag(offset_delta), encode_zigzag(key_bytes), encode_zigzag(value_bytes)
    size_bytes = 3 + len(offset) + len(key_length) + key_bytes + len(value_length) + max(value_bytes, 0)
    return b"".join((encode_zigzag(size_bytes), b"\0\0", offset, key_length)), value_length


def build_batch_in_steps(
    records: Sequence[Record],
    *,
    compression: int = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> Steps[bytearray]:
    """Build a batch as `build_batch` does, in steps, from records with one timestamp."""
    timestamps = records[0].timestamp, records[0].timestamp
    attributes = _make_attributes(compression, 0, transactional, control=False)
    producer = producer_id, producer_epoch, -1
    header = BatchHeader(0, 0, -1, MAGIC, 0, attributes, len(records) - 1, *timestamps, *producer, len(records))
    payload = (encode_record(record, delta, 0) for delta, record in enumerate(records))
    return (yield from assemble_batch_in_steps(header, compress_chunks(compression, payload, None)))


def recompress_batch_in_steps(
    batch: Bytes,
    header: BatchHeader,
    codec: int,
    level: int | None,
    *,
    renumbers: bool = False,
    max_bytes: int,
    make_error: Callable[[int], KafkaError],
) -> Steps[bytearray]:
    """Return, in steps, the batch with another codec (a topic's own `compression.type`).

    The rest of the header and the records do not change, but `renumbers` gives the records, which must be valid, offset
    deltas from 0 on. Raises as `decompress` does, and `make_error(size_bytes)` above `max_bytes`; no more than that is
    held in memory.
    """
    from minibroker.protocol.records.payload import iterate_payload_chunks  # no start needs them
    from minibroker.protocol.records.restarting import renumber_records

    payload = iterate_payload_chunks(batch, 0, header)
    if renumbers:
        payload = renumber_records(payload, header.record_count)
    chunks = compress_chunks(codec, payload, level)
    changed = header._replace(attributes=header.attributes & ~(COMPRESSION_MASK | ELIDED_BIT) | codec)
    return (yield from assemble_batch_in_steps(changed, _limit_chunks(chunks, max_bytes - HEADER_BYTES, make_error)))


def _limit_chunks(chunks: Iterable[Bytes], max_bytes: int, make_error: Callable[[int], KafkaError]) -> Iterator[Bytes]:
    """Yield the chunks up to `max_bytes`, then count the rest, and raise at the end if there was more."""
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        yield chunk if size_bytes <= max_bytes else b""
    if size_bytes > max_bytes:
        raise make_error(size_bytes + HEADER_BYTES)


def assemble_batch(header: BatchHeader, payload: Bytes) -> bytearray:
    """Return the batch of `header` and `payload` (compressed records), with its length and checksum set."""
    batch = bytearray(HEADER_BYTES + len(payload))
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LOG_OVERHEAD_BYTES))
    batch[HEADER_BYTES:] = payload
    set_checksum(batch, 0, len(batch))
    return batch


def assemble_batch_in_steps(header: BatchHeader, chunks: Iterable[Bytes]) -> Steps[bytearray]:
    """Assemble a batch as `assemble_batch` does, from a payload in pieces. Raises what `chunks` raises."""
    batch = bytearray(HEADER_BYTES)
    for chunk in chunks:
        batch += chunk
        yield
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LOG_OVERHEAD_BYTES))
    yield from set_checksum_in_steps(batch, 0, len(batch))
    return batch


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Return a record as it is in a batch, with its length first."""
    parts = [_NO_ATTRIBUTES, encode_zigzag(wrap_to_64_bits(timestamp_delta)), encode_zigzag(offset_delta)]
    _append_nullable_bytes(parts, record.key)
    _append_nullable_bytes(parts, record.value)
    parts.append(encode_zigzag(len(record.headers)))
    for key, value in record.headers:
        _append_nullable_bytes(parts, key.encode())
        _append_nullable_bytes(parts, value)
    body = b"".join(parts)
    return encode_zigzag(len(body)) + body


def _append_nullable_bytes(parts: list[bytes], value: bytes | None) -> None:
    """Append the value's length and bytes to `parts`; null has the length -1 alone."""
    if value is None:
        parts.append(_NULL)
    else:
        parts += (encode_zigzag(len(value)), value)


def _make_attributes(compression: int, timestamp_type: int, transactional: bool, control: bool) -> int:
    return (
        compression
        | (TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
