"""Checks a produced batch before it is appended, and changes in it what the topic's settings say.

The rules and the error codes are those of Kafka's broker (ProduceRequest.validateRecords, LogValidator, UnifiedLog).
The checks of single records are in the protocol's `validation.py`, those of sequences in `ProducerStates.check`.
"""

from __future__ import annotations

from typing import Final

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CREATE_TIME,
    ELIDED_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    LOW_ATTRIBUTES_POSITION,
    MAGIC,
    MAGIC_POSITION,
    MAX_RECORD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    check_batch,
    check_batch_in_steps,
    read_header,
    set_log_append_time,
    set_timestamp_type_and_max,
)
from minibroker.protocol.records.building import assemble_batch, recompress_batch_in_steps
from minibroker.protocol.records.elision import elide_attributes_in_steps, restore_attributes_in_steps
from minibroker.protocol.records.formats import is_old_format
from minibroker.protocol.records.payload import ENCODING_MASK
from minibroker.protocol.records.streaming import check_record_sizes
from minibroker.protocol.records.validation import (
    SMALL_BYTES,
    MisnumberedRecords,
    RecordRules,
    check_plain_records,
    check_records_in_steps,
    make_log_append_time_error,
)
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import Steps
from minibroker.storage.format_validation import (
    FIRST_VERSION_WITH_ZSTD,
    ZSTD,
    ValidatedBatches,
    make_record_list_too_large_error,
    make_record_rules,
    make_record_too_large_error,
    make_unsupported_zstd_error,
    validate_and_convert_records,
)
from minibroker.storage.log import Log
from minibroker.storage.log_settings import CODECS, LogSettings

_PRODUCER: Final = "producer"
_NOT_PLAIN: Final = ENCODING_MASK | CONTROL_BIT
_PLAIN: Final = frozenset({_PRODUCER, "uncompressed"})  # what leaves a plain batch as it is, of compression.type


def is_plain_batch(records: Bytes) -> bool:
    """Return whether these are up to 64 KiB of format 2, neither compressed nor control records: the common case."""
    return (
        HEADER_BYTES <= len(records) <= SMALL_BYTES
        and records[MAGIC_POSITION] == MAGIC
        and not records[LOW_ATTRIBUTES_POSITION] & _NOT_PLAIN
    )


def stores_uncompressed_batches_unchanged(settings: LogSettings) -> bool:
    """Return whether a log with these settings takes plain batches as they are."""
    return (
        settings.compression_type in _PLAIN
        and not settings.record_attributes_elide
        and settings.message_format_version == MAGIC
    )


def validate_plain_batch(log: Log, records: memoryview, now_ms: int) -> ValidatedBatches | None:
    """Do as `validate_records_in_steps` for a batch that `is_plain_batch`. Return None if the settings need more."""
    settings = log.settings
    if not stores_uncompressed_batches_unchanged(settings):
        return None
    header = check_batch(records)
    if header.batch_length + LOG_OVERHEAD_BYTES != len(records):
        records = _check_only_batch(records, header)
    if header.base_offset or len(records) > settings.max_message_bytes or len(records) > settings.segment_bytes:
        _check_batch_header(header, len(records), settings, FIRST_VERSION_WITH_ZSTD)
    largest = check_plain_records(records, header, _get_plain_rules(log, settings, now_ms))
    return records, (_set_timestamps(records, header, settings, largest, now_ms),)


def _get_plain_rules(log: Log, settings: LogSettings, now_ms: int) -> RecordRules:
    """Return the rules for plain batches. They are made once a millisecond, as large integers take time."""
    made_ms, made_for, rules = log.plain_rules
    if rules is None or made_ms != now_ms or made_for is not settings:
        rules = make_record_rules(settings, now_ms, any_offsets=True)
        log.plain_rules = now_ms, settings, rules
    return rules


def validate_records_in_steps(
    log: Log, records: memoryview, *, api_version: int, now_ms: int
) -> Steps[ValidatedBatches]:
    """Return the batch to append, and its header: `records` itself, changed in place, or a recompressed copy.

    `records` is what a Produce request of `api_version` contains for one partition. Steps take a few milliseconds at
    most, by the log's settings at the first one. For formats 0 and 1 see `format_validation.py`, which returns a header
    for each message; as these have their final offsets, the caller must append the result at once. Raises `KafkaError`:
    CORRUPT_MESSAGE (length, magic, checksum), INVALID_RECORD and INVALID_TIMESTAMP (`InvalidRecords`, which lists the
    records), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    settings = log.settings
    if settings.message_format_version != MAGIC:
        return (yield from validate_and_convert_records(log, records, settings, api_version=api_version, now_ms=now_ms))
    try:
        header = yield from check_batch_in_steps(records)
    except CorruptBatch:
        if is_old_format(records):
            return (
                yield from validate_and_convert_records(log, records, settings, api_version=api_version, now_ms=now_ms)
            )
        raise
    if header.batch_length + LOG_OVERHEAD_BYTES != len(records):
        records = _check_only_batch(records, header)
    if header.attributes & ELIDED_BIT:
        records, header = yield from _restore_attributes(records, header, settings)
    _check_batch_header(header, len(records), settings, api_version)
    codec = header.compression
    new_codec = codec if settings.compression_type == _PRODUCER else CODECS[settings.compression_type]
    if codec and settings.max_decompressed_message_bytes < MAX_RECORD_BYTES:
        yield from check_record_sizes(records, header, settings.max_decompressed_message_bytes)
    rules = make_record_rules(settings, now_ms, any_offsets=codec == new_codec == 0)
    try:
        largest = yield from check_records_in_steps(records, 0, header, rules)
    except MisnumberedRecords:
        if codec == new_codec:
            raise
        records, header = yield from _recompress_batch(records, header, settings, renumbers=True)
        largest = yield from check_records_in_steps(records, 0, header, rules)
    header = _set_timestamps(records, header, settings, largest, now_ms)
    if header.compression != new_codec:
        yield
        records, header = yield from _recompress_batch(records, header, settings)
    if settings.record_attributes_elide:
        records, header = yield from _elide_attributes(records, header, settings)
    return records, (header,)


def _check_batch_header(header: BatchHeader, size_bytes: int, settings: LogSettings, api_version: int) -> None:
    """Check what the header says, before the records are read. Raises `KafkaError`."""
    if header.base_offset:
        raise InvalidRecords(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    if size_bytes > settings.max_message_bytes or size_bytes > settings.segment_bytes:
        raise _make_too_large_error(size_bytes, settings)
    if header.attributes & COMPRESSION_MASK == ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise make_unsupported_zstd_error(api_version)


def _set_timestamps(
    records: memoryview, header: BatchHeader, settings: LogSettings, largest_timestamp: int, now_ms: int
) -> BatchHeader:
    """Set a batch's timestamps by the topic's timestamp type, and return its header."""
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        return _set_log_append_time(records, header, now_ms)
    if largest_timestamp != header.max_timestamp or header.attributes & TIMESTAMP_TYPE_BIT:
        return _set_create_time(records, header, largest_timestamp)
    return header


def _restore_attributes(
    records: memoryview, header: BatchHeader, settings: LogSettings
) -> Steps[tuple[memoryview, BatchHeader]]:
    """Return a batch with bit 7 set, with the attributes of its records restored.

    The bit says that they are missing only if the topic has ever stored batches without them. Otherwise it has no
    meaning, as in Kafka, and is cleared.
    """
    if settings.record_attributes_elide is None:
        batch = assemble_batch(header._replace(attributes=header.attributes & ~ELIDED_BIT), records[HEADER_BYTES:])
    else:
        level = settings.get_compression_level(header.compression)
        batch = yield from restore_attributes_in_steps(records, header, level)
    return memoryview(batch), read_header(batch)


def _elide_attributes(
    records: memoryview, header: BatchHeader, settings: LogSettings
) -> Steps[tuple[memoryview, BatchHeader]]:
    """Return the batch as a topic with `record.attributes.elide` stores it."""
    level = settings.get_compression_level(header.compression)
    batch = yield from elide_attributes_in_steps(records, header, level)
    return (records, header) if batch is None else (memoryview(batch), read_header(batch))


def _check_only_batch(records: memoryview, header: BatchHeader) -> memoryview:
    """Return the first batch, if no other follows. As in Kafka, an incomplete one behind it is silently dropped."""
    rest = records[header.size_bytes :]
    try:
        check_batch(rest)
    except CorruptBatch:
        if len(rest) >= HEADER_BYTES and read_header(rest).size_bytes <= len(rest):
            raise
        return records[: header.size_bytes]
    message = "Produce requests with version 3 and above must contain exactly one record batch"
    raise KafkaError(ErrorCode.INVALID_RECORD, message)


def _make_too_large_error(size_bytes: int, settings: LogSettings) -> KafkaError:
    error = make_record_too_large_error if size_bytes > settings.max_message_bytes else make_record_list_too_large_error
    return error(size_bytes, settings)


def _set_log_append_time(records: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Set LogAppendTime in the batch and return its header. Raises `InvalidRecords` if the producer has set it."""
    if header.timestamp_type == LOG_APPEND_TIME:
        raise make_log_append_time_error(range(header.record_count))
    set_log_append_time(records, 0, now_ms)
    return read_header(records)


def _set_create_time(records: memoryview, header: BatchHeader, largest_timestamp: int) -> BatchHeader:
    """Set CreateTime and the largest timestamp in the batch, and return its header. Raises `InvalidRecords`."""
    if header.timestamp_type == LOG_APPEND_TIME and largest_timestamp < 0:
        raise make_log_append_time_error(range(header.record_count))
    set_timestamp_type_and_max(records, 0, CREATE_TIME, largest_timestamp)
    return read_header(records)


def _recompress_batch(
    records: memoryview, header: BatchHeader, settings: LogSettings, *, renumbers: bool = False
) -> Steps[tuple[memoryview, BatchHeader]]:
    """Return the batch in the topic's codec, and with `renumbers` with offset deltas from 0 on, as Kafka writes it."""
    codec = CODECS[settings.compression_type]
    batch = yield from recompress_batch_in_steps(
        records,
        header,
        codec,
        settings.get_compression_level(codec),
        renumbers=renumbers,
        max_bytes=min(settings.max_message_bytes, settings.segment_bytes),
        make_error=lambda size_bytes: _make_too_large_error(size_bytes, settings),
    )
    return memoryview(batch), read_header(batch)
