"""Whether the records in batches of format 2 are what the headers say: all batches of a block at once, with numpy.

A batch in which anything is not as it should be is read once more, record by record, to tell what. Messages of formats
0 and 1 are read in `messages.py`.

The chain of lengths is sequential within a batch, but not between batches: so record i of all batches is one step.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint | key | value | count of headers ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.jobs.verify.kinds import Problem
from minibroker.pipeline.jobs.verify.record_reader import Unreadable, what_is_wrong
from minibroker.pipeline.jobs.verify.scanning import (
    COMPRESSION,
    ELIDED,
    HEADER_BYTES,
    TIMESTAMP_TYPE,
    Block,
    Flags,
    Ints,
)
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.compression import decompress

Bytes8 = npt.NDArray[np.uint8]

MAX_PAYLOAD_BYTES = 100 << 20  # of one batch, decompressed
CHUNK_BYTES = 8 << 20  # of many
FEW_BATCHES = 12  # from here on a step over all of them is cheaper than one after the other
LAST_CODEC = 4
_PADDING = bytes(32)  # so that a look behind the last record stays in the buffer


class Payload(NamedTuple):
    """The decompressed records of one batch, `row` being its place in the block."""

    row: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Records:
    """The records of some batches as columns; `batch` is the place of a record's batch in the block.

    `key_start` and `key_size` say where in `data` the key lies; a size of -1 is null.
    """

    data: bytes
    batch: Ints
    offset: Ints
    key_start: Ints
    key_size: Ints
    has_value: Flags


class Checked(NamedTuple):
    """The result for a block: what is wrong, and the records of the batches in which nothing is."""

    problems: list[Problem]
    records: list[Records]


def check_records(block: Block, *, compacted: bool) -> Checked:
    """Read the records of all sound batches of format 2 in the block, but for control batches' meaning."""
    problems: list[Problem] = []
    found: list[Records] = []
    for payloads in _chunks(block, problems, compacted=compacted):
        records, wrong = _read(block, payloads, compacted=compacted)
        found.append(records)
        for payload in payloads:
            if payload.row in wrong:
                problems += _diagnosis(block, payload, compacted=compacted)
    return Checked(problems, found)


def payload_of(block: Block, index: int) -> bytes | memoryview:
    """The records of a batch, decompressed. Raises `Unreadable`."""
    codec = int(block.attributes[index]) & COMPRESSION
    if codec > LAST_CODEC:
        raise Unreadable("codec", f"codec {codec}, of which nothing is known")
    compressed = block.batch(index)[HEADER_BYTES:]
    if not codec:
        return compressed
    try:
        return bytes(decompress(codec, compressed, MAX_PAYLOAD_BYTES))
    except KafkaError as error:
        raise Unreadable("codec", str(error)) from error


def header_problem(block: Block, index: int) -> str:
    """Return what contradicts itself in the header of a batch of format 2; empty if nothing does."""
    delta = int(block.last_offset[index] - block.base_offset[index])
    count = int(block.record_count[index])
    if delta < 0 or count < 0 or count > delta + 1:
        return f"last offset delta {delta}, {count} records"
    producer_id, epoch = int(block.producer_id[index]), int(block.producer_epoch[index])
    if producer_id < -1 or (producer_id >= 0) != (epoch >= 0):
        return f"producer id {producer_id} with epoch {epoch}"
    if int(block.base_sequence[index]) < -1:
        return f"sequence {int(block.base_sequence[index])}"
    if int(block.base_offset[index]) < 0:
        return f"base offset {int(block.base_offset[index])}"
    return ""


def _contradictory(block: Block) -> Flags:
    """For which batches `header_problem` has something to say, all at once."""
    delta, count = block.last_offset - block.base_offset, block.record_count
    found: Flags = (delta < 0) | (count < 0) | (count > delta + 1) | (block.base_offset < 0)
    found |= (block.producer_id < -1) | ((block.producer_id >= 0) != (block.producer_epoch >= 0))
    return found | (block.base_sequence < -1)


def _chunks(block: Block, problems: list[Problem], *, compacted: bool) -> Iterator[list[Payload]]:
    """The payloads of all batches that have records, in portions; what cannot be decompressed is a problem."""
    is_new = block.sound & (block.magic == 2)
    contradictory = _contradictory(block)
    for index in np.flatnonzero(is_new & contradictory).tolist():
        problems.append(_problem(block, index, "header", header_problem(block, index)))
    readable = is_new & ~contradictory
    if not compacted:
        for index in np.flatnonzero(readable & (block.record_count == 0)).tolist():
            problems.append(_problem(block, index, "record-count", "no records, in a log that is not compacted"))
    chunk: list[Payload] = []
    size = 0
    for index in np.flatnonzero(readable & (block.record_count > 0)).tolist():
        try:
            payload = payload_of(block, index)
        except Unreadable as error:
            problems.append(_problem(block, index, error.kind, str(error)))
            continue
        chunk.append(Payload(index, payload))
        size += len(payload)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _problem(block: Block, index: int, kind: str, detail: str) -> Problem:
    return Problem(kind, int(block.positions[index]), int(block.base_offset[index]), detail)


def _diagnosis(block: Block, payload: Payload, *, compacted: bool) -> list[Problem]:
    index = payload.row
    found = what_is_wrong(
        payload.data,
        count=int(block.record_count[index]),
        last_delta=int(block.last_offset[index] - block.base_offset[index]),
        base_timestamp=int(block.base_timestamp[index]),
        max_timestamp=None if block.attributes[index] & TIMESTAMP_TYPE else int(block.max_timestamp[index]),
        elided=bool(block.attributes[index] & ELIDED),
        compacted=compacted,
    )
    return [_problem(block, index, *found)] if found else []


def _read(block: Block, payloads: Sequence[Payload], *, compacted: bool) -> tuple[Records, set[int]]:
    """The records of the batches that are right, and the places in the block of those that are not."""
    data = b"".join([*(payload.data for payload in payloads), _PADDING])
    bytes_ = np.frombuffer(data, np.uint8)
    index = np.array([payload.row for payload in payloads], np.int64)
    ends = np.cumsum([len(payload.data) for payload in payloads], dtype=np.int64)
    starts = ends - np.array([len(payload.data) for payload in payloads], np.int64)
    counts = block.record_count[index]
    bodies, record_ends, right = _bodies(data, bytes_, starts, ends, counts)
    batch = np.repeat(np.arange(len(index)), counts)
    keep = right[batch]
    bodies, record_ends, batch = bodies[keep], record_ends[keep], batch[keep]
    fields = _fields(bytes_, bodies, record_ends, (block.attributes[index] & ELIDED != 0)[batch])
    right[batch[~fields.right]] = False
    counts = np.where(right, counts, 0)
    keep = right[batch]
    batch = batch[keep]
    delta, timestamp = fields.offset_delta[keep], fields.timestamp_delta[keep]
    firsts = (np.cumsum(counts) - counts)[counts > 0]
    whole = np.flatnonzero(counts > 0)
    if len(whole):
        wrong = _wrong_deltas(delta, batch, counts, block.last_offset[index] - block.base_offset[index], compacted)
        wrong[whole] |= _wrong_times(block, index[whole], timestamp, firsts)
        right &= ~wrong
    keep_right = right[batch]
    records = Records(
        data,
        index[batch][keep_right],
        (block.base_offset[index][batch] + delta)[keep_right],
        fields.key_start[keep][keep_right],
        fields.key_size[keep][keep_right],
        fields.has_value[keep][keep_right],
    )
    return records, set(index[~right].tolist())


def _wrong_deltas(delta: Ints, batch: Ints, counts: Ints, last_delta: Ints, compacted: bool) -> Flags:
    """By batch, whether its offset deltas are not what they must be: all from 0 on, or, compacted, rising."""
    wrong = np.zeros(len(counts), np.bool_)
    place = np.arange(len(delta)) - np.repeat(np.cumsum(counts) - counts, counts)
    if compacted:
        before = np.where(place == 0, -1, np.concatenate((delta[:1], delta[:-1])))
        wrong[batch[(delta <= before) | (delta > last_delta[batch])]] = True
    else:
        wrong[batch[delta != place]] = True
        wrong |= (counts > 0) & (last_delta != counts - 1)
    return wrong


def _wrong_times(block: Block, index: Ints, timestamp_delta: Ints, firsts: Ints) -> Flags:
    """Whether the largest timestamp is not the header's, which in a batch with the broker's time is that time."""
    largest = block.base_timestamp[index] + np.maximum.reduceat(timestamp_delta, firsts)
    found: Flags = (largest != block.max_timestamp[index]) & (block.attributes[index] & TIMESTAMP_TYPE == 0)
    return found


def _bodies(data: bytes, bytes_: Bytes8, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints, Flags]:
    """Where each record begins behind its length, and where it ends; and which batches are just filled by them."""
    total = int(counts.sum())
    bodies, record_ends = np.zeros(total, np.int64), np.zeros(total, np.int64)
    right = counts <= ends - starts
    order = np.argsort(-counts, kind="stable")
    first = (np.cumsum(counts) - counts)[order]
    ordered_counts, ordered_ends, at = counts[order], ends[order], starts[order].copy()
    alive = right[order]
    step = 0
    active = len(order)
    while active >= FEW_BATCHES:
        active = int(np.searchsorted(-ordered_counts, -step, side="left"))
        live = np.flatnonzero(alive[:active])
        if len(live) < FEW_BATCHES:
            break
        length, body, fits = _varint(bytes_, at[live])
        end = body + (length >> 1)
        fine = fits & (length & 1 == 0) & (length > 0) & (end <= ordered_ends[live])
        alive[live[~fine]] = False
        live, body, end = live[fine], body[fine], end[fine]
        bodies[first[live] + step], record_ends[first[live] + step] = body, end
        at[live] = end
        step += 1
    for place in np.flatnonzero(alive & (ordered_counts > step)).tolist():
        count, begin = int(ordered_counts[place]), int(first[place])
        chain = _chain(data, int(at[place]), int(ordered_ends[place]), count - step)
        alive[place] = len(chain[0]) == count - step
        bodies[begin + step : begin + step + len(chain[0])] = chain[0]
        record_ends[begin + step : begin + step + len(chain[1])] = chain[1]
        at[place] = chain[1][-1] if chain[1] else at[place]
    right[order] = alive & (at == ordered_ends)
    return bodies, record_ends, right


def _chain(data: bytes, at: int, end: int, count: int) -> tuple[list[int], list[int]]:
    """The same for what is left of one batch, one record after the other, up to the first that cannot be."""
    bodies: list[int] = []
    ends: list[int] = []
    for _ in range(count):
        if at >= end:
            break
        length, shift, byte = 0, 0, 0x80
        while byte & 0x80 and shift <= 28:
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        if byte & 0x80 or length & 1 or not 0 < length >> 1 <= end - at:
            break
        bodies.append(at)
        at += length >> 1
        ends.append(at)
    return bodies, ends


def _varint(bytes_: Bytes8, at: Ints, max_bytes: int = 5) -> tuple[Ints, Ints, Flags]:
    """The varints at some positions as they are stored, zigzag, where they end, and which do so in `max_bytes`."""
    byte = bytes_[at].astype(np.int64)
    value, at = byte & 0x7F, at + 1
    more = np.flatnonzero(byte >= 0x80)
    limit = len(bytes_) - 1
    for shift in range(7, 7 * max_bytes, 7):
        if not len(more):
            break
        byte = bytes_[np.minimum(at[more], limit)].astype(np.int64)
        value[more] |= (byte & 0x7F) << shift
        at[more] += 1
        more = more[byte >= 0x80]
    fits = np.ones(len(value), np.bool_)
    fits[more] = False
    return value, at, fits


def _unzigzag(value: Ints) -> Ints:
    signed: Ints = (value >> 1) & 0x7FFFFFFFFFFFFFFF ^ -(value & 1)
    return signed


class _Fields(NamedTuple):
    right: Flags
    timestamp_delta: Ints
    offset_delta: Ints
    key_start: Ints
    key_size: Ints
    has_value: Flags


def _fields(bytes_: Bytes8, bodies: Ints, ends: Ints, elided: Flags) -> _Fields:
    """The fields of records; `right` says of each whether they fill it."""
    limit = len(bytes_) - len(_PADDING)
    at = np.minimum(bodies + ~elided, limit)
    timestamp, at, right = _varint(bytes_, at, 10)
    offset, at, fits = _varint(bytes_, np.minimum(at, limit))
    right &= fits
    key_size, key_start, right = _sized(bytes_, at, ends, right)
    at = np.where(right, key_start + np.maximum(key_size, 0), ends)
    value_size, value_start, right = _sized(bytes_, at, ends, right)
    at = np.where(right, value_start + np.maximum(value_size, 0), ends)
    headers, at, fits = _varint(bytes_, np.minimum(at, limit))
    right &= fits & (headers & 1 == 0) & (headers >> 1 <= ends - at)
    right = _skip_headers(bytes_, at, ends, headers >> 1, right)
    return _Fields(right, _unzigzag(timestamp), _unzigzag(offset), key_start, key_size, value_size >= 0)


def _sized(bytes_: Bytes8, at: Ints, ends: Ints, right: Flags) -> tuple[Ints, Ints, Flags]:
    """(size, start, still right) of a key or value; null is size -1."""
    raw, start, fits = _varint(bytes_, np.minimum(at, len(bytes_) - len(_PADDING)))
    size = np.where(raw & 1 == 1, -1, raw >> 1)
    return size, start, right & fits & (start + np.maximum(size, 0) <= ends)


def _skip_headers(bytes_: Bytes8, at: Ints, ends: Ints, counts: Ints, right: Flags) -> Flags:
    """Whether the headers end where the record does; header i of all records is one step."""
    at, right = at.copy(), right.copy()
    with_more = np.flatnonzero(right & (counts > 0))
    step = 0
    while len(with_more):
        size, start, fine = _sized(bytes_, at[with_more], ends[with_more], np.ones(len(with_more), np.bool_))
        fine &= size >= 0
        here = np.where(fine, start + np.maximum(size, 0), ends[with_more])
        size, start, fine = _sized(bytes_, here, ends[with_more], fine)
        at[with_more] = start + np.maximum(size, 0)
        right[with_more[~fine]] = False
        step += 1
        with_more = with_more[fine & (counts[with_more] > step)]
    right &= at == ends
    return right
