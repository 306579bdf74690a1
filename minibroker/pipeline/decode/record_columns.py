"""The fields of records of format 2 as columns: where each record begins, then its wanted fields.

Within a batch, each length says where the next one is. Batches do not depend on each other, so one step of numpy reads
the next length in all of them:

    batch 0   |len 0       |len 1    |len 2              |          step 0, 1, 2, ... go along, each in all
    batch 1   |len 0   |len 1             |len 2     |              batches, which are its lanes
    batch 2   |len 0          |len 1    |len 2             |

A step looks up two bytes in a table of record sizes, which takes two gathers. Lengths of more than two bytes, damage
and few lanes are walked record by record.

Then all records are walked at once, field by field. Positions only grow, so a record is well formed if its walk arrives
exactly at its end.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    MalformedVarint,
    read_zigzag_varint,
)

BEYOND: Final = 1 << 50  # behind the end of any data, and far from an overflow
_VARINT_MASK: Final = 0xFFFFFFFF


def read_varints(data: UInt8s, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the varints at these positions, and the positions after them.

    They are in zigzag form, from 0 to 2^32-1: odd numbers are negative.
    """
    raw, after = _read_varints_up_to(data, positions, MAX_VARINT_BYTES)
    return raw & _VARINT_MASK, after  # drop surplus bits of the last byte, as Java's readers do


def read_varlongs(data: UInt8s, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Return the signed values of the varlongs at these positions, and the positions after them."""
    raw, after = _read_varints_up_to(data, positions, MAX_VARLONG_BYTES)
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1), after


def decode_zigzag(raw: Int64s) -> Int64s:
    """Return the signed values of the results of `read_varints`."""
    return (raw >> 1) ^ -(raw & 1)


def _read_varints_up_to(data: UInt8s, positions: Int64s, max_bytes: int) -> tuple[Int64s, Int64s]:
    """Return the unsigned varints at any positions, and the positions after them: `BEYOND` if one has too many bytes.

    Behind the end of the data the last byte is read again and again. Callers notice it at the end of a record, as
    positions only grow.
    """
    first = data.take(positions, mode="clip")
    raw = first.astype(np.int64)
    after = positions + 1
    more = np.flatnonzero(first & 0x80)
    raw[more] &= 0x7F
    shift = 7
    while more.size:
        if shift == 7 * max_bytes:
            after[more] = BEYOND
            break
        position = after[more]
        byte = data.take(position, mode="clip")
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] = position + 1
        more = more[byte >= 0x80]
        shift += 7
    return raw, after


MIN_RECORD_BYTES: Final = 6  # length, two deltas, two lengths, count of headers; attributes may be missing
_MIN_LANES: Final = 16  # fewer are faster one by one
_LARGE_RECORD_BYTES: Final = 4096  # of this mean size there are few records, and lengths may have three bytes


class RecordStarts(NamedTuple):
    """Where the records of the `sound` ones among some batches begin, in order."""

    positions: Int64s
    sound: Bools  # whether the records fill the batch exactly, by their lengths


def find_record_starts(data: UInt8s, starts: Int64s, ends: Int64s, counts: Int64s) -> RecordStarts:
    """Find the starts of `counts` records each, in the batches from `starts` to `ends` in `data`.

    Two bytes behind the last end must be readable. A batch is unsound if it has no room for so many records.
    """
    sound = (counts >= 0) & (counts * MIN_RECORD_BYTES <= ends - starts)
    counts = np.where(sound, counts, 0)
    total = int(counts.sum())
    positions = np.empty(total, np.int64)
    lanes, hard = RecordLanes(starts, ends, counts), np.flatnonzero(sound)
    if total and int((ends - starts)[sound].sum()) <= total * _LARGE_RECORD_BYTES:
        positions, arrived = _find_starts_in_all_lanes(data, lanes)
        hard = np.flatnonzero(sound & ~arrived)
    sound[hard] = _find_starts_lane_by_lane(data, lanes, hard, positions)
    return RecordStarts(positions if sound.all() else positions[np.repeat(sound, counts)], sound)


def _find_starts_in_all_lanes(data: UInt8s, lanes: RecordLanes) -> tuple[Int64s, Bools]:
    """Walk all batches at once, a lane each. Return all records' positions, and for which lanes they are right."""
    order = np.argsort(-lanes.records, kind="stable")  # the longest lanes first: the active ones are always a prefix
    current = lanes.start[order]
    falling = -lanes.records[order]
    widths = np.searchsorted(falling, -np.arange(-int(falling[0])), side="left")  # active lanes by step
    widths = widths[: int(np.searchsorted(-widths, -_MIN_LANES, side="right"))]
    pairs: npt.NDArray[np.uint16] = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
    limit = len(data) - 2
    flat = np.empty(int(widths.sum()), np.int64)
    at = 0
    for width in widths.tolist():
        lane = current[:width]
        flat[at : at + width] = lane
        at += width
        lane += _ADVANCE.take(pairs[lane])
        np.minimum(lane, limit, out=lane)
    positions = _put_in_record_order(flat, widths, order, lanes.records)
    arrived = np.empty(len(order), np.bool_)
    arrived[order] = (current == lanes.end[order]) & (-falling <= len(widths))
    # A lane that reached its end too early may have stayed there because of the bytes behind it.
    lasts = np.cumsum(lanes.records) - 1
    arrived &= (lanes.records == 0) | (positions[lasts] < lanes.end)
    return positions, arrived


def _put_in_record_order(
    flat: Int64s, widths: npt.NDArray[np.intp], order: npt.NDArray[np.intp], counts: Int64s
) -> Int64s:
    """Return values in the records' order. `flat` has those of the first record of each lane, then of the second..."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    firsts = np.cumsum(counts) - counts
    step = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    step_starts = np.cumsum(widths) - widths
    if len(widths) == 0:
        return np.empty(len(step), np.int64)
    index = step_starts.take(step, mode="clip") + np.repeat(rank, counts)
    return flat.take(index, mode="clip")


def _find_starts_lane_by_lane(
    data: UInt8s, lanes: RecordLanes, lane_indexes: npt.NDArray[np.intp], positions: Int64s
) -> Bools:
    """Write the records' starts in these batches (lanes) into `positions`. Return whether each batch is sound."""
    firsts = np.cumsum(lanes.records) - lanes.records
    sound = np.zeros(len(lane_indexes), np.bool_)
    for index, lane in enumerate(lane_indexes.tolist()):
        start, records = int(lanes.start[lane]), int(lanes.records[lane])
        starts = find_record_starts_in_payload(data[start : int(lanes.end[lane])].tobytes(), records)
        if starts is not None:
            positions[firsts[lane] : firsts[lane] + records] = starts + start
            sound[index] = True
    return sound


def find_record_starts_in_payload(payload: bytes, count: int) -> Int64s | None:
    """Return where `count` records begin in `payload`, or None if they do not fill it exactly."""
    starts = array("q")
    note, second = starts.append, SECOND_BYTE
    position, size = 0, len(payload)
    try:
        for _ in range(count):
            note(position)
            length, body = payload[position], position + 1
            if length > 0x7F:
                following = payload[body]
                if following > 0x7F:
                    length, body = read_zigzag_varint(payload, position, MAX_VARINT_BYTES)
                else:
                    length, body = length + second[following], body + 1
            if length & 1 or not length:
                return None
            position = body + (length >> 1)
    except (IndexError, MalformedVarint):
        return None
    return np.frombuffer(starts, np.int64) if position == size else None


def _make_record_size_table() -> Int64s:
    """Return a table of record sizes by a record's first two bytes, little-endian; 0 if they do not tell its size."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    is_long = first >= 0x80
    raw = np.where(is_long, first & 0x7F | second << 7, first)
    known = (raw & 1 == 0) & (raw > 0) & ~(is_long & (second >= 0x80))
    return np.where(known, 1 + is_long + (raw >> 1), 0)


_ADVANCE: Final = _make_record_size_table()


class RecordLanes(NamedTuple):
    """Batches, each a run of consecutive records."""

    start: Int64s
    end: Int64s
    records: Int64s  # the number of records


PARTS: Final = ("timestamp", "offset", "key", "value", "headers")  # of a record, in their order in it


def list_record_parts_of_columns(columns: Sequence[str]) -> set[str]:
    """Return the parts of records that these columns of the records table need."""
    return {"timestamp" if name == "timestampMs" else name for name in columns} & {*PARTS}


class RecordParts(NamedTuple):
    """A key, a value or the like of each record: its start, its length, and whether it is null (None: no one is)."""

    start: Int64s
    length: Int64s
    is_null: Bools | None


class HeaderParts(NamedTuple):
    """The headers of each record: their number, and the keys and values of all headers, one after the other."""

    per_record: Int64s
    keys: RecordParts
    values: RecordParts


@dataclass(slots=True)
class FieldColumns:
    """Columns of equal length. None means not wanted, or not in the format. Keys and values may be arrays of Arrow."""

    count: int
    offsets: Int64s | None = None
    timestamps_ms: Int64s | None = None  # -1: none
    timestamp_types: Int64s | int = 0
    keys: RecordParts | pa.Array | None = None
    values: RecordParts | pa.Array | None = None
    headers: HeaderParts | None = None


_MIN_HEADER_BYTES: Final = 2  # the lengths of key and value
_MAX_HEADERS: Final = 1 << 16  # of one record: more count as damage, as each takes a step


class RecordFields(NamedTuple):
    """Columns of the records. None means deeper than was asked for."""

    malformed: Bools  # of the part of the record that was read
    timestamp_deltas: Int64s
    offset_deltas: Int64s | None = None
    keys: RecordParts | None = None
    values: RecordParts | None = None
    headers: HeaderParts | None = None


def read_record_fields(data: UInt8s, starts: Int64s, has_attributes: Int64s | int, depth: int) -> RecordFields:
    """Return the first `depth` fields (1 to 5) of the records at `starts`.

    `has_attributes` is 1 for records with an attributes byte, 0 without. The lengths of the records must have been
    checked (`find_record_starts`).
    """
    length, at = read_varints(data, starts)
    end = at + (length >> 1)
    timestamp_deltas, at = read_varlongs(data, at + has_attributes)
    if depth == 1:
        return RecordFields(at > end, timestamp_deltas)
    raw, at = read_varints(data, at)
    offset_deltas = decode_zigzag(raw)
    if depth == 2:
        return RecordFields(at > end, timestamp_deltas, offset_deltas)
    keys, at = _read_parts(data, at)
    if depth == 3:
        return RecordFields(at > end, timestamp_deltas, offset_deltas, keys)
    values, at = _read_parts(data, at)
    if depth == 4:
        return RecordFields(at > end, timestamp_deltas, offset_deltas, keys, values)
    headers, at = _read_headers(data, at, end)
    return RecordFields(at != end, timestamp_deltas, offset_deltas, keys, values, headers)


def _read_parts(data: UInt8s, positions: Int64s) -> tuple[RecordParts, Int64s]:
    """Return start and length of the bytes at these positions, by the varints there, and the positions after them."""
    raw, start = read_varints(data, positions)
    length = raw >> 1
    is_null = raw & 1 != 0
    if not is_null.any():
        return RecordParts(start, length, None), start + length
    length[is_null] = 0
    return RecordParts(start, length, is_null), start + length


def _read_headers(data: UInt8s, positions: Int64s, end: Int64s) -> tuple[HeaderParts, Int64s]:
    """Return the headers, and the positions after them; `BEYOND` if they are malformed."""
    raw, positions = read_varints(data, positions)
    count = raw >> 1
    impossible = (raw & 1 != 0) | (count > (end - positions) // _MIN_HEADER_BYTES) | (count > _MAX_HEADERS)
    if impossible.any():
        count[impossible], positions[impossible] = 0, BEYOND
    return _HeadersReader(data, count).read_headers(positions)


class _HeadersReader:
    """The columns of headers while they are read: the first header of all records, then the second, and so on."""

    def __init__(self, data: UInt8s, count: Int64s) -> None:
        self._data = data
        self._count = count
        self._first = np.cumsum(count) - count
        total = int(count.sum())
        self._keys = np.zeros((2, total), np.int64)
        self._values = np.zeros((2, total), np.int64)
        self._null_values = np.zeros(total, np.bool_)

    def read_headers(self, positions: Int64s) -> tuple[HeaderParts, Int64s]:
        active = np.flatnonzero(self._count)
        index = 0
        while len(active):
            positions[active] = self._read_next_header(positions[active], self._first[active] + index)
            index += 1
            active = active[self._count[active] > index]
        null_values = self._null_values if self._null_values.any() else None
        return HeaderParts(
            self._count,
            RecordParts(self._keys[0], self._keys[1], None),
            RecordParts(self._values[0], self._values[1], null_values),
        ), positions

    def _read_next_header(self, positions: Int64s, slots: Int64s) -> Int64s:
        """Read one header of many records into these slots. Return the positions after it."""
        keys, positions = _read_parts(self._data, positions)
        if keys.is_null is not None:
            positions[keys.is_null] = BEYOND
        values, positions = _read_parts(self._data, positions)
        self._keys[:, slots] = keys.start, keys.length
        self._values[:, slots] = values.start, values.length
        if values.is_null is not None:
            self._null_values[slots] = values.is_null
        return positions
