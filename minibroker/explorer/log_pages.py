"""The records of a log for the page, as much of them as there is time and room for: a few KB may stand for 100 MB.

The loop reads the log's bytes, since it owns the log; a thread decompresses them, finds records, and says where it
stopped.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import CorruptBatch, ErrorCode, KafkaError
from minibroker.protocol.legible import make_legible
from minibroker.protocol.records.batch import LOG_APPEND_TIME, BatchHeader
from minibroker.protocol.records.formats import (
    is_old_format,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.payload import iterate_payload_chunks
from minibroker.protocol.records.record import MalformedRecord, Record, read_record
from minibroker.protocol.records.varints import (
    MAX_VARLONG_BYTES,
    Bytes,
    MalformedVarint,
    read_varint,
    read_varlong,
    wrap_to_64_bits,
)
from minibroker.testing.seen.log_reading import Record as SeenRecord
from minibroker.testing.seen.log_reading import make_record

BATCH_BYTES: Final = 16 << 20  # of a batch that are decompressed
MOST: Final = f"{BATCH_BYTES >> 20} MiB"
READ_BYTES: Final = 1 << 20
SEARCH_SECONDS: Final = 3.0
MOST_STOPS: Final = 20  # that an answer names

MatchesRecord = Callable[[Record], bool]


class TruncatedBytes(bytes):
    """The first bytes of a key or a value that has `size` bytes."""

    size: int = 0


class FoundRecords(NamedTuple):
    """Records that were found, where to go on, and in sentences what of the log was left out."""

    records: list[SeenRecord]
    following: int
    stopped: list[str]


class RecordQuery(NamedTuple):
    """Which records are wanted: so many that match from an offset on, with so many bytes of each key and value."""

    first: int
    most: int
    matches: MatchesRecord = lambda record: True
    most_bytes: int = BATCH_BYTES


class _FoundInBytes(NamedTuple):
    """What was found in some bytes of a log."""

    records: list[tuple[BatchHeader, Record]]
    following: int
    stopped: list[str]


async def find_records(partition: Partition, query: RecordQuery) -> FoundRecords:
    """Return records, and the offset behind the last one looked at. This ends after `SEARCH_SECONDS`."""
    following = max(query.first, partition.log.log_start_offset)
    records: list[SeenRecord] = []
    stopped: list[str] = []
    ends = time.monotonic() + SEARCH_SECONDS
    while len(records) < query.most and time.monotonic() < ends:
        if (region := partition.log.read(following, READ_BYTES)) is None:
            following = max(following, partition.log.log_end_offset)
            break
        data, left = region.read(), query._replace(first=following, most=query.most - len(records))
        part = await asyncio.to_thread(_find_records_in_bytes, data, left, ends)
        records += [make_record(partition, header, record) for header, record in part.records]
        stopped += part.stopped[: MOST_STOPS - len(stopped)]
        following = max(part.following, following + 1)
    return FoundRecords(records, following, stopped)


async def find_record_at(partition: Partition, offset: int, batch: bytes) -> FoundRecords:
    """Return the record with an offset, of the batch that has it, or none."""
    part = await asyncio.to_thread(_find_records_in_bytes, batch, RecordQuery(offset, 1), math.inf)
    found = [each for each in part.records if each[1].offset == offset]
    return FoundRecords([make_record(partition, *each) for each in found], part.following, part.stopped)


def _find_records_in_bytes(data: bytes, query: RecordQuery, deadline_s: float) -> _FoundInBytes:
    """Return matching records, until there are enough of them or the deadline is over, and the next offset."""
    found = _FoundInBytes([], query.first, [])
    for position, header in iterate_batches_in_any_format(data):
        for record in (
            () if header.is_control else _iterate_records_of_incomplete_batch(data, position, header, found.stopped)
        ):
            if record.offset >= query.first:
                found = found._replace(following=record.offset + 1)
                if query.matches(record):
                    found.records.append((header, _shorten_record(record, query.most_bytes)))
            if len(found.records) == query.most or time.monotonic() > deadline_s:
                return found
        found = found._replace(following=max(query.first, header.last_offset + 1))
    return found


def _shorten_record(record: Record, max_bytes: int) -> Record:
    """Return a record with the beginnings of its key, its value and its headers."""
    headers = tuple((name, _shorten_bytes(value, max_bytes)) for name, value in record.headers)
    key, value = _shorten_bytes(record.key, max_bytes), _shorten_bytes(record.value, max_bytes)
    return record._replace(key=key, value=value, headers=headers)


def _shorten_bytes(data: bytes | None, max_bytes: int, size: int = 0) -> bytes | None:
    """Return bytes, or their beginning as `TruncatedBytes` that know the full size, by default that of `data`."""
    if data is None or (len(data) <= max_bytes and not size):
        return data
    found = TruncatedBytes(data[:max_bytes])
    found.size = size or get_full_size(data)
    return found


def get_full_size(data: bytes) -> int:
    """Return the size of a key or a value, of which only the beginning may be here."""
    return data.size if isinstance(data, TruncatedBytes) else len(data)


def _iterate_records_of_incomplete_batch(
    data: bytes, position: int, header: BatchHeader, reasons_to_stop: list[str]
) -> Iterator[Record]:
    """Yield the records of a batch, of a large one only the first; add to `reasons_to_stop` why others are missing."""
    try:
        if is_old_format(data, position):
            yield from iterate_records_in_any_format(data, position, limit_bytes=BATCH_BYTES)
            return
        payload, is_whole = _read_payload(data, position, header)
        if not is_whole:
            reasons_to_stop.append(
                f"offset {header.base_offset}: of the batch only the first {BATCH_BYTES >> 20} MiB are shown"
            )
        yield from _iterate_records(payload, header, is_whole=is_whole)
    except (KafkaError, MalformedRecord, MalformedVarint) as error:
        reasons_to_stop.append(
            f"offset {header.base_offset}: the batch cannot be read to its end: {make_legible(str(error))}"
        )


def _read_payload(data: bytes, position: int, header: BatchHeader) -> tuple[bytes, bool]:
    """Return the decompressed records of a batch, or the first `BATCH_BYTES` or so of them, and whether that is all."""
    pieces: list[Bytes] = []
    try:
        pieces.extend(iterate_payload_chunks(data, position, header, BATCH_BYTES))
    except KafkaError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        return b"".join(pieces), False
    return b"".join(pieces), True


def _iterate_records(payload: bytes, header: BatchHeader, *, is_whole: bool) -> Iterator[Record]:
    """Yield the records of a payload; unless `is_whole`, also the beginning of the last one, which is cut off."""
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    position = 0
    for _ in range(header.record_count):
        try:
            record, position = read_record(payload, position, header, append_time)
        except (MalformedRecord, MalformedVarint):
            if is_whole:
                raise
            beginning = _read_incomplete_record(payload, position, header, append_time)
            if beginning is not None:
                yield beginning
            return
        yield record


def _read_incomplete_record(
    payload: bytes, position: int, header: BatchHeader, append_time: int | None
) -> Record | None:
    """Return the beginning of a record that goes on behind the payload, None if too little of it is there."""
    try:
        _, position = read_varint(payload, position)
        timestamp_delta, position = read_varlong(payload, position + 1)
        offset_delta, position = read_varint(payload, position)
        key, position = _read_incomplete_bytes(payload, position)
        value, _ = _read_incomplete_bytes(payload, position)
    except (MalformedVarint, IndexError):
        return None
    timestamp = wrap_to_64_bits(header.base_timestamp + timestamp_delta) if append_time is None else append_time
    return Record(header.base_offset + offset_delta, timestamp, key, value)


def _read_incomplete_bytes(payload: bytes, position: int) -> tuple[bytes | None, int]:
    """Return a key or value, or as much of it as is there, and the position behind it."""
    size, position = read_varint(payload, position)
    if size < 0:
        return None, position
    return _shorten_bytes(payload[position : position + size], size, size), position + size


async def read_key_or_value(partition: Partition, offset: int, *, is_key: bool) -> list[Bytes] | None:
    """Return a whole key or value in pieces, None if it is null or there is no such record. Raises KafkaError."""
    region = partition.log.read(offset, 1)
    data = b"" if region is None else region.read()
    return await asyncio.to_thread(_find_key_or_value, data, offset, is_key=is_key)


def _find_key_or_value(data: bytes, offset: int, *, is_key: bool) -> list[Bytes] | None:
    """Return the key or value of a record in pieces, None if it is null or there is no such record."""
    for position, header in iterate_batches_in_any_format(data):
        if not header.base_offset <= offset <= header.last_offset or header.is_control:
            continue
        if is_old_format(data, position):
            found = next(
                (each for each in iterate_records_in_any_format(data, position) if each.offset == offset), None
            )
            whole = None if found is None else found.key if is_key else found.value
            return None if whole is None else [whole]
        stream = _DecompressedStream(iterate_payload_chunks(data, position, header))
        return stream.read_key_or_value(header.record_count, offset - header.base_offset, is_key=is_key)
    return None


class _DecompressedStream:
    """Decompressed records, which are not joined: memory for 100 MB at once holds all threads for 60 ms."""

    def __init__(self, chunks: Iterator[Bytes]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self._taken = 0  # of all bytes

    def read_key_or_value(self, count: int, delta: int, *, is_key: bool) -> list[Bytes] | None:
        """Return the key or value of the record with this offset delta, of `count` records. Raises KafkaError."""
        try:
            for _ in range(count):
                size = self._read_number()
                end = self._taken + size
                self._take_bytes(1)
                self._read_number()
                is_wanted = self._read_number() == delta
                for each in (True, False) if is_wanted else ():
                    size = self._read_number()
                    if each is is_key:
                        return None if size < 0 else self._take_bytes(size)
                    self._take_bytes(max(size, 0))
                self._take_bytes(end - self._taken)
        except (StopIteration, MalformedVarint, ValueError) as error:
            raise CorruptBatch(f"a record is malformed: {error}") from None
        return None

    def _take_bytes(self, size: int) -> list[Bytes]:
        """Take the next bytes. Raises StopIteration if there are too few, and ValueError for less than none."""
        if size < 0:
            raise ValueError("a negative length")
        pieces: list[Bytes] = []
        while size:
            while not self._chunk:
                self._chunk = memoryview(next(self._chunks))
            piece, self._chunk = self._chunk[:size], self._chunk[size:]
            pieces.append(piece)
            size -= len(piece)
            self._taken += len(piece)
        return pieces

    def _read_number(self) -> int:
        """Take a varint, and return its value."""
        number = bytearray()
        while not number or number[-1] & 0x80:
            number += self._take_bytes(1)[0]
            if len(number) > MAX_VARLONG_BYTES:
                raise ValueError("a number is too long")
        return read_varlong(bytes(number), 0)[0]
