"""Records from one message format into another: up for a log's own format, down for clients that know no newer one.

When that is to be done is decided by the storage layer, which appends, and by the broker, which answers. Records pass
through one at a time, so that a batch costs no more memory than its bytes.

    what is lost             from 2 to 1   headers; control batches; producer id, epoch and sequence
                             from 1 to 0   timestamps and their type
    what is made up          from 0 to 1   timestamp -1, create time
    never changed            offsets, keys, values
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import (
    LOG_APPEND_TIME,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from minibroker.protocol.records.building import assemble, encode_record
from minibroker.protocol.records.compression import Compression, compress
from minibroker.protocol.records.formats import records_in
from minibroker.protocol.records.message import NO_TIMESTAMP
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes


def down_converted(batch: Bytes, header: BatchHeader, magic: int, first_offset: int = 0) -> bytearray:
    """A stored batch of a newer format than `magic` (0 or 1) in that format, under the same codec.

    Empty if nothing of it can be told: a control batch, or one whose records are all gone. Of records that were not
    compressed, those below `first_offset` are left out: their readers asked for that one, and some take what comes
    first for it. Raises `KafkaError`: UNSUPPORTED_COMPRESSION_TYPE for zstd, which no old client knows, and what
    reading the batch raises.
    """
    if header.is_control or header.record_count == 0:
        return bytearray()
    codec = header.compression
    if codec == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Down-conversion of zstandard-compressed batches is not supported"
        )
    records = records_in(batch)
    if codec == Compression.NONE:
        records = (record for record in records if record.offset >= first_offset)
    return build_message_set(records, magic, compression=codec, timestamp_type=header.timestamp_type)


def build(
    records: Iterable[Record],
    magic: int,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
) -> bytearray:
    """The records, whose offsets must rise, in format `magic`: one batch, a wrapper, or messages one after another.

    Offsets and timestamps stay. Empty for no records. Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE for a codec that
    the format does not have.
    """
    if magic < MAGIC:
        return build_message_set(records, magic, compression=compression, level=level, timestamp_type=timestamp_type)
    rest = iter(records)
    first = next(rest, None)
    if first is None:
        return bytearray()
    type_bit = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0
    encoding = _Encoding(first)
    payload = compress(compression, encoding.encode(chain((first,), rest)), level)
    # Length, leader epoch and checksum come last; there is no producer.
    header = BatchHeader(
        first.offset,
        0,
        -1,
        MAGIC,
        0,
        compression | type_bit,
        encoding.last_offset - first.offset,
        first.timestamp,
        encoding.largest_timestamp,
        -1,
        -1,
        -1,
        encoding.count,
    )
    return assemble(header, payload)


class _Encoding:
    """Records on their way into a batch of format 2, and what its header must say of those that have passed."""

    def __init__(self, first: Record) -> None:
        self.last_offset = first.offset
        self.largest_timestamp = NO_TIMESTAMP
        self.count = 0
        self._first = first

    def encode(self, records: Iterable[Record]) -> bytearray:
        """The records' bytes, as they lie in a batch that begins with the first one."""
        base_offset, base_timestamp = self._first.offset, self._first.timestamp
        out = bytearray()
        for record in records:
            self.count += 1
            self.last_offset = record.offset
            self.largest_timestamp = max(self.largest_timestamp, record.timestamp)
            out += encode_record(record, record.offset - base_offset, record.timestamp - base_timestamp)
        return out
