"""Validates produced records if their format, or that of the log (`message.format.version`), is 0 or 1.

The rules are those of Kafka's LogValidator. If both formats are 2, `validation.py` does all, and calls nothing here.

    produced        log     besides the checks
    0 or 1 plain    same    sets the offset of each message, and in format 1 its timestamp, in place
    1 wrapped       same    sets the wrapper's offset and timestamp in place, if the inner offsets begin at 0
    all others              writes the records anew, with offsets from the log's end on, in one batch or wrapper

Records for a log with another codec (`compression.type`) are also written anew, plain messages in one wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    check_batch_in_steps,
)
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.conversion import build_records_in_format_in_steps
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message import (
    NO_TIMESTAMP,
    Message,
    check_message,
    read_message,
    read_message_header,
    set_message_offset,
    set_message_timestamp,
)
from minibroker.protocol.records.message_set import iterate_headers_of_set, iterate_messages_in_steps
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.streaming import stream_records
from minibroker.protocol.records.validation import (
    NO_KEY_MESSAGE,
    STAMPED_MESSAGE,
    RecordErrors,
    RecordRules,
    check_records_in_steps,
    make_log_append_time_error,
)
from minibroker.protocol.steps import Steps, run_all_steps
from minibroker.storage.log import Log
from minibroker.storage.log_settings import CODECS, COMPACT, LogSettings

ValidatedBatches = tuple[memoryview, tuple[BatchHeader, ...]]

FIRST_VERSION_WITH_FORMAT_2: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
_MESSAGES_AT_ONCE: Final = 256
_ATTEMPTS: Final = 3
ZSTD: Final = int(Compression.ZSTD)  # a comparison with an enumeration's member takes three times as long


class ProducedRecords(NamedTuple):
    """Produced records: their format, codec and number, and an iterable over them that can be used repeatedly.

    `counts_from_0` says that the offsets in a wrapper count from 0; `largest_timestamp` is -1 if no record has one.
    `places` are the positions and headers of the messages of a set, in which a wrapper is one message.
    """

    magic: int
    codec: int
    record_count: int
    records: Iterable[Record | None]
    counts_from_0: bool
    largest_timestamp: int
    places: Sequence[tuple[int, BatchHeader]] = ()


def validate_and_convert_records(
    log: Log, records: memoryview, settings: LogSettings, *, api_version: int, now_ms: int
) -> Steps[ValidatedBatches]:
    """Check records, and convert them to the log's format; one of both is 0 or 1. Return bytes to append, and headers.

    The bytes have their offsets, and are `records` itself, changed in place, or new ones. Raises `KafkaError` as
    `validate_records_in_steps` does, and UNSUPPORTED_FOR_MESSAGE_FORMAT for records with a producer id if the log's
    format has no field for it.
    """
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] == MAGIC:
        source = yield from _check_batch(records, settings, api_version, now_ms)
    else:
        if api_version >= FIRST_VERSION_WITH_FORMAT_2:
            check_message(records)
            raise InvalidRecords(
                f"Produce requests with version {api_version} are only allowed to contain record batches with "
                f"magic version {MAGIC}"
            )
        source = yield from _check_messages(records, settings, now_ms)
    for _ in range(_ATTEMPTS):
        offset = log.next_offset
        validated = yield from _convert_to_batches(records, source, offset, settings, now_ms)
        if log.next_offset == offset:
            break
    else:  # there were other appends each time, so do it without a pause
        validated = run_all_steps(_convert_to_batches(records, source, log.next_offset, settings, now_ms))
    if len(validated[0]) > settings.segment_bytes:
        raise make_record_list_too_large_error(len(validated[0]), settings)
    return validated


def _convert_to_batches(
    records: memoryview, source: ProducedRecords, offset: int, settings: LogSettings, now_ms: int
) -> Steps[ValidatedBatches]:
    """Return the bytes and headers to append at `offset`."""
    codec = CODECS.get(settings.compression_type, source.codec)
    same = source.magic == settings.message_format_version and codec == source.codec
    if same and source.codec == 0:
        return (yield from _set_message_offsets_in_place(records, source, offset, settings, now_ms))
    if same and source.magic == 1 and source.counts_from_0:
        return _set_wrapper_offset_and_time(records, source, offset, settings, now_ms)
    return (yield from _convert_to_log_format(source, codec, offset, settings, now_ms))


# --- reading the produced records ---------------------------------------------------------------


def _check_batch(records: memoryview, settings: LogSettings, api_version: int, now_ms: int) -> Steps[ProducedRecords]:
    """Check a batch of format 2 for a log of format 0 or 1."""
    header = yield from check_batch_in_steps(records)
    if header.size_bytes != len(records):
        raise InvalidRecords("Produce requests must contain exactly one record batch")
    if header.base_offset:
        raise InvalidRecords(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    _check_batch_size(header, settings)
    if header.compression == ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise make_unsupported_zstd_error(api_version)
    kind = "Transactional" if header.is_transactional else "Idempotent"
    if header.is_transactional or header.producer_id >= 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{kind} records cannot be used with magic version {settings.message_format_version}",
        )
    if settings.message_timestamp_type == LOG_APPEND_TIME and header.timestamp_type == LOG_APPEND_TIME:
        raise make_log_append_time_error(range(header.record_count))
    largest = yield from check_records_in_steps(
        records, 0, header, make_record_rules(settings, now_ms, any_offsets=True)
    )
    return ProducedRecords(MAGIC, header.compression, header.record_count, _RepeatableRecords(records), False, largest)


class _RepeatableRecords:
    """The records of a batch. Each iteration begins again."""

    def __init__(self, batch: memoryview) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[Record | None]:
        return stream_records(self._batch)


def _check_messages(records: memoryview, settings: LogSettings, now_ms: int) -> Steps[ProducedRecords]:
    """Check each message of a set of format 0 or 1."""
    places = []
    for place in iterate_headers_of_set(records):
        places.append(place)
        if len(places) % _MESSAGES_AT_ONCE == 0:
            yield
    if not places:
        raise CorruptBatch("there is no whole message")
    magic, codec = places[0][1].magic, places[0][1].compression
    for index, (_, header) in enumerate(places, 1):
        if index % _MESSAGES_AT_ONCE == 0:
            yield
        if header.magic != magic:
            raise InvalidRecords(f"Batch magic {header.magic} is not the same as the first batch's magic byte {magic}")
        if (header.compression or codec) and len(places) > 1:
            raise InvalidRecords("Compressed outer record has more than one batch")
        _check_batch_size(header, settings)
    end, last = places[-1]
    kept = _CheckedMessages(records[: end + last.size_bytes], codec)
    checking = _MessageCheck(settings, now_ms, kept.timestamp_type)
    for message in kept.iterate_messages():
        if message is None:
            yield
        else:
            checking.check_message(message)
    checking.raise_if_any_message_is_invalid()
    return ProducedRecords(
        magic, codec, checking.count, kept, checking.counts_from_0, checking.largest_timestamp, places
    )


class _CheckedMessages:
    """The messages of a set that have passed `check_message`: those in its only wrapper, or the messages of the set."""

    def __init__(self, records: memoryview, codec: int) -> None:
        self._data = bytes(records)
        self._wrapper: Message | None = None
        self.timestamp_type = CREATE_TIME
        if codec:
            self._wrapper, _ = read_message(self._data, is_checked=True)
            self.timestamp_type = self._wrapper.timestamp_type

    def iterate_messages(self) -> Iterator[Message | None]:
        """Yield the messages, None where other work may run. Raises as `read_message` and `iterate_messages_in`."""
        if self._wrapper is not None:
            return iterate_messages_in_steps(self._wrapper)
        return self._iterate_plain_messages()

    def _iterate_plain_messages(self) -> Iterator[Message | None]:
        """Yield the messages that are not in a wrapper, and None after some hundred for a pause."""
        position = count = 0
        while position < len(self._data):
            message, position = read_message(self._data, position, is_checked=True)
            yield message
            count += 1
            if count % _MESSAGES_AT_ONCE == 0:
                yield None

    def __iter__(self) -> Iterator[Record | None]:
        for message in self.iterate_messages():
            if message is None:
                yield None
            else:
                yield Record(message.offset, message.timestamp, message.key, message.value)  # type: ignore[arg-type]


class _MessageCheck:
    """Checks single messages, and collects their number and largest timestamp."""

    def __init__(self, settings: LogSettings, now_ms: int, wrapper_timestamp_type: int) -> None:
        self.count = 0
        self.counts_from_0 = True
        self.largest_timestamp = NO_TIMESTAMP
        self._rules = make_record_rules(settings, now_ms)
        self._has_create_time = settings.message_timestamp_type == CREATE_TIME
        self._wrapper_timestamp_type = wrapper_timestamp_type
        self._errors = RecordErrors()
        self._stamped = RecordErrors()
        self._stamped.code = ErrorCode.INVALID_TIMESTAMP

    def check_message(self, message: Message) -> None:
        """Check the next message."""
        index = self.count
        self.count += 1
        timestamp = message.timestamp
        if message.offset != index:
            self.counts_from_0 = False
        if timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
        if self._rules.keys_required and message.key is None:
            self._errors.add_record_error(index, NO_KEY_MESSAGE)
        elif self._has_create_time and timestamp != NO_TIMESTAMP:
            self._errors.check_record(index, Record(message.offset, timestamp), self._rules, has_key=True)
        elif LOG_APPEND_TIME in (self._wrapper_timestamp_type, message.timestamp_type):
            self._stamped.add_record_error(index, STAMPED_MESSAGE)

    def raise_if_any_message_is_invalid(self) -> None:
        """Raise `InvalidRecords` if a message broke a rule."""
        for errors in (self._stamped, self._errors):
            if errors.count:
                raise errors.make_error()


def make_record_rules(settings: LogSettings, now_ms: int, *, any_offsets: bool = False) -> RecordRules:
    """Return the rules that the records must follow."""
    keys_required = COMPACT in settings.cleanup_policy
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        return RecordRules(keys_required, any_offsets=any_offsets)
    earliest_ms, latest_ms = settings.get_create_time_range(now_ms)
    return RecordRules(keys_required, earliest_ms, latest_ms, any_offsets)


def _check_batch_size(header: BatchHeader, settings: LogSettings) -> None:
    if header.size_bytes > settings.max_message_bytes:
        raise make_record_too_large_error(header.size_bytes, settings)


def make_record_too_large_error(size_bytes: int, settings: LogSettings) -> KafkaError:
    """Return the error for a batch or message above `max.message.bytes`."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size_bytes} bytes which exceeds the maximum configured value of "
        f"{settings.max_message_bytes}",
    )


def make_record_list_too_large_error(size_bytes: int, settings: LogSettings) -> KafkaError:
    """Return the error for records that do not fit into a segment."""
    return KafkaError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"The record batch size is {size_bytes} bytes which exceeds the segment size of {settings.segment_bytes}",
    )


def make_unsupported_zstd_error(api_version: int) -> KafkaError:
    """Return the error for zstd in a request whose version is older than zstd."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce requests with version {api_version} are not allowed to use ZStandard compression",
    )


# --- making the bytes to append -----------------------------------------------------------------


def _set_message_offsets_in_place(
    records: memoryview, source: ProducedRecords, offset: int, settings: LogSettings, now_ms: int
) -> Steps[ValidatedBatches]:
    """Set offsets and times of plain messages in place."""
    headers = []
    stamped = settings.message_timestamp_type == LOG_APPEND_TIME
    for position, header in source.places:
        set_message_offset(records, position, offset)
        if header.magic and (stamped or header.timestamp_type == LOG_APPEND_TIME):
            time = (LOG_APPEND_TIME, now_ms) if stamped else (CREATE_TIME, header.max_timestamp)
            set_message_timestamp(records, position, *time)
            headers.append(read_message_header(records, position))
        else:
            headers.append(tuple.__new__(BatchHeader, (offset, *header[1:])))
        offset += 1
        if len(headers) % _MESSAGES_AT_ONCE == 0:
            yield
    position, header = source.places[-1]
    return records[: position + header.size_bytes], tuple(headers)


def _set_wrapper_offset_and_time(
    records: memoryview, source: ProducedRecords, offset: int, settings: LogSettings, now_ms: int
) -> ValidatedBatches:
    """Set offset and time of a wrapper of format 1 in place. Its compressed content stays as it is."""
    set_message_offset(records, 0, offset + source.record_count - 1)
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        set_message_timestamp(records, 0, LOG_APPEND_TIME, now_ms)
    else:
        set_message_timestamp(records, 0, CREATE_TIME, source.largest_timestamp)
    header = read_message_header(records)
    return records[: header.size_bytes], (_set_wrapper_offsets(header, source.record_count),)


def _set_wrapper_offsets(header: BatchHeader, count: int) -> BatchHeader:
    """Return the header of a wrapper with the offsets and the number of its messages."""
    first_offset = header.base_offset - count + 1
    return header._replace(base_offset=first_offset, last_offset_delta=count - 1, record_count=count)


def _convert_to_log_format(
    source: ProducedRecords, codec: int, offset: int, settings: LogSettings, now_ms: int
) -> Steps[ValidatedBatches]:
    """Write the records anew in the log's format and codec."""
    stamp_ms = now_ms if settings.message_timestamp_type == LOG_APPEND_TIME else None
    data = yield from build_records_in_format_in_steps(
        _set_record_offsets(source.records, offset, stamp_ms),
        settings.message_format_version,
        compression=codec,
        level=settings.get_compression_level(codec) if settings.compression_type != "producer" else None,
        timestamp_type=settings.message_timestamp_type,
    )
    headers = []
    for _, header in iterate_batches_in_any_format(data):
        _check_batch_size(header, settings)
        headers.append(header)
        if len(headers) % _MESSAGES_AT_ONCE == 0:
            yield
    if codec and settings.message_format_version < MAGIC:
        headers = [_set_wrapper_offsets(headers[0], source.record_count)]
    return memoryview(data), tuple(headers)


def _set_record_offsets(records: Iterable[Record | None], offset: int, stamp_ms: int | None) -> Iterator[Record | None]:
    """Yield the records with offsets from `offset` on, and timestamp `stamp_ms` unless it is None. None is a pause."""
    for record in records:
        if record is None:
            yield None
            continue
        timestamp = record.timestamp if stamp_ms is None else stamp_ms
        yield Record(offset, timestamp, record.key, record.value, record.headers)
        offset += 1
