"""Converts records between message formats: up to a log's format, down for old clients.

Records are converted one at a time, so that a batch takes no more memory than its bytes.

    lost               from 2 to 1   headers; control batches; producer id, epoch and sequence
                       from 1 to 0   timestamps and their type
    added              from 0 to 1   timestamp -1, create time
    never changed      offsets, keys, values
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    set_checksum_in_steps,
)
from minibroker.protocol.records.building import encode_record
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import STEP_BYTES, Compression
from minibroker.protocol.records.message import NO_TIMESTAMP
from minibroker.protocol.records.message_set import build_message_set_in_steps
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.streaming import stream_records
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import Steps, run_all_steps


def down_convert_batch_in_steps(
    batch: Bytes, header: BatchHeader, magic: int, first_offset: int = 0
) -> Steps[bytearray]:
    """Convert a stored batch to the older format `magic` (0 or 1) in the same codec, one record at a time.

    The result is empty for a control batch, and for one without records. If the records are not compressed, those below
    `first_offset` are left out, as some old clients expect the records to begin there. Raises `KafkaError`:
    UNSUPPORTED_COMPRESSION_TYPE for zstd, which no old client supports, and what reading the batch raises.
    """
    if header.is_control or header.record_count == 0:
        return bytearray()
    codec = header.compression
    if codec == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "Down-conversion of zstandard-compressed batches is not supported"
        )
    records: Iterable[Record | None] = stream_records(batch)
    if codec == Compression.NONE:
        records = (record for record in records if record is None or record.offset >= first_offset)
    return (
        yield from build_message_set_in_steps(records, magic, compression=codec, timestamp_type=header.timestamp_type)
    )


def build_records_in_format(
    records: Iterable[Record],
    magic: int,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
) -> bytearray:
    """Return the records in format `magic`: one batch, a wrapper, or a set of messages. Their offsets must increase.

    Offsets and timestamps do not change. The result is empty for no records. Raises `KafkaError`
    UNSUPPORTED_COMPRESSION_TYPE for a codec that the format does not have.
    """
    return run_all_steps(
        build_records_in_format_in_steps(
            records, magic, compression=compression, level=level, timestamp_type=timestamp_type
        )
    )


def build_records_in_format_in_steps(
    records: Iterable[Record | None],
    magic: int,
    *,
    compression: int = Compression.NONE,
    level: int | None = None,
    timestamp_type: int = 0,
) -> Steps[bytearray]:
    """Build as `build_records_in_format` does, in steps. A None among the records is a pause."""
    if magic < MAGIC:
        return (
            yield from build_message_set_in_steps(
                records, magic, compression=compression, level=level, timestamp_type=timestamp_type
            )
        )
    encoding = _BatchEncoding()
    batch = bytearray(HEADER_BYTES)
    for chunk in compress_chunks(compression, encoding.encode_in_chunks(records), level):
        batch += chunk
        yield
    first = encoding.first
    if first is None:
        return bytearray()
    type_bit = TIMESTAMP_TYPE_BIT if timestamp_type == LOG_APPEND_TIME else 0
    # The leader epoch comes last; there is no producer.
    header = BatchHeader(
        first.offset,
        len(batch) - LOG_OVERHEAD_BYTES,
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
    HEADER.pack_into(batch, 0, *header)
    yield from set_checksum_in_steps(batch, 0, len(batch))
    return batch


class _BatchEncoding:
    """Encodes records for a batch of format 2, and collects the values for its header."""

    def __init__(self) -> None:
        self.first: Record | None = None
        self.last_offset = -1
        self.largest_timestamp = NO_TIMESTAMP
        self.count = 0

    def encode_in_chunks(self, records: Iterable[Record | None]) -> Iterator[Bytes]:
        """Yield the bytes of the records, in pieces of about a millisecond."""
        out = bytearray()
        for record in records:
            if record is not None:
                first = self.first = self.first or record
                self.count += 1
                self.last_offset = record.offset
                self.largest_timestamp = max(self.largest_timestamp, record.timestamp)
                out += encode_record(record, record.offset - first.offset, record.timestamp - first.timestamp)
            if record is None or len(out) >= STEP_BYTES:
                yield out
                out = bytearray()
        yield out
