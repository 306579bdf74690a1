"""What becomes of produced records where their format, or that of the log (`message.format.version`), is 0 or 1.

The rules are those of Kafka's LogValidator. Where both formats are 2, nothing of this is asked: see `admission.py`. The
formats themselves are the protocol's business.

    came            log     what is done, but for checks
    0 or 1 plain    same    the offset of each message is set, and in format 1 its timestamp: in place
    1 wrapped       same    the wrapper's offset and timestamp are set, if the inner offsets count from 0: in place
    all others              the records are written anew, with offsets from the log's end on, in one batch or wrapper

A log of another codec (`compression.type`) has them written anew as well, plain messages together in one wrapper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    check_batch,
)
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.conversion import build
from minibroker.protocol.records.formats import batches_in
from minibroker.protocol.records.message import (
    NO_TIMESTAMP,
    Message,
    check_message,
    message_header,
    read_message,
    set_message_offset,
    set_message_time,
)
from minibroker.protocol.records.message_set import headers_of_set, inner_messages, messages_in
from minibroker.protocol.records.record import Record, records_of
from minibroker.protocol.records.validation import (
    NO_KEY_MESSAGE,
    check_records,
    stamped_by_producer,
    summary,
    timestamp_message,
)
from minibroker.protocol.records.varints import INT64_MAX, INT64_MIN
from minibroker.storage.log import Log
from minibroker.storage.log_settings import CODECS, LogSettings

Admitted = tuple[memoryview, tuple[BatchHeader, ...]]

FIRST_VERSION_WITH_FORMAT_2 = 3
FIRST_VERSION_WITH_ZSTD = 7
ZSTD = int(Compression.ZSTD)  # comparing with a member of an enumeration takes three times as long


class Source(NamedTuple):
    """Records as they came: the format and codec of all of them, how many there are, and they themselves, repeatedly.

    `counts_from_0` says that the offsets in a wrapper do; `largest_timestamp` is -1 if no record has one. `places`
    are the positions and headers of the messages of a set, wrappers as one.
    """

    magic: int
    codec: int
    record_count: int
    records: Iterable[Record]
    counts_from_0: bool
    largest_timestamp: int
    places: Sequence[tuple[int, BatchHeader]] = ()


def admit_formats(log: Log, records: memoryview, *, api_version: int, now_ms: int) -> Admitted:
    """What to append, with its offsets, and the headers of that: `records` itself, changed in place, or new bytes.

    Raises `KafkaError` as `admit` does, and UNSUPPORTED_FOR_MESSAGE_FORMAT for the records of a producer with an id
    where the log's format has no place for it.
    """
    settings = log.settings
    if len(records) > 16 and records[16] == MAGIC:
        source = _batch(records, settings, api_version, now_ms)
    else:
        if api_version >= FIRST_VERSION_WITH_FORMAT_2:
            check_message(records)
            raise InvalidRecords(
                f"Produce requests with version {api_version} are only allowed to contain record batches with "
                f"magic version {MAGIC}"
            )
        source = _messages(records, settings, now_ms)
    codec = CODECS.get(settings.compression_type, source.codec)
    same = source.magic == settings.message_format_version and codec == source.codec
    if same and source.codec == 0:
        admitted = _numbered(records, source, log.log_end_offset, settings, now_ms)
    elif same and source.magic == 1 and source.counts_from_0:
        admitted = _moved(records, source, log.log_end_offset, settings, now_ms)
    else:
        admitted = _rewritten(source, codec, log.log_end_offset, settings, now_ms)
    if len(admitted[0]) > settings.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch size is {len(admitted[0])} bytes which exceeds the segment size of "
            f"{settings.segment_bytes}",
        )
    return admitted


# --- what came ----------------------------------------------------------------------------------


def _batch(records: memoryview, settings: LogSettings, api_version: int, now_ms: int) -> Source:
    """A batch of format 2 for a log of format 0 or 1."""
    header = check_batch(records)
    if header.size_bytes != len(records):
        raise InvalidRecords("Produce requests must contain exactly one record batch")
    if header.base_offset:
        raise InvalidRecords(f"The baseOffset of the record batch should be 0, but it is {header.base_offset}")
    _check_size(header, settings)
    if header.compression == ZSTD and api_version < FIRST_VERSION_WITH_ZSTD:
        raise zstd_too_early(api_version)
    kind = "Transactional" if header.is_transactional else "Idempotent"
    if header.is_transactional or header.producer_id >= 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{kind} records cannot be used with magic version {settings.message_format_version}",
        )
    keys_required, (earliest_ms, latest_ms) = _rules(settings, now_ms)
    if settings.message_timestamp_type == LOG_APPEND_TIME and header.timestamp_type == LOG_APPEND_TIME:
        raise stamped_by_producer(range(header.record_count))
    rules = {"earliest_ms": earliest_ms, "latest_ms": latest_ms}
    largest = check_records(records, 0, header, keys_required=keys_required, any_offsets=True, **rules)
    return Source(MAGIC, header.compression, header.record_count, _Replayed(records), False, largest)


class _Replayed:
    """The records of a batch, as often as they are asked for."""

    def __init__(self, batch: memoryview) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[Record]:
        return records_of(self._batch)


def _messages(records: memoryview, settings: LogSettings, now_ms: int) -> Source:
    """A set of messages of format 0 or 1, once each of them has been looked at."""
    places = list(headers_of_set(records))
    if not places:
        raise CorruptBatch("there is no whole message")
    magic, codec = places[0][1].magic, places[0][1].compression
    for _, header in places:
        if header.magic != magic:
            raise InvalidRecords(f"Batch magic {header.magic} is not the same as the first batch's magic byte {magic}")
        if (header.compression or codec) and len(places) > 1:
            raise InvalidRecords("Compressed outer record has more than one batch")
        _check_size(header, settings)
    end, last = places[-1]
    kept = _Messages(records[: end + last.size_bytes], codec)
    checking = _Checking(settings, now_ms, kept.timestamp_type)
    for index, message in enumerate(kept.messages()):
        checking.take(index, message)
    checking.finish()
    return Source(magic, codec, checking.count, kept, checking.counts_from_0, checking.largest_timestamp, places)


class _Messages:
    """The messages of a set, which have passed `check_message`: those in its one wrapper, or all of it."""

    def __init__(self, records: memoryview, codec: int) -> None:
        self._data = bytes(records)
        self._wrapper: Message | None = None
        self.timestamp_type = CREATE_TIME
        if codec:
            self._wrapper, _ = read_message(self._data, is_checked=True)
            self._data = inner_messages(self._wrapper)
            self.timestamp_type = self._wrapper.timestamp_type

    def messages(self) -> Iterator[Message]:
        """One after the other. Raises what `read_message` and `messages_in` raise."""
        if self._wrapper is not None:
            return messages_in(self._wrapper, self._data)
        return self._plain_messages()

    def _plain_messages(self) -> Iterator[Message]:
        position = 0
        while position < len(self._data):
            message, position = read_message(self._data, position, is_checked=True)
            yield message

    def __iter__(self) -> Iterator[Record]:
        for message in self.messages():
            yield Record(message.offset, message.timestamp, message.key, message.value)  # type: ignore[arg-type]


class _Checking:
    """The rules for single messages, and what is learnt of them on the way."""

    def __init__(self, settings: LogSettings, now_ms: int, wrapper_timestamp_type: int) -> None:
        self.count = 0
        self.counts_from_0 = True
        self.largest_timestamp = NO_TIMESTAMP
        self._keys_required, (self._earliest_ms, self._latest_ms) = _rules(settings, now_ms)
        self._has_create_time = settings.message_timestamp_type == CREATE_TIME
        self._wrapper_timestamp_type = wrapper_timestamp_type
        self._errors: list[tuple[int, str]] = []
        self._stamped: list[int] = []
        self._code = ErrorCode.INVALID_RECORD

    def take(self, index: int, message: Message) -> None:
        """Look at the next message."""
        self.count += 1
        timestamp = message.timestamp
        if message.offset != index:
            self.counts_from_0 = False
        if timestamp > self.largest_timestamp:
            self.largest_timestamp = timestamp
        if self._keys_required and message.key is None:
            self._errors.append((index, NO_KEY_MESSAGE))
        elif self._has_create_time and timestamp != NO_TIMESTAMP:
            if not self._earliest_ms <= timestamp <= self._latest_ms:
                record = Record(message.offset, timestamp)
                self._errors.append((index, timestamp_message(record, self._earliest_ms, self._latest_ms)))
                self._code = ErrorCode.INVALID_TIMESTAMP
        elif LOG_APPEND_TIME in (self._wrapper_timestamp_type, message.timestamp_type):
            self._stamped.append(index)

    def finish(self) -> None:
        """Raise `InvalidRecords` if a message broke a rule."""
        if self._stamped:
            raise stamped_by_producer(self._stamped)
        if self._errors:
            raise InvalidRecords(summary(self._errors, self._code), tuple(self._errors), self._code)


def _rules(settings: LogSettings, now_ms: int) -> tuple[bool, tuple[int, int]]:
    """Whether keys are required, and between which times create times must lie."""
    keys_required = "compact" in settings.cleanup_policy
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        return keys_required, (INT64_MIN, INT64_MAX)
    return keys_required, settings.create_times(now_ms)


def _check_size(header: BatchHeader, settings: LogSettings) -> None:
    if header.size_bytes > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size is {header.size_bytes} bytes which exceeds the maximum configured value of "
            f"{settings.max_message_bytes}",
        )


def zstd_too_early(api_version: int) -> KafkaError:
    """What is said of zstd in a request that is older than it."""
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce requests with version {api_version} are not allowed to use ZStandard compression",
    )


# --- what is appended ---------------------------------------------------------------------------


def _numbered(records: memoryview, source: Source, offset: int, settings: LogSettings, now_ms: int) -> Admitted:
    """Plain messages, changed in place."""
    headers = []
    stamped = settings.message_timestamp_type == LOG_APPEND_TIME
    for position, header in source.places:
        set_message_offset(records, position, offset)
        if header.magic and (stamped or header.timestamp_type == LOG_APPEND_TIME):
            time = (LOG_APPEND_TIME, now_ms) if stamped else (CREATE_TIME, header.max_timestamp)
            set_message_time(records, position, *time)
            headers.append(message_header(records, position))
        else:
            headers.append(tuple.__new__(BatchHeader, (offset, *header[1:])))
        offset += 1
    position, header = source.places[-1]
    return records[: position + header.size_bytes], tuple(headers)


def _moved(records: memoryview, source: Source, offset: int, settings: LogSettings, now_ms: int) -> Admitted:
    """A wrapper of format 1, changed in place, so that what is compressed in it stays as it is."""
    set_message_offset(records, 0, offset + source.record_count - 1)
    if settings.message_timestamp_type == LOG_APPEND_TIME:
        set_message_time(records, 0, LOG_APPEND_TIME, now_ms)
    else:
        set_message_time(records, 0, CREATE_TIME, source.largest_timestamp)
    header = message_header(records)
    return records[: header.size_bytes], (_counted(header, source.record_count),)


def _counted(header: BatchHeader, count: int) -> BatchHeader:
    """The header of a wrapper that has its offset, with what is known of the messages in it."""
    first_offset = header.base_offset - count + 1
    return header._replace(base_offset=first_offset, last_offset_delta=count - 1, record_count=count)


def _rewritten(source: Source, codec: int, offset: int, settings: LogSettings, now_ms: int) -> Admitted:
    """The records in the log's format and codec."""
    stamp_ms = now_ms if settings.message_timestamp_type == LOG_APPEND_TIME else None
    data = build(
        _renumbered(source.records, offset, stamp_ms),
        settings.message_format_version,
        compression=codec,
        level=settings.compression_level(codec) if settings.compression_type != "producer" else None,
        timestamp_type=settings.message_timestamp_type,
    )
    headers = [header for _, header in batches_in(data)]
    for header in headers:
        _check_size(header, settings)
    if codec and settings.message_format_version < MAGIC:
        headers = [_counted(headers[0], source.record_count)]
    return memoryview(data), tuple(headers)


def _renumbered(records: Iterable[Record], offset: int, stamp_ms: int | None) -> Iterator[Record]:
    for index, record in enumerate(records):
        timestamp = record.timestamp if stamp_ms is None else stamp_ms
        yield Record(offset + index, timestamp, record.key, record.value, record.headers)
