"""What a produced batch must be before it is appended, and what the topic's settings change in it.

The rules and the error codes are those of Kafka's broker (ProduceRequest.validateRecords, LogValidator, UnifiedLog).
What concerns the records alone is in the protocol's `validation.py`, a producer's sequences in `ProducerStates.check`.
"""

from __future__ import annotations

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    ELIDED_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from minibroker.protocol.records.building import assemble, build_batch, recompress
from minibroker.protocol.records.elision import with_attributes, without_attributes
from minibroker.protocol.records.formats import is_old
from minibroker.protocol.records.record import records_of
from minibroker.protocol.records.validation import MisnumberedRecords, check_records, stamped_by_producer
from minibroker.protocol.steps import Steps
from minibroker.storage.format_admission import FIRST_VERSION_WITH_ZSTD, ZSTD, admit_formats, zstd_too_early
from minibroker.storage.log import Log
from minibroker.storage.log_settings import CODECS, LogSettings

_PRODUCER = "producer"
SMALL_BYTES = 64 << 10


def is_small(log: Log, records: memoryview) -> bool:
    """Whether `admit` takes but a millisecond or two for what a Produce request brings."""
    return len(records) <= SMALL_BYTES


def admit_in_steps(
    log: Log, records: memoryview, *, api_version: int, now_ms: int
) -> Steps[tuple[memoryview, tuple[BatchHeader, ...]]]:
    """As `admit`, in steps."""
    yield
    return admit(log, records, api_version=api_version, now_ms=now_ms)


def admit(
    log: Log, records: memoryview, *, api_version: int, now_ms: int
) -> tuple[memoryview, tuple[BatchHeader, ...]]:
    """The batch to append, and its header: `records` itself, changed in place, or a recompressed copy of it.

    `records` is what a Produce request of `api_version` brings for one partition; where formats 0 and 1 come into it,
    see `format_admission.py`, which gives a header a message. Raises `KafkaError`: CORRUPT_MESSAGE (length, magic,
    checksum), INVALID_RECORD and INVALID_TIMESTAMP (`InvalidRecords`, with the records they are about),
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    settings = log.settings
    if settings.message_format_version != MAGIC:
        return admit_formats(log, records, api_version=api_version, now_ms=now_ms)
    try:
        header = check_batch(records)
    except CorruptBatch:
        if is_old(records):
            return admit_formats(log, records, api_version=api_version, now_ms=now_ms)
        raise
    if header.batch_length + LOG_OVERHEAD_BYTES != len(records):
        records = _only_batch(records, header)
    if header.attributes & ELIDED_BIT:
        records, header = _as_produced(records, header, settings)
    if header.base_offset:
        raise InvalidRecords(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if len(records) > settings.max_message_bytes or len(records) > settings.segment_bytes:
        raise _too_large(len(records), settings)
    codec = header.attributes & COMPRESSION_MASK
    if codec == ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise zstd_too_early(api_version)
    new_codec = codec if settings.compression_type == _PRODUCER else CODECS[settings.compression_type]
    try:
        header = _checked(records, header, settings, now_ms, any_offsets=codec == new_codec == 0)
    except MisnumberedRecords:
        if codec == new_codec:
            raise
        records, header = _renumbered(records, header, settings)
        header = _checked(records, header, settings, now_ms)
    if header.attributes & COMPRESSION_MASK != new_codec:
        records, header = _recompressed(records, header, settings)
    if settings.record_attributes_elide:
        records, header = _without_attributes(records, header, settings)
    return records, (header,)


def _as_produced(records: memoryview, header: BatchHeader, settings: LogSettings) -> tuple[memoryview, BatchHeader]:
    """A batch whose bit 7 is set, with the attributes of its records.

    Only to a topic that has ever stored batches without them does the bit mean that they are missing; elsewhere it has
    no meaning, as in Kafka, and is cleared.
    """
    if settings.record_attributes_elide is None:
        batch = assemble(header._replace(attributes=header.attributes & ~ELIDED_BIT), records[HEADER_BYTES:])
    else:
        batch = with_attributes(records, header, settings.compression_level(header.compression))
    return memoryview(batch), read_header(batch)


def _without_attributes(
    records: memoryview, header: BatchHeader, settings: LogSettings
) -> tuple[memoryview, BatchHeader]:
    """The batch as a topic with `record.attributes.elide` stores it."""
    batch = without_attributes(records, header, settings.compression_level(header.compression))
    return (records, header) if batch is None else (memoryview(batch), read_header(batch))


def _only_batch(records: memoryview, header: BatchHeader) -> memoryview:
    """The first batch, if no other follows. As in Kafka, an incomplete one after it is dropped without a word."""
    rest = records[header.size_bytes :]
    try:
        check_batch(rest)
    except CorruptBatch:
        if len(rest) >= HEADER_BYTES and read_header(rest).size_bytes <= len(rest):
            raise
        return records[: header.size_bytes]
    message = "Produce requests with version 3 and above must contain exactly one record batch"
    raise KafkaError(ErrorCode.INVALID_RECORD, message)


def _too_large(size_bytes: int, settings: LogSettings) -> KafkaError:
    if size_bytes > settings.max_message_bytes:
        return KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {size_bytes} bytes which exceeds the maximum configured value of "
            f"{settings.max_message_bytes}",
        )
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"The record batch size is {size_bytes} bytes which exceeds the segment size of {settings.segment_bytes}",
    )


def _checked(
    records: memoryview, header: BatchHeader, settings: LogSettings, now_ms: int, *, any_offsets: bool = False
) -> BatchHeader:
    """Check the records, and return the header with the times that the topic wants in it."""
    keys_required = "compact" in settings.cleanup_policy
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        check_records(records, 0, header, keys_required=keys_required, any_offsets=any_offsets)
        return _stamped(records, header, now_ms)
    earliest_ms, latest_ms = settings.create_times(now_ms)
    largest = check_records(
        records,
        0,
        header,
        keys_required=keys_required,
        any_offsets=any_offsets,
        earliest_ms=earliest_ms,
        latest_ms=latest_ms,
    )
    if largest != header.max_timestamp or header.attributes & TIMESTAMP_TYPE_BIT:
        return _timed(records, header, largest)
    return header


def _stamped(records: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """The header after the topic's LogAppendTime was put in, which a producer must not do itself."""
    if header.timestamp_type == LOG_APPEND_TIME:
        raise stamped_by_producer(range(header.record_count))
    set_log_append_time(records, 0, now_ms)
    return read_header(records)


def _timed(records: memoryview, header: BatchHeader, largest: int) -> BatchHeader:
    """The header of a topic with CreateTime, corrected in what it says of the records' timestamps."""
    if header.timestamp_type == LOG_APPEND_TIME and largest < 0:
        raise stamped_by_producer(range(header.record_count))
    set_max_timestamp(records, 0, CREATE_TIME, largest)
    return read_header(records)


def _renumbered(records: memoryview, header: BatchHeader, settings: LogSettings) -> tuple[memoryview, BatchHeader]:
    """The batch under the topic's own codec, with offset deltas from 0 on: Kafka writes its records anew."""
    codec = CODECS[settings.compression_type]
    batch = memoryview(
        build_batch(
            records_of(records),
            compression=codec,
            level=settings.compression_level(codec),
            timestamp_type=header.timestamp_type,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )
    if len(batch) > settings.max_message_bytes or len(batch) > settings.segment_bytes:
        raise _too_large(len(batch), settings)
    return batch, read_header(batch)


def _recompressed(records: memoryview, header: BatchHeader, settings: LogSettings) -> tuple[memoryview, BatchHeader]:
    """The batch under the topic's own codec."""
    codec = CODECS[settings.compression_type]
    batch = memoryview(recompress(records, 0, header, codec, settings.compression_level(codec)))
    if len(batch) > settings.max_message_bytes or len(batch) > settings.segment_bytes:
        raise _too_large(len(batch), settings)
    return batch, read_header(batch)
