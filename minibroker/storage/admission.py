"""What a produced batch must be before it is appended, and what the topic's settings change in it.

The rules and the error codes are those of Kafka's broker (ProduceRequest.validateRecords, LogValidator, UnifiedLog).
What concerns the records alone is in the protocol's `validation.py`, a producer's sequences in `ProducerStates.check`.
"""

from __future__ import annotations

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from minibroker.protocol.records.building import recompress
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.validation import check_records
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings

FIRST_VERSION_WITH_ZSTD = 7

_PRODUCER = "producer"
_ZSTD = int(Compression.ZSTD)  # comparing with a member of an enumeration takes three times as long
_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def admit(
    log: Log, records: memoryview, *, api_version: int, now_ms: int
) -> tuple[memoryview, tuple[BatchHeader, ...]]:
    """The batch to append, and its header: `records` itself, changed in place, or a recompressed copy of it.

    `records` is what a Produce request of `api_version` (3 or newer) brings for one partition. Raises `KafkaError`:
    CORRUPT_MESSAGE (length, magic, checksum), INVALID_RECORD and INVALID_TIMESTAMP (`InvalidRecords`, with the records
    they are about), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    settings = log.settings
    header = check_batch(records)
    if header.batch_length + LOG_OVERHEAD_BYTES != len(records):
        records = _only_batch(records, header)
    if header.base_offset:
        raise InvalidRecords(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if len(records) > settings.max_message_bytes or len(records) > settings.segment_bytes:
        raise _too_large(len(records), settings)
    codec = header.attributes & COMPRESSION_MASK
    if codec == _ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {api_version} are not allowed to use ZStandard compression",
        )
    keys_required = "compact" in settings.cleanup_policy
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        check_records(records, 0, header, keys_required=keys_required)
        header = _stamped(records, header, now_ms)
    else:
        earliest_ms = now_ms - settings.message_timestamp_before_max_ms
        latest_ms = now_ms + settings.message_timestamp_after_max_ms
        largest = check_records(
            records, 0, header, keys_required=keys_required, earliest_ms=earliest_ms, latest_ms=latest_ms
        )
        if largest != header.max_timestamp or header.attributes & TIMESTAMP_TYPE_BIT:
            header = _timed(records, header, largest)
    if settings.compression_type != _PRODUCER and codec != _CODECS[settings.compression_type]:
        records, header = _recompressed(records, header, settings)
    return records, (header,)


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


def _stamped(records: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """The header after the topic's LogAppendTime was put in, which a producer must not do itself."""
    if header.timestamp_type == LOG_APPEND_TIME:
        raise _stamped_by_producer(header)
    set_log_append_time(records, 0, now_ms)
    return read_header(records)


def _timed(records: memoryview, header: BatchHeader, largest: int) -> BatchHeader:
    """The header of a topic with CreateTime, corrected in what it says of the records' timestamps."""
    if header.timestamp_type == LOG_APPEND_TIME and largest < 0:
        raise _stamped_by_producer(header)
    set_max_timestamp(records, 0, CREATE_TIME, largest)
    return read_header(records)


def _stamped_by_producer(header: BatchHeader) -> InvalidRecords:
    message = "Producer should not set timestamp type to LogAppendTime"
    errors = tuple((index, message) for index in range(header.record_count))
    return InvalidRecords(
        "One or more records have been rejected due to invalid timestamp", errors, ErrorCode.INVALID_TIMESTAMP
    )


def _recompressed(records: memoryview, header: BatchHeader, settings: LogSettings) -> tuple[memoryview, BatchHeader]:
    """The batch under the topic's own codec."""
    kind = settings.compression_type
    batch = memoryview(
        recompress(records, 0, header, _CODECS[kind], getattr(settings, f"compression_{kind}_level", None))
    )
    if len(batch) > settings.max_message_bytes or len(batch) > settings.segment_bytes:
        raise _too_large(len(batch), settings)
    return batch, read_header(batch)
