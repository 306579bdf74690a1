"""Sets of messages of formats 0 and 1: messages one after another, or compressed together as the value of a wrapper.

What one message consists of is in `message.py`; how records change formats is decided in `conversion.py`.

    format 0   |wrapper 14: codec, value = |10 ...|11 ...|12 ...|13 ...|14 ...| |    the inner offsets are absolute
    format 1   |wrapper 14: codec, value = | 0 ...| 1 ...| 2 ...| 3 ...| 4 ...| |    they are relative (KIP-31)

A wrapper bears the offset of the last message in it. In format 1 the inner ones are relative to the first, so that the
broker can set them all by setting the wrapper's, and their gaps are those that compaction left. The wrapper's time is
the largest of the inner ones, or, if its timestamp type says so, the time of its append, which then holds for all of
them (KIP-32). Wrappers do not nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT, BatchHeader
from minibroker.protocol.records.compression import Compression, compress, decompress
from minibroker.protocol.records.lz4_frames import with_old_checksum, with_right_checksum
from minibroker.protocol.records.message import (
    MIN_MESSAGE_BYTES,
    NO_TIMESTAMP,
    Message,
    check_message,
    encode_message,
    read_message,
)
from minibroker.protocol.records.record import MAX_UNCOMPRESSED_BYTES, Record
from minibroker.protocol.records.varints import Bytes

_OFFSET_AND_SIZE = Struct(">qi")


def records_of_message(
    data: Bytes, position: int = 0, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of the message at `position`: itself, or, if it is a wrapper, those in it.

    They bear their absolute offsets and the time that holds for them. At most `limit_bytes` are decompressed. Raises
    `CorruptBatch`, `InvalidRecords`, and what `decompress` raises.
    """
    if isinstance(data, bytes):
        message, _ = read_message(data, position)
    else:
        header = check_message(data, position)
        message, _ = read_message(bytes(memoryview(data)[position : position + header.size_bytes]), is_checked=True)
    if not message.compression:
        return iter((Record(message.offset, message.timestamp, message.key, message.value),))  # type: ignore[arg-type]
    return _records_in(message, inner_messages(message, limit_bytes))


def _records_in(wrapper: Message, payload: bytes) -> Iterator[Record]:
    base_offset = _base_offset(wrapper, payload)
    append_time = wrapper.timestamp if wrapper.timestamp_type == LOG_APPEND_TIME else None
    for message in messages_in(wrapper, payload):
        timestamp = message.timestamp if append_time is None else append_time
        yield Record(base_offset + message.offset, timestamp, message.key, message.value)  # type: ignore[arg-type]


def inner_messages(wrapper: Message, limit_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """The set that is the value of a wrapper, decompressed. Raises `InvalidRecords`, and what `decompress` raises."""
    codec, value = wrapper.compression, wrapper.value
    if value is None:
        raise InvalidRecords(f"Found invalid compressed record set with null value (magic = {wrapper.magic})")
    check_codec(codec, wrapper.magic)
    if codec == Compression.LZ4 and wrapper.magic == 0:
        value = with_right_checksum(value)
    return bytes(decompress(codec, value, limit_bytes))


def check_codec(codec: int, magic: int) -> None:
    """Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec that messages of this format cannot have."""
    if codec > Compression.LZ4:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Message format {magic} does not have compression type {codec}"
        )


def messages_in(wrapper: Message, payload: bytes) -> Iterator[Message]:
    """The messages in a wrapper, with the offsets that they bear there; `payload` is its value, decompressed.

    Each is checked as a whole. Raises `CorruptBatch`, and `InvalidRecords` also for one of another format, one that is
    compressed itself, and where there is none at all.
    """
    if not payload:
        raise InvalidRecords("Found invalid compressed record set with no inner records")
    position = index = 0
    while position < len(payload):
        message, position = read_message(payload, position)
        if message.magic != wrapper.magic:
            _refuse(index, f"its magic {message.magic} does not match outer magic {wrapper.magic}")
        if message.compression:
            _refuse(index, "Compressed outer record should not have an inner record with a compression attribute set")
        yield message
        index += 1


def _refuse(index: int, message: str) -> None:
    raise InvalidRecords(f"record {index}: {message}", ((index, message),))


def _base_offset(wrapper: Message, payload: bytes) -> int:
    """What is to be added to the offsets in a wrapper."""
    if wrapper.magic == 0 or wrapper.offset == 0:  # some versions of librdkafka produced all wrappers with offset 0
        return 0
    last_offset = last_inner_offset(payload)
    if wrapper.offset < last_offset:
        raise InvalidRecords(
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{wrapper.offset}' is less "
            f"than the last inner message offset '{last_offset}' and it is not zero."
        )
    return wrapper.offset - last_offset


def last_inner_offset(payload: bytes) -> int:
    """The offset that the last message of a set bears; 0 if there is none. Raises `CorruptBatch`."""
    position = offset = 0
    while position < len(payload):
        if len(payload) - position < LOG_OVERHEAD_BYTES:
            raise CorruptBatch("a message set ends within a message")
        offset, size = _OFFSET_AND_SIZE.unpack_from(payload, position)
        if size < MIN_MESSAGE_BYTES[0] - LOG_OVERHEAD_BYTES:
            raise CorruptBatch(f"a message of {size} bytes, fewer than its fixed fields")
        position += size + LOG_OVERHEAD_BYTES
    return offset


def headers_of_set(data: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each message of a set, wrappers as one, each whole and sound.

    What is too short to be a message, at the end, is left out, as Kafka does. Raises `CorruptBatch`.
    """
    position = 0
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        _, size = _OFFSET_AND_SIZE.unpack_from(data, position)
        if size > len(data) - position - LOG_OVERHEAD_BYTES:
            return
        header = check_message(data, position)
        yield position, header
        position += header.size_bytes


def build_message_set(
    records: Iterable[Record],
    magic: int,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
) -> bytearray:
    """A set of messages of format `magic` (0 or 1), in a wrapper if they are to be compressed, as Kafka writes it.

    The records keep their offsets, which must rise, and their timestamps, as far as the format has them; headers have
    no place. Empty for no records. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE.
    """
    check_codec(compression, magic)
    attributes = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME and magic else 0
    rest = iter(records)
    first = next(rest, None)
    out = bytearray()
    if first is None:
        return out
    base_offset = first.offset if magic and compression else 0
    largest, last_offset = NO_TIMESTAMP, -1
    for record in chain((first,), rest):
        out += encode_message(
            magic, record.offset - base_offset, record.timestamp, attributes, record.key, record.value
        )
        largest = max(largest, record.timestamp)
        last_offset = record.offset
    if not compression:
        return out
    value = compress(compression, out, level)
    if compression == Compression.LZ4 and magic == 0:
        value = with_old_checksum(value)
    return bytearray(encode_message(magic, last_offset, largest, attributes | compression, None, value))
