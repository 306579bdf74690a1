"""The records of a batch as bytes: decompressed, and with the attributes byte that they may be stored without.

Whole here, in pieces for those who must let others have their turn; what the bytes mean is in `record.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    decompress,
    decompressed_chunks,
)
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.restarting import restored, restored_chunks
from minibroker.protocol.records.varints import Bytes

ENCODING_MASK = COMPRESSION_MASK | ELIDED_BIT

PLAIN_BYTES = 1 << 20  # what is looked at in one piece where nothing is compressed


def records_of(batch: Bytes, position: int = 0, *, limit_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Iterator[Record]:
    """Return the records of the whole batch at `position`, control records too, decompressed within `limit_bytes`.

    The batch must have been checked (`check_batch`) or come from the log. Raises `InvalidRecords` at the first record
    that does not parse, and for bytes left after the last; what `decompress` raises for a codec's invalid data.
    """
    header = read_header(batch, position)
    if header.record_count == 0:  # what compaction leaves of a batch whose records are all gone
        return iter(())
    return parse_records(payload_of(batch, position, header, limit_bytes), header)


def payload_of(batch: Bytes, position: int, header: BatchHeader, limit_bytes: int = MAX_UNCOMPRESSED_BYTES) -> Bytes:
    """The bytes of the records, decompressed if need be; without compression a view, not a copy.

    Records that are stored without attributes have them here. Raises `InvalidRecords` if those are malformed, and what
    `decompress` raises.
    """
    view = memoryview(batch)[position + HEADER_BYTES : position + header.batch_length + LOG_OVERHEAD_BYTES]
    encoding = header.attributes & ENCODING_MASK
    if not encoding:
        return view
    payload = decompress(encoding & COMPRESSION_MASK, view, limit_bytes)
    if not encoding & ELIDED_BIT:
        return payload
    return restored(bytes(payload), header.record_count)


def payload_up_to(batch: Bytes, header: BatchHeader, limit_bytes: int) -> bytes | None:
    """Return what `payload_of` does for the batch, or None if it is more than `limit_bytes`."""
    if header.size_bytes > limit_bytes:
        return None
    try:
        return bytes(payload_of(batch, 0, header, limit_bytes))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        return None


def payload_chunks(
    batch: Bytes, position: int, header: BatchHeader, limit_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[Bytes]:
    """The bytes of the records as `payload_of` gives them, in pieces, each of which takes a millisecond at most.

    Raises what `payload_of` raises, when it comes to that.
    """
    view = memoryview(batch)[position + HEADER_BYTES : position + header.batch_length + LOG_OVERHEAD_BYTES]
    codec = header.attributes & COMPRESSION_MASK
    chunks = decompressed_chunks(codec, view, limit_bytes, STEP_BYTES if codec else PLAIN_BYTES)
    if not header.attributes & ELIDED_BIT:
        return chunks
    return restored_chunks(chunks, header.record_count)
