"""The records of a batch for people, with their positions. A damaged batch is read as far as possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import ELIDED_BIT, HEADER_BYTES, MAGIC
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES
from minibroker.protocol.records.message import read_message
from minibroker.protocol.records.message_set import (
    decompress_inner_messages,
    iterate_headers_of_set,
    iterate_records_of_message,
)
from minibroker.protocol.records.payload import get_uncompressed_payload
from minibroker.protocol.records.record import Record, parse_records
from minibroker.protocol.records.varints import Bytes, read_varint
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.files import File
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote


class FoundRecord(NamedTuple):
    """A record and its position: in the file or, if `is_decompressed`, in the decompressed records of its batch."""

    position: int
    size_bytes: int
    is_decompressed: bool
    record: Record


def iterate_inspected_records(
    file: File, batch: FoundBatch, max_bytes: int = MAX_UNCOMPRESSED_BYTES
) -> Iterator[FoundRecord | InspectionNote | DamagedBytes]:
    """Yield the records of a batch up to damage; a note alone if they exceed `max_bytes` decompressed.

    Raises `OSError`.
    """
    header = batch.header
    if header.record_count == 0:
        return
    if header.size_bytes > max_bytes:
        text = f"the records of a batch of {header.size_bytes} bytes are not shown: {max_bytes} is the most"
        yield InspectionNote(file.path, batch.position, header.base_offset, text)
        return
    if header.magic < MAGIC:
        yield from _iterate_records_of_wrapper(file, batch, max_bytes)
        return
    try:
        payload = get_uncompressed_payload(file.read(batch.position, header.size_bytes), 0, header, max_bytes)
    except KafkaError as error:
        yield _make_finding_of_unread_records(
            file, batch, batch.position + HEADER_BYTES, "records that can be decompressed", error, max_bytes
        )
        return
    start = 0 if header.compression or header.attributes & ELIDED_BIT else batch.position + HEADER_BYTES
    yield from _parse_records(file, batch, payload, start)


def _iterate_records_of_wrapper(
    file: File, batch: FoundBatch, max_bytes: int
) -> Iterator[FoundRecord | InspectionNote | DamagedBytes]:
    """Yield the record of a message of format 0 or 1, or those in a wrapper."""
    try:
        data = file.read(batch.position, batch.header.size_bytes)
        wrapper, _ = read_message(data)
        records = iterate_records_of_message(data, limit_bytes=max_bytes)
        if not wrapper.compression:
            yield FoundRecord(batch.position, len(data), False, next(records))
            return
        places = iterate_headers_of_set(decompress_inner_messages(wrapper, max_bytes))
        for (position, inner), record in zip(places, records, strict=True):
            yield FoundRecord(position, inner.size_bytes, True, record)
    except KafkaError as error:
        yield _make_finding_of_unread_records(
            file, batch, batch.position, "messages that can be read", error, max_bytes
        )


def _parse_records(file: File, batch: FoundBatch, payload: Bytes, start: int) -> Iterator[FoundRecord | DamagedBytes]:
    """Yield the records of a payload up to the first malformed one, and the damage."""
    header, position, last_offset = batch.header, 0, batch.header.base_offset - 1
    records = parse_records(payload, header)
    for index in range(header.record_count):
        try:
            record = next(records)
        except KafkaError as error:
            yield _make_record_damage(
                file, batch, start + position, f"record {index + 1} of {header.record_count}", error
            )
            return
        length, after = read_varint(payload, position)
        size_bytes = after + length - position
        yield FoundRecord(start + position, size_bytes, start == 0, record)
        if not last_offset < record.offset <= header.last_offset:
            expected = f"an offset from {last_offset + 1} to {header.last_offset}"
            yield DamagedBytes(file.path, start + position, 0, record.offset, expected, f"{record.offset}")
        last_offset = record.offset
        position += size_bytes
    if position < len(payload):
        what = f"{len(payload) - position} bytes more"
        expected = f"the end of the batch after {header.record_count} records"
        yield DamagedBytes(file.path, start + position, 0, header.last_offset, expected, what)


def _make_finding_of_unread_records(
    file: File, batch: FoundBatch, position: int, expected: str, error: KafkaError, max_bytes: int
) -> InspectionNote | DamagedBytes:
    """Return a note about records that are too large to be shown, damage for others that cannot be read."""
    if error.code != ErrorCode.MESSAGE_TOO_LARGE:
        return _make_record_damage(file, batch, position, expected, error)
    text = f"the records of this batch are not shown: they decompress to more than {max_bytes} bytes"
    return InspectionNote(file.path, batch.position, batch.header.base_offset, text)


def _make_record_damage(file: File, batch: FoundBatch, position: int, expected: str, error: KafkaError) -> DamagedBytes:
    return DamagedBytes(file.path, position, 0, batch.header.base_offset, expected, error.message or error.code.name)
