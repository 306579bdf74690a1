"""Sets of messages of formats 0 and 1: one after another, or compressed together as the value of a wrapper.

    format 0   |wrapper 14: codec, value = |10 ...|11 ...|12 ...|13 ...|14 ...| |    the inner offsets are absolute
    format 1   |wrapper 14: codec, value = | 0 ...| 1 ...| 2 ...| 3 ...| 4 ...| |    they are relative (KIP-31)

A wrapper has the offset of the last message in it. In format 1 the inner offsets are relative to the first, so that the
broker can set all of them by setting the wrapper's; gaps come from compaction. The wrapper's timestamp is the largest
of the inner ones, or, with LogAppendTime, the time of its append, which then applies to all of them (KIP-32). Wrappers
do not nest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import LOG_APPEND_TIME, LOG_OVERHEAD_BYTES, TIMESTAMP_TYPE_BIT, BatchHeader
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import (
    MAX_UNCOMPRESSED_BYTES,
    STEP_BYTES,
    Compression,
    decompress,
    decompress_chunks,
)
from minibroker.protocol.records.lz4_frames import set_format_0_checksum, set_standard_checksum
from minibroker.protocol.records.message import (
    MIN_MESSAGE_BYTES,
    NO_TIMESTAMP,
    Message,
    check_message,
    encode_message,
    read_message,
)
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.records.windows import ByteWindow
from minibroker.protocol.steps import Steps, run_all_steps

_OFFSET_AND_SIZE = Struct(">qi")
_MESSAGES_AT_ONCE = 128


def iterate_records_of_message(
    data: Bytes, position: int = 0, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Record]:
    """Return the records of the message at `position`: the message itself, or those in a wrapper.

    They have absolute offsets and the timestamps that apply to them. At most `limit_bytes` are decompressed. Raises
    `CorruptBatch`, `InvalidRecords`, and what `decompress` raises.
    """
    if isinstance(data, bytes):
        message, _ = read_message(data, position)
    else:
        header = check_message(data, position)
        message, _ = read_message(bytes(memoryview(data)[position : position + header.size_bytes]), is_checked=True)
    if not message.compression:
        return iter((Record(message.offset, message.timestamp, message.key, message.value),))  # type: ignore[arg-type]
    return _iterate_records_of_wrapper(message, decompress_inner_messages(message, limit_bytes))


def _iterate_records_of_wrapper(wrapper: Message, payload: bytes) -> Iterator[Record]:
    """Yield the records in a wrapper, with absolute offsets."""
    base_offset = _find_base_offset(wrapper, payload)
    append_time = wrapper.timestamp if wrapper.timestamp_type == LOG_APPEND_TIME else None
    for message in iterate_messages_in(wrapper, payload):
        timestamp = message.timestamp if append_time is None else append_time
        yield Record(base_offset + message.offset, timestamp, message.key, message.value)  # type: ignore[arg-type]


def decompress_inner_messages(wrapper: Message, limit_bytes: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """Return the decompressed set in a wrapper. Raises `InvalidRecords`, and what `decompress` raises."""
    return bytes(decompress(*_get_codec_and_payload(wrapper), limit_bytes))


def _get_codec_and_payload(wrapper: Message) -> tuple[int, Bytes]:
    """Return the codec of a wrapper, and its compressed value. Raises as `decompress_inner_messages` does."""
    codec, value = wrapper.compression, wrapper.value
    if value is None:
        raise InvalidRecords(f"Found invalid compressed record set with null value (magic = {wrapper.magic})")
    check_codec(codec, wrapper.magic)
    if codec == Compression.LZ4 and wrapper.magic == 0:
        value = set_standard_checksum(value)
    return codec, value


def check_codec(codec: int, magic: int) -> None:
    """Raise `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec that messages of this format cannot have."""
    if codec > Compression.LZ4:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Message format {magic} does not have compression type {codec}"
        )


def iterate_messages_in(wrapper: Message, payload: bytes) -> Iterator[Message]:
    """Yield the messages in a wrapper, with their inner offsets. `payload` is the decompressed value.

    Each message is checked. Raises `CorruptBatch`, and `InvalidRecords` also for a message of another format, a
    compressed one, and an empty set.
    """
    if not payload:
        raise InvalidRecords("Found invalid compressed record set with no inner records")
    position = index = 0
    while position < len(payload):
        message, position = read_message(payload, position)
        _check_inner_message(wrapper, index, message)
        yield message
        index += 1


def _check_inner_message(wrapper: Message, index: int, message: Message) -> None:
    """Raise `InvalidRecords` for an inner message of another format, or a compressed one."""
    if message.magic != wrapper.magic:
        _raise_invalid_record(index, f"its magic {message.magic} does not match outer magic {wrapper.magic}")
    if message.compression:
        _raise_invalid_record(
            index, "Compressed outer record should not have an inner record with a compression attribute set"
        )


def _raise_invalid_record(index: int, message: str) -> None:
    raise InvalidRecords(f"record {index}: {message}", ((index, message),))


def _find_base_offset(wrapper: Message, payload: bytes) -> int:
    """Return the number to add to the inner offsets of a wrapper."""
    if wrapper.magic == 0 or wrapper.offset == 0:  # some versions of librdkafka produced all wrappers with offset 0
        return 0
    return _check_base_offset(wrapper, find_last_inner_offset(payload))


def _check_base_offset(wrapper: Message, last_offset: int) -> int:
    """Return what to add to inner offsets, of which the last is `last_offset`. Raises `InvalidRecords` below 0."""
    if wrapper.offset < last_offset:
        raise InvalidRecords(
            f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{wrapper.offset}' is less "
            f"than the last inner message offset '{last_offset}' and it is not zero."
        )
    return wrapper.offset - last_offset


def find_last_inner_offset(payload: bytes) -> int:
    """Return the offset of the last message in a set, 0 for an empty set. Raises `CorruptBatch`."""
    position = offset = 0
    while position < len(payload):
        offset, position = _read_offset_and_next_position(payload, position)
    return offset


def _read_offset_and_next_position(payload: bytes, position: int) -> tuple[int, int]:
    """Return the offset of the message at `position`, and the position of the next one."""
    if len(payload) - position < LOG_OVERHEAD_BYTES:
        raise CorruptBatch("a message set ends within a message")
    offset, size = _OFFSET_AND_SIZE.unpack_from(payload, position)
    if size < MIN_MESSAGE_BYTES[0] - LOG_OVERHEAD_BYTES:
        raise CorruptBatch(f"a message of {size} bytes, fewer than its fixed fields")
    return offset, position + size + LOG_OVERHEAD_BYTES


def decompress_inner_chunks(wrapper: Message, limit_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Iterator[Bytes]:
    """Yield what `decompress_inner_messages` returns in pieces. Raises the same errors, on the way."""
    yield from decompress_chunks(*_get_codec_and_payload(wrapper), limit_bytes)


def iterate_messages_in_steps(wrapper: Message) -> Iterator[Message | None]:
    """Yield the messages as `iterate_messages_in` does, one at a time, and None for a pause."""
    window, position, index = ByteWindow(decompress_inner_chunks(wrapper)), 0, 0
    while True:
        if index % _MESSAGES_AT_ONCE == 0:
            yield None
        while len(window.data) - position < LOG_OVERHEAD_BYTES and not window.ended:
            position = window.drop_and_read_next_chunk(position)
            yield None
        if position == len(window.data):
            if not index:
                raise InvalidRecords("Found invalid compressed record set with no inner records")
            return
        if len(window.data) - position >= LOG_OVERHEAD_BYTES:
            size = max(_OFFSET_AND_SIZE.unpack_from(window.data, position)[1], 0) + LOG_OVERHEAD_BYTES
            if len(window.data) - position < size and not window.ended:
                position = yield from window.read_until_available(position, size)
        message, position = read_message(window.data, position)
        _check_inner_message(wrapper, index, message)
        yield message
        index += 1


def find_base_offset_in_steps(wrapper: Message) -> Steps[int]:
    """Return, in steps, the number to add to the inner offsets of a wrapper. Raises as reading it does."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    window, position, offset = ByteWindow(decompress_inner_chunks(wrapper)), 0, 0
    steps = 0
    while True:
        while len(window.data) - position < LOG_OVERHEAD_BYTES and not window.ended:
            position = window.drop_and_read_next_chunk(position)
            yield
        if position >= len(window.data):
            return _check_base_offset(wrapper, offset)
        offset, position = _read_offset_and_next_position(window.data, position)
        steps += 1
        if steps % 1024 == 0:
            yield


def iterate_headers_of_set(data: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Check each message of a set and yield (position, header). A wrapper is one message.

    As in Kafka, an incomplete message at the end is left out. Raises `CorruptBatch`.
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
    """Return a set of messages of format `magic` (0 or 1) as Kafka writes it, in a wrapper if they are compressed.

    The records keep their offsets, which must increase, and their timestamps, if the format has them; headers are lost.
    The result is empty for no records. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE.
    """
    return run_all_steps(
        build_message_set_in_steps(records, magic, compression=compression, level=level, timestamp_type=timestamp_type)
    )


def build_message_set_in_steps(
    records: Iterable[Record | None],
    magic: int,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
) -> Steps[bytearray]:
    """Build as `build_message_set` does, in steps. A None among the records is a pause."""
    check_codec(compression, magic)
    encoding = _MessageSetEncoding(magic, timestamp_type, relative=magic == 1 and compression != 0)
    out = bytearray()
    for chunk in compress_chunks(compression, encoding.encode_in_chunks(records), level):
        out += chunk
        yield
    if not compression or not encoding.count:
        return out if encoding.count else bytearray()
    if compression == Compression.LZ4 and magic == 0:
        out = set_format_0_checksum(out)
    attributes = encoding.attributes | compression
    return bytearray(encode_message(magic, encoding.last_offset, encoding.largest_timestamp, attributes, None, out))


class _MessageSetEncoding:
    """Encodes records for a set, and collects the values for a wrapper."""

    def __init__(self, magic: int, timestamp_type: int, *, relative: bool) -> None:
        self.attributes = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME and magic else 0
        self.count = 0
        self.last_offset = -1
        self.largest_timestamp = NO_TIMESTAMP
        self._magic = magic
        self._relative = relative

    def encode_in_chunks(self, records: Iterable[Record | None]) -> Iterator[Bytes]:
        """Yield the bytes of the messages, in pieces of about a millisecond."""
        out, base_offset = bytearray(), 0
        for record in records:
            if record is None:
                yield out
                out = bytearray()
                continue
            if not self.count and self._relative:
                base_offset = record.offset
            out += encode_message(
                self._magic, record.offset - base_offset, record.timestamp, self.attributes, record.key, record.value
            )
            self.count += 1
            self.largest_timestamp = max(self.largest_timestamp, record.timestamp)
            self.last_offset = record.offset
            if len(out) >= STEP_BYTES:
                yield out
                out = bytearray()
        yield out
