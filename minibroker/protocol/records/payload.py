"""The bytes of a batch's records: decompressed, and with the attributes byte that elided batches lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    ELIDED_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    read_header,
)
from minibroker.protocol.records.compression import (
    MAX_UNCOMPRESSED_BYTES,
    STEP_BYTES,
    UNBOUNDED_BYTES,
    decompress,
    decompress_chunks,
)
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.restarting import restore_attributes_of_chunks, restore_attributes_of_payload
from minibroker.protocol.records.varints import Bytes

ENCODING_MASK: Final = COMPRESSION_MASK | ELIDED_BIT

PLAIN_BYTES = 1 << 20  # one piece of an uncompressed batch


def iterate_records_of_batch(
    batch: Bytes, position: int = 0, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Record]:
    """Return the records of the batch at `position`. They may decompress to `limit_bytes`. Includes control records.

    The batch must have been checked (`check_batch`), or come from the log. Raises `InvalidRecords` at the first
    malformed record, and for bytes after the last one, and what `decompress` raises.
    """
    header = read_header(batch, position)
    if header.record_count == 0:  # compaction has removed all records
        return iter(())
    return parse_records(get_uncompressed_payload(batch, position, header, limit_bytes), header)


def get_uncompressed_payload(
    batch: Bytes, position: int, header: BatchHeader, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Bytes:
    """Return the bytes of the records, decompressed; a view if the batch is not compressed.

    Elided attributes are restored. Raises `InvalidRecords` if such records are malformed, and what `decompress` raises.
    """
    view = memoryview(batch)[position + HEADER_BYTES : position + header.batch_length + LOG_OVERHEAD_BYTES]
    encoding = header.attributes & ENCODING_MASK
    if not encoding:
        return view
    payload = decompress(encoding & COMPRESSION_MASK, view, limit_bytes)
    if not encoding & ELIDED_BIT:
        return payload
    return restore_attributes_of_payload(bytes(payload), header.record_count)


def get_payload_if_small(batch: Bytes, header: BatchHeader, limit_bytes: int) -> bytes | None:
    """Return what `get_uncompressed_payload` returns, or None if that is more than `limit_bytes`."""
    if header.size_bytes > limit_bytes:
        return None
    try:
        return bytes(get_uncompressed_payload(batch, 0, header, limit_bytes))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        return None


def iterate_payload_chunks(
    batch: Bytes, position: int, header: BatchHeader, limit_bytes: int = UNBOUNDED_BYTES
) -> Iterator[Bytes]:
    """Yield what `get_uncompressed_payload` returns, of any size, in pieces that take a millisecond at most.

    Raises the same errors, on the way.
    """
    view = memoryview(batch)[position + HEADER_BYTES : position + header.batch_length + LOG_OVERHEAD_BYTES]
    codec = header.attributes & COMPRESSION_MASK
    chunks = decompress_chunks(codec, view, limit_bytes, STEP_BYTES if codec else PLAIN_BYTES)
    if not header.attributes & ELIDED_BIT:
        return chunks
    return restore_attributes_of_chunks(chunks, header.record_count)
