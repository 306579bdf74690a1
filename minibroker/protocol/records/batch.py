"""Record batches of format 2 (magic 2, Kafka 0.11 and newer): the header, the checksum, and changing them in place.

`record.py` reads the records in a batch, `building.py` writes and `validation.py` checks them.

    byte  size  field
       0     8  base_offset             offset of the first record           set by the broker
       8     4  batch_length            bytes after this field
      12     4  partition_leader_epoch                                       set by the broker
      16     1  magic                   2
      17     4  crc                     CRC-32C of all that follows this field
      21     2  attributes              bits 0-2 compression: none, gzip, snappy, lz4, zstd
                                        bit  3   timestamp type: 0 create time, 1 log append time
                                        bit  4   transactional
                                        bit  5   control batch
                                        bit  6   base_timestamp is the delete horizon (KIP-534)
                                        bit  7   records without attributes (KIP-931: see `elision.py`)
      23     4  last_offset_delta       last offset - base_offset
      27     8  base_timestamp          ms since 1970, of the first record
      35     8  max_timestamp           ms since 1970, the largest, or the log append time
      43     8  producer_id             -1: none
      51     2  producer_epoch          -1: none
      53     4  base_sequence           -1: none
      57     4  record_count
      61        records, compressed together if the attributes say so

The checksum does not cover the two fields that every append sets, so that an append need not compute it.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.legible import format_bytes_left
from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import Steps

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LOG_OVERHEAD_BYTES: Final = 12  # base_offset and batch_length, which batch_length does not count
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC: Final = 2

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
ELIDED_BIT: Final = 0x80
KNOWN_ATTRIBUTES: Final = 0x7F

CRC_POSITION: Final = 17
CRC_STEP_BYTES: Final = 1 << 20  # the bytes of a checksum in one step
CRC_START: Final = 21  # the checksum covers the batch from here to its end
MAX_RECORD_BYTES: Final = (1 << 31) - 9  # that Java can hold; as max.decompressed.message.bytes it is no limit
MAX_SEQUENCE: Final = 0x7FFFFFFF  # 0 follows it

MAGIC_POSITION: Final = 16
LOW_ATTRIBUTES_POSITION: Final = 22
TIMESTAMPS_POSITION: Final = 27  # of the base timestamp; the largest one follows
_MAX_TIMESTAMP_POSITION: Final = 35
TIMESTAMPS_END: Final = 43
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as on the wire. The properties interpret them."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record that the batch has ever had. Compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The producer's sequence of the last record, -1 for none. Sequences wrap from 2^31-1 to 0."""
        return -1 if self.base_sequence == -1 else (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> int:
        """The number of the codec, 0-7: a `Compression`, or 5-7, which are unknown."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """`CREATE_TIME` or `LOG_APPEND_TIME`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch contains control records, which consumers skip."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones (KIP-534), None if that is not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Return the header at `position` unchecked.

    Raises `CorruptBatch` if fewer than 61 bytes are left.
    """
    if len(data) - position < HEADER_BYTES:
        raise _make_too_short_error(len(data) - position, position)
    return tuple.__new__(BatchHeader, HEADER.unpack_from(data, position))  # takes half the time of `_make`


def is_transactional(data: Bytes) -> bool:
    """Return whether `data` begins with the whole header of a transactional batch. Nothing else is checked."""
    return (
        len(data) >= HEADER_BYTES
        and data[MAGIC_POSITION] == MAGIC
        and data[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT != 0
    )


def check_batch(data: Bytes, position: int = 0) -> BatchHeader:
    """Check that the batch at `position` is complete and sound, and return its header.

    Raises `CorruptBatch` for missing bytes, a magic other than 2, an impossible length or a wrong checksum.
    """
    header = _read_header_within_data(data, position)
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if end > len(data):
        raise _make_incomplete_error(header, data, position)
    computed = crc32c(memoryview(data)[position + CRC_START : end])
    if computed != header.crc:
        raise _make_checksum_error(header, computed, position)
    return header


def check_batch_in_steps(data: Bytes, position: int = 0) -> Steps[BatchHeader]:
    """Check a batch as `check_batch` does, in steps."""
    header = _read_header_within_data(data, position)
    if position + header.size_bytes > len(data):
        raise _make_incomplete_error(header, data, position)
    computed = yield from _compute_crc_in_steps(data, position + CRC_START, position + header.size_bytes)
    if computed != header.crc:
        raise _make_checksum_error(header, computed, position)
    return header


def _make_incomplete_error(header: BatchHeader, data: Bytes, position: int) -> CorruptBatch:
    return CorruptBatch(f"the batch has {header.size_bytes} bytes, of which {len(data) - position} are here", position)


def _make_checksum_error(header: BatchHeader, computed: int, position: int) -> CorruptBatch:
    return CorruptBatch(f"Record is corrupt (stored crc = {header.crc}, computed crc = {computed})", position)


def _compute_crc_in_steps(data: Bytes, start: int, end: int) -> Steps[int]:
    view, crc = memoryview(data), 0
    for at in range(start, end, CRC_STEP_BYTES):
        crc = crc32c(view[at : min(at + CRC_STEP_BYTES, end)], crc)
        if at + CRC_STEP_BYTES < end:
            yield
    return crc


def iterate_batches(data: Bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch in `data`. Checksums are not verified.

    An incomplete batch at the end is left out, as Fetch responses and log files may end anywhere. Raises `CorruptBatch`
    for a magic other than 2 or an impossible length, as the next batch cannot be found then.
    """
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = _read_header_within_data(data, position)
        if header.batch_length > len(data) - position - LOG_OVERHEAD_BYTES:
            return
        yield position, header
        position += header.batch_length + LOG_OVERHEAD_BYTES


def set_offset_and_epoch(data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set base offset and leader epoch of a batch, in place. The checksum does not cover them and stays valid."""
    _INT64.pack_into(data, position, base_offset)
    _INT32.pack_into(data, position + LOG_OVERHEAD_BYTES, leader_epoch)


def set_log_append_time(data: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set LogAppendTime, in place: timestamp type, largest timestamp, and a new checksum.

    The records keep their own timestamps as deltas, but readers of such a batch use `timestamp_ms` for every record.
    """
    set_timestamp_type_and_max(data, position, LOG_APPEND_TIME, timestamp_ms)


def set_timestamp_type_and_max(
    data: bytearray | memoryview, position: int, timestamp_type: int, timestamp_ms: int
) -> None:
    """Set timestamp type and largest timestamp, in place, and compute the checksum.

    As in Kafka, this clears unknown attribute bits.
    """
    header = read_header(data, position)
    type_bit = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0
    _ATTRIBUTES.pack_into(
        data, position + CRC_START, header.attributes & KNOWN_ATTRIBUTES & ~TIMESTAMP_TYPE_BIT | type_bit
    )
    _INT64.pack_into(data, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    set_checksum(data, position, header.size_bytes)


def set_checksum(data: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Compute and store the checksum of the batch of `size_bytes` at `position`."""
    crc = crc32c(memoryview(data)[position + CRC_START : position + size_bytes])
    _CRC.pack_into(data, position + CRC_POSITION, crc)


def set_checksum_in_steps(data: bytearray | memoryview, position: int, size_bytes: int) -> Steps[None]:
    """Do as `set_checksum`, in steps."""
    crc = yield from _compute_crc_in_steps(data, position + CRC_START, position + size_bytes)
    _CRC.pack_into(data, position + CRC_POSITION, crc)


def _read_header_within_data(data: Bytes, position: int) -> BatchHeader:
    """Return the header after checking magic and length. Magic comes first, as older messages may be shorter."""
    left = len(data) - position
    if left > MAGIC_POSITION and data[position + MAGIC_POSITION] != MAGIC:
        raise CorruptBatch(_describe_magic(data[position + MAGIC_POSITION]), position)
    if left < HEADER_BYTES:
        raise _make_too_short_error(left, position)
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(data, position))
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptBatch(
            f"Record batch is corrupt (the size {header.size_bytes} is smaller than the minimum {HEADER_BYTES})",
            position,
        )
    return header


def _make_too_short_error(bytes_left: int, position: int) -> CorruptBatch:
    return CorruptBatch(f"{format_bytes_left(bytes_left)}, fewer than a batch header's {HEADER_BYTES}", position)


def _describe_magic(magic: int) -> str:
    if magic < MAGIC:
        return f"Message format {magic} is not supported, only format {MAGIC}"
    return f"Invalid magic found in record: {magic}"
