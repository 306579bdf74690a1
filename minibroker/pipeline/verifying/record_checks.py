"""Compares records with the headers of their batches.

All batches of format 2 in a block are read at once, with numpy: the decoder finds the records and their fields
(`decode/record_columns.py`). A batch with an error is read again, record by record, to
describe the error. So are messages of formats 0 and 1. A wrapper has the offset of its last message; those of its
messages are absolute in format 0, and relative to the first one in format 1 (KIP-31).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s
from minibroker.pipeline.decode.batch_headers import MAX_BATCH_BYTES, BatchHeaders
from minibroker.pipeline.decode.record_columns import find_record_starts, read_record_fields
from minibroker.pipeline.verifying.findings import Problem
from minibroker.pipeline.verifying.log_blocks import LogBlock, RowFault, iterate_first_fault_of_rows
from minibroker.protocol.errors import CorruptBatch, ErrorCode, InvalidRecords, KafkaError
from minibroker.protocol.records.batch import (
    ELIDED_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
)
from minibroker.protocol.records.compression import decompress
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message import Message, check_message, read_message
from minibroker.protocol.records.message_set import decompress_inner_messages
from minibroker.protocol.records.record import MalformedRecord, Record, read_record
from minibroker.protocol.records.restarting import restore_attributes_of_payload
from minibroker.protocol.records.varints import Bytes, MalformedVarint

CHUNK_BYTES = 8 << 20  # of decompressed records of many batches
_PADDING = bytes(2)  # the decoder may read behind the last record


class UnreadableRecords(ValueError):
    """Records that cannot be read. `kind` is the finding's, the message its detail."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


def find_first_record_error(payload: Bytes, header: BatchHeader, *, compacted: bool) -> tuple[str, str] | None:
    """Return (kind, detail) of the first error, or None."""
    try:
        records = list(read_records(payload, header))
    except UnreadableRecords as error:
        return error.kind, str(error)
    before, last_delta = -1, header.last_offset_delta
    for place, record in enumerate(records):
        expected = f"between {before + 1} and {last_delta}" if compacted else str(place)
        delta = record.offset - header.base_offset
        if not before < delta <= last_delta or not compacted and delta != place:
            return "record-offset", f"record {place} has offset delta {delta}, expected {expected}"
        before = delta
    if not compacted and len(records) != last_delta + 1:
        return "record-count", f"{len(records)} records, the last offset delta is {last_delta}"
    largest = max((record.timestamp for record in records), default=header.max_timestamp)
    if header.timestamp_type == LOG_APPEND_TIME or header.max_timestamp == largest:
        return None
    return "max-timestamp", f"{header.max_timestamp} in the header, {largest} in the records"


def read_records(payload: Bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a payload with their own timestamps.

    Raises `UnreadableRecords` at the first malformed record, and for a wrong count.
    """
    if header.attributes & ELIDED_BIT:
        try:
            payload = restore_attributes_of_payload(bytes(payload), header.record_count)
        except KafkaError as error:
            raise UnreadableRecords("record", str(error)) from error
    position = 0
    for place in range(header.record_count):
        if position == len(payload):
            detail = f"{header.record_count} records in the header, {place} in the batch"
            raise UnreadableRecords("record-count", detail)
        try:
            record, position = read_record(payload, position, header, None)
        except (MalformedVarint, MalformedRecord) as error:
            raise UnreadableRecords("record", f"record {place}: {error}") from error
        yield record
    if position != len(payload):
        left = len(payload) - position
        raise UnreadableRecords("record-count", f"{left} bytes are left behind the {header.record_count} records")


Payloads = dict[int, Bytes]  # the decompressed records of batches, by their index in the block


@dataclass(frozen=True, slots=True)
class RecordsOfBlock:
    """The records of some batches as columns. `batch` is the index of a record's batch in the block.

    `key_start` and `key_size` are where the key is in `data`; a size of -1 is null.
    """

    data: bytes
    batch: Int64s
    offset: Int64s
    key_start: Int64s
    key_size: Int64s
    has_value: Bools


class CheckedBlock(NamedTuple):
    """The result for a block: problems, and the records of the batches without one."""

    problems: list[Problem]
    records: list[RecordsOfBlock]


def check_records(block: LogBlock, *, compacted: bool) -> CheckedBlock:
    """Return problems and records of all sound batches of format 2 in the block. Control records are not decoded."""
    problems: list[Problem] = []
    found: list[RecordsOfBlock] = []
    for payloads in _iterate_payload_chunks(block, problems, compacted=compacted):
        records, wrong = _read_records(block, payloads, compacted=compacted)
        found.append(records)
        for row, payload in payloads.items():
            if row in wrong:
                wrong_here = find_first_record_error(payload, block.headers.make_header(row), compacted=compacted)
                problems += [block.make_problem(wrong_here[0], row, wrong_here[1])] if wrong_here else []
    return CheckedBlock(problems, found)


def get_decompressed_payload(block: LogBlock, index: int) -> Bytes:
    """Return the decompressed records of a batch. Raises `UnreadableRecords`."""
    try:
        return decompress(int(block.headers.codec[index]), block.get_batch_bytes(index)[HEADER_BYTES:], MAX_BATCH_BYTES)
    except KafkaError as error:
        raise make_decompression_error(error) from error


def make_decompression_error(error: KafkaError) -> UnreadableRecords:
    """Return the error to report for records that cannot be decompressed; it is no damage if they are too large."""
    return UnreadableRecords("large" if error.code == ErrorCode.MESSAGE_TOO_LARGE else "codec", str(error))


def _find_header_contradictions(headers: BatchHeaders) -> tuple[RowFault, ...]:
    """Return the faults of headers of format 2 whose fields contradict each other, by kind."""
    base, delta, count = headers.base_offset, headers.last_offset - headers.base_offset, headers.record_count
    producer_id, epoch, sequence = headers.producer_id, headers.producer_epoch, headers.base_sequence
    is_odd = (producer_id < -1) | ((producer_id >= 0) != (epoch >= 0))
    is_wrong_count = (delta < 0) | (count < 0) | (count > delta + 1)
    return (
        (is_wrong_count, "header", lambda at: f"last offset delta {delta[at]}, {count[at]} records"),
        (is_odd, "header", lambda at: f"producer id {producer_id[at]} with epoch {epoch[at]}"),
        (sequence < -1, "header", lambda at: f"sequence {sequence[at]}"),
        (base < 0, "header", lambda at: f"base offset {base[at]}"),
    )


def _iterate_payload_chunks(block: LogBlock, problems: list[Problem], *, compacted: bool) -> Iterator[Payloads]:
    """Yield portions of the decompressed payloads by batch; add a problem for each batch that has none."""
    readable = block.sound & (block.headers.magic == MAGIC)
    rows = np.flatnonzero(readable)
    for row, kind, detail in iterate_first_fault_of_rows(
        _find_header_contradictions(block.headers.select_batches(rows))
    ):
        problems.append(block.make_problem(kind, int(rows[row]), detail))
        readable[rows[row]] = False
    if not compacted:
        for index in np.flatnonzero(readable & (block.headers.record_count == 0)).tolist():
            problems.append(block.make_problem("record-count", index, "no records, in a log that is not compacted"))
    chunk: Payloads = {}
    size = 0
    for index in np.flatnonzero(readable & (block.headers.record_count > 0)).tolist():
        try:
            payload = get_decompressed_payload(block, index)
        except UnreadableRecords as error:
            problems.append(block.make_problem(error.kind, index, str(error)))
            continue
        chunk[index] = payload
        size += len(payload)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = {}, 0
    if chunk:
        yield chunk


def _read_records(block: LogBlock, payloads: Payloads, *, compacted: bool) -> tuple[RecordsOfBlock, set[int]]:
    """Return the records of the correct batches, and the indexes of the other ones in the block."""
    data = b"".join([*payloads.values(), _PADDING])
    bytes_ = np.frombuffer(data, np.uint8)
    rows = np.array([*payloads], np.int64)
    sizes = np.array([len(payload) for payload in payloads.values()], np.int64)
    ends = np.cumsum(sizes)
    starts, counts = ends - sizes, block.headers.record_count[rows]
    positions, sound = find_record_starts(bytes_, starts, ends, counts)
    index, counts = rows[sound], counts[sound]
    batch = np.repeat(np.arange(len(index)), counts)
    headers = block.headers.select_batches(index)
    has_attributes = (headers.attributes & ELIDED_BIT == 0).astype(np.int64)
    fields = read_record_fields(bytes_, positions, has_attributes[batch], 5)
    assert fields.offset_deltas is not None and fields.keys is not None and fields.values is not None
    wrong = np.bincount(batch, fields.malformed, len(index)) > 0
    wrong |= _find_wrong_deltas(
        fields.offset_deltas, batch, counts, headers.last_offset - headers.base_offset, compacted
    )
    wrong |= _find_wrong_max_timestamps(headers, fields.timestamp_deltas, np.cumsum(counts) - counts)
    keep = ~wrong[batch]
    keys, values = fields.keys, fields.values
    records = RecordsOfBlock(
        data,
        index[batch][keep],
        (headers.base_offset[batch] + fields.offset_deltas)[keep],
        keys.start[keep],
        (keys.length if keys.is_null is None else np.where(keys.is_null, -1, keys.length))[keep],
        (np.ones(len(batch), np.bool_) if values.is_null is None else ~values.is_null)[keep],
    )
    return records, {*rows[~sound].tolist(), *index[wrong].tolist()}


def _find_wrong_deltas(delta: Int64s, batch: Int64s, counts: Int64s, last_delta: Int64s, compacted: bool) -> Bools:
    """Return which batches have wrong offset deltas: they must be 0, 1, 2, ..., or rise in a compacted log."""
    wrong = np.zeros(len(counts), np.bool_)
    place = np.arange(len(delta)) - np.repeat(np.cumsum(counts) - counts, counts)
    if compacted:
        before = np.where(place == 0, -1, np.concatenate((delta[:1], delta[:-1])))
        wrong[batch[(delta <= before) | (delta > last_delta[batch])]] = True
    else:
        wrong[batch[delta != place]] = True
        wrong |= (counts > 0) & (last_delta != counts - 1)
    return wrong


def _find_wrong_max_timestamps(headers: BatchHeaders, timestamp_deltas: Int64s, firsts: Int64s) -> Bools:
    """Return which batches have a wrong largest timestamp. With log append time, it is the time of all records."""
    if not len(firsts):
        return np.zeros(0, np.bool_)
    largest = headers.base_timestamp + np.maximum.reduceat(timestamp_deltas, firsts)
    found: Bools = (largest != headers.max_timestamp) & (headers.attributes & TIMESTAMP_TYPE_BIT == 0)
    return found


def check_old_messages(block: LogBlock, *, compacted: bool) -> CheckedBlock:
    """Return the problems and the records of the sound messages of formats 0 and 1 in the block.

    Set `block.first_offset` of wrappers.
    """
    problems: list[Problem] = []
    found: list[tuple[int, Message]] = []
    for index in np.flatnonzero(block.sound & (block.headers.magic < MAGIC)).tolist():
        try:
            message = _read_message(bytes(block.get_batch_bytes(index)), 0)
            inside = _check_inner_messages(message, compacted=compacted) if message.compression else [message]
        except UnreadableRecords as error:
            problems.append(block.make_problem(error.kind, index, str(error)))
            continue
        block.first_offset[index] = inside[0].offset
        found += [(index, each) for each in inside]
    return CheckedBlock(problems, [_make_record_columns(found)] if found else [])


def _read_message(data: bytes, position: int) -> Message:
    """Return the message at `position`, whose checksum is right. Raises `UnreadableRecords`."""
    try:
        return read_message(data, position, is_checked=True)[0]
    except InvalidRecords as error:
        raise UnreadableRecords("record", str(error)) from error


def _check_inner_messages(wrapper: Message, *, compacted: bool) -> list[Message]:
    """Return the messages of a wrapper with absolute offsets. Raises `UnreadableRecords`."""
    inner = _read_inner_messages(wrapper)
    if not inner:
        raise UnreadableRecords("record-count", "a wrapper without messages")
    base = wrapper.offset - inner[-1].offset if wrapper.magic else 0
    if base + inner[-1].offset != wrapper.offset or base < 0:
        detail = f"its last message has offset {base + inner[-1].offset}, the wrapper {wrapper.offset}"
        raise UnreadableRecords("record-offset", detail)
    for before, message in zip(inner, inner[1:], strict=False):
        step = message.offset - before.offset
        if step < 1 or step > 1 and not compacted:
            detail = f"offset {base + message.offset} follows {base + before.offset} within a wrapper"
            raise UnreadableRecords("record-offset", detail)
    largest = max(message.timestamp for message in inner)
    if wrapper.magic and wrapper.timestamp_type != LOG_APPEND_TIME and largest != wrapper.timestamp:
        raise UnreadableRecords("max-timestamp", f"{wrapper.timestamp} in the wrapper, {largest} in its messages")
    return [message._replace(offset=base + message.offset) for message in inner]


def _read_inner_messages(wrapper: Message) -> list[Message]:
    """Return the messages of a wrapper as they are stored. Raises `UnreadableRecords`."""
    try:
        payload = decompress_inner_messages(wrapper, MAX_BATCH_BYTES)
    except KafkaError as error:
        raise make_decompression_error(error) from error
    found: list[Message] = []
    end = 0
    try:
        for position, header in iterate_batches_in_any_format(payload):
            end = position + header.size_bytes
            if header.magic != wrapper.magic or header.compression:
                raise UnreadableRecords("record", f"codec {header.compression} and magic {header.magic} in a wrapper")
            try:
                check_message(payload, position)
            except CorruptBatch as error:
                raise UnreadableRecords("crc", f"in a wrapper: {error}") from error
            found.append(_read_message(payload, position))
    except CorruptBatch as error:
        raise UnreadableRecords("record", f"in a wrapper: {error}") from error
    if end != len(payload):
        raise UnreadableRecords("record", f"{len(payload) - end} bytes are left of a message in a wrapper")
    return found


def _make_record_columns(messages: list[tuple[int, Message]]) -> RecordsOfBlock:
    """Return the keys and offsets of messages, given with the index of their batch, as columns."""
    keys = [bytes(message.key or b"") for _, message in messages]
    sizes = np.array([len(key) for key in keys], np.int64)
    return RecordsOfBlock(
        b"".join(keys),
        np.array([index for index, _ in messages], np.int64),
        np.array([message.offset for _, message in messages], np.int64),
        np.cumsum(sizes) - sizes,
        np.where([message.key is None for _, message in messages], -1, sizes),
        np.array([message.value is not None for _, message in messages], np.bool_),
    )
