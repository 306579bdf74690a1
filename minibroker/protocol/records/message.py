"""Single messages of formats 0 (magic 0, Kafka 0.8) and 1 (magic 1, Kafka 0.10, KIP-32).

`message_set.py` has sets of messages, and messages compressed together in a wrapper.

    byte  size  field
       0     8  offset                                                       set by the broker
       8     4  size                    bytes after this field
      12     4  crc                     CRC-32 of all that follows this field
      16     1  magic                   0 or 1
      17     1  attributes              bits 0-2 compression: none, gzip, snappy, lz4
                                        bit  3   timestamp type: 0 create time, 1 log append time; always 0 in format 0
      18     8  timestamp               ms since 1970, -1: none; only in format 1
                key                     int32 size (-1: null), and that many bytes
                value                   the same

There are no batches: each message has its own offset and checksum. For the rest of the program, a message is a batch of
one record with a `BatchHeader`, in which fields that a message does not have are -1.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NoReturn
from zlib import crc32

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords
from minibroker.protocol.legible import format_bytes_left
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from minibroker.protocol.records.varints import Bytes

NO_TIMESTAMP: Final = -1
MAGIC_POSITION = 16
MIN_MESSAGE_BYTES = (26, 34)  # by magic, with offset and size

KNOWN_MESSAGE_ATTRIBUTES = COMPRESSION_MASK | TIMESTAMP_TYPE_BIT

_HEAD = Struct(">qiIbb")  # offset, size, crc, magic, attributes
_BODY = (Struct(">bb"), Struct(">bbq"))  # what the checksum covers before the key, by magic
_BEFORE_BODY = Struct(">qiI")
_KEY_POSITIONS = (18, 26)
_ATTRIBUTES_POSITION = 17
_TIMESTAMP_POSITION = 18
CRC_POSITION = 12
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_CRC = Struct(">I")
_NULL = _INT32.pack(-1)


class Message(NamedTuple):
    """A message in a set. `key` and `value` are slices of the set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: Bytes | None
    value: Bytes | None

    @property
    def compression(self) -> int:
        """The number of the value's codec. Not 0 in a wrapper."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME


def read_message_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the message at `position` as the header of a batch of one record, unchecked.

    For a wrapper, `base_offset` and `last_offset` are the offset of the last message in it, and `record_count` is -1,
    as it is unknown before decompression. Raises `CorruptBatch` if the fixed fields are incomplete.
    """
    left = len(data) - position
    if left < MIN_MESSAGE_BYTES[0] or left < MIN_MESSAGE_BYTES[data[position + MAGIC_POSITION] == 1]:
        raise CorruptBatch(f"{format_bytes_left(left)}, fewer than a message's fixed fields", position)
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, position)
    timestamp = _INT64.unpack_from(data, position + _TIMESTAMP_POSITION)[0] if magic == 1 else NO_TIMESTAMP
    return make_batch_header(offset, size, crc, magic, attributes, timestamp)


def make_batch_header(offset: int, size: int, crc: int, magic: int, attributes: int, timestamp: int) -> BatchHeader:
    """Return the batch header for a message with these fields. Unknown attribute bits are cleared."""
    attributes &= KNOWN_MESSAGE_ATTRIBUTES if magic else COMPRESSION_MASK
    count = -1 if attributes & COMPRESSION_MASK else 1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def check_message(data: Bytes, position: int = 0) -> BatchHeader:
    """Check that the message at `position` is complete and sound, and return it as a batch header.

    Raises `CorruptBatch` for missing bytes, a magic other than 0 and 1, an impossible size or a wrong checksum.
    """
    header = read_message_header(data, position)
    if header.magic not in (0, 1):
        raise CorruptBatch(f"Invalid magic found in record: {header.magic}", position)
    if header.size_bytes < MIN_MESSAGE_BYTES[header.magic]:
        raise CorruptBatch(
            f"Record is corrupt (the size {header.size_bytes} is smaller than the minimum "
            f"{MIN_MESSAGE_BYTES[header.magic]})",
            position,
        )
    end = position + header.size_bytes
    if end > len(data):
        raise CorruptBatch(
            f"the message has {header.size_bytes} bytes, of which {len(data) - position} are here", position
        )
    computed = crc32(memoryview(data)[position + MAGIC_POSITION : end])
    if computed != header.crc:
        raise CorruptBatch(f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})", position)
    return header


def read_message(data: bytes, position: int = 0, *, is_checked: bool = False) -> tuple[Message, int]:
    """Check and return the message at `position`, and its end. `is_checked`: `check_message` was called before.

    `data` are bytes, so that key and value are, too. Raises what `check_message` raises, and `InvalidRecords` if the
    sizes of key and value do not fill the message, or for a timestamp that its format cannot have.
    """
    if len(data) - position < MIN_MESSAGE_BYTES[0]:
        check_message(data, position)  # raises with the reason
    offset, size, crc, magic, attributes = _HEAD.unpack_from(data, position)
    end = position + size + LOG_OVERHEAD_BYTES
    if not is_checked and (
        not 0 <= magic <= 1
        or not MIN_MESSAGE_BYTES[magic] <= end - position <= len(data) - position
        or crc32(memoryview(data)[position + MAGIC_POSITION : end]) != crc
    ):
        check_message(data, position)
    key, at = _read_bytes(data, position + _KEY_POSITIONS[magic], end)
    value, at = _read_bytes(data, at, end)
    if at != end:
        raise InvalidRecords(f"{format_bytes_left(end - at)} in the message of offset {offset} after its value")
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _INT64.unpack_from(data, position + _TIMESTAMP_POSITION)
        if timestamp < NO_TIMESTAMP:
            _raise_invalid_timestamp(f"Invalid message timestamp {timestamp}")
    elif attributes & TIMESTAMP_TYPE_BIT:
        _raise_invalid_timestamp(
            "A message of format 0 has no timestamp, so it cannot say that it has that of its append"
        )
    return Message(offset, magic, attributes & KNOWN_MESSAGE_ATTRIBUTES, timestamp, key, value), end


def _raise_invalid_timestamp(message: str) -> NoReturn:
    raise InvalidRecords(message, code=ErrorCode.INVALID_TIMESTAMP)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Return a key or value, None for null, and the position after it. Raises `InvalidRecords`."""
    if end - position < _INT32.size:
        raise InvalidRecords("a message ends in the size of its key or value")
    (size,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise InvalidRecords(f"{size} bytes of a key or value, {end - position} are left")
    return data[position : position + size], position + size


def encode_message(
    magic: int, offset: int, timestamp: int, attributes: int, key: Bytes | None, value: Bytes | None
) -> bytes:
    """Return the bytes of a message. Format 0 has no timestamp."""
    head = _BODY[1].pack(magic, attributes, timestamp) if magic else _BODY[0].pack(magic, attributes)
    body = b"".join((head, *_encode_nullable_bytes(key), *_encode_nullable_bytes(value)))
    return _BEFORE_BODY.pack(offset, len(body) + _CRC.size, crc32(body)) + body


def _encode_nullable_bytes(data: Bytes | None) -> tuple[Bytes, ...]:
    return (_NULL,) if data is None else (_INT32.pack(len(data)), data)


def set_message_offset(data: bytearray | memoryview, position: int, offset: int) -> None:
    """Set a message's offset, in place. The checksum does not cover it and stays valid."""
    _INT64.pack_into(data, position, offset)


def set_message_timestamp(data: bytearray | memoryview, position: int, timestamp_type: int, timestamp_ms: int) -> None:
    """Set timestamp type and timestamp of a message of format 1, in place, with a new checksum if they change.

    As in Kafka, a change clears unknown attribute bits.
    """
    header = read_message_header(data, position)
    if header.timestamp_type == timestamp_type and header.max_timestamp == timestamp_ms:
        return
    type_bit = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0
    data[position + _ATTRIBUTES_POSITION] = header.attributes & COMPRESSION_MASK | type_bit
    _INT64.pack_into(data, position + _TIMESTAMP_POSITION, timestamp_ms)
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    _CRC.pack_into(data, position + CRC_POSITION, crc32(memoryview(data)[position + MAGIC_POSITION : end]))
