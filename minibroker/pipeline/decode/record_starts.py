"""Finds where each record of format 2 begins: a chain of lengths in each batch, walked in many batches at once.

Within a batch, each length says where the next one is. Batches do not depend on each other, so one step of numpy reads
the next length in all of them:

    batch 0   |len 0       |len 1    |len 2              |          step 0, 1, 2, ... go along, each in all
    batch 1   |len 0   |len 1             |len 2     |              batches, which are its lanes
    batch 2   |len 0          |len 1    |len 2             |

A step looks up two bytes in a table of record sizes, which takes two gathers. Lengths of more than two bytes, damage
and few lanes are walked record by record.

A batch with many records is first cut into several lanes. The cuts are guesses: places where two records seem to begin,
the second with the next offset delta. The deltas also give the number of records between two such places. A wrong guess
is harmless: its lane does not end exactly where the next one begins, and then the batch is walked record by record.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.protocol.records.varints import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    SECOND_BYTE,
    MalformedVarint,
    read_unsigned,
)

BEYOND: Final = 1 << 50  # behind the end of any data, and far from an overflow
_VARINT_MASK: Final = 0xFFFFFFFF


def read_varints(data: UInt8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """Return the varints at these positions, and the positions after them.

    They are in zigzag form, from 0 to 2^32-1: odd numbers are negative.
    """
    raw, after = _read_varints(data, at, MAX_VARINT_BYTES)
    return raw & _VARINT_MASK, after  # drop surplus bits of the last byte, as Java's readers do


def read_varlongs(data: UInt8s, at: Int64s) -> tuple[Int64s, Int64s]:
    """Return the signed values of the varlongs at these positions, and the positions after them."""
    raw, after = _read_varints(data, at, MAX_VARLONG_BYTES)
    unsigned = raw.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(raw & 1), after


def decode_zigzag(raw: Int64s) -> Int64s:
    """Return the signed values of the results of `read_varints`."""
    return (raw >> 1) ^ -(raw & 1)


def _read_varints(data: UInt8s, at: Int64s, max_bytes: int) -> tuple[Int64s, Int64s]:
    """Return the unsigned varints at any positions, and the positions after them: `BEYOND` if one has too many bytes.

    Behind the end of the data the last byte is read again and again. Callers notice it at the end of a record, as
    positions only grow.
    """
    first = data.take(at, mode="clip")
    raw = first.astype(np.int64)
    after = at + 1
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

_LANE_RECORDS: Final = 128  # approximately, in a lane
_LARGE_RECORDS: Final = 4 * _LANE_RECORDS  # batches from this size on are cut
_WINDOW_RECORDS: Final = 4  # of mean size: the window in which a lane may begin
_MAX_WINDOW_BYTES: Final = 1 << 13


class Starts(NamedTuple):
    """Where the records of the `sound` ones among some batches begin, in order."""

    positions: Int64s
    sound: Bools  # whether the records fill the batch exactly, by their lengths


def find_record_starts(data: UInt8s, starts: Int64s, ends: Int64s, counts: Int64s) -> Starts:
    """Find the starts of `counts` records each, in the batches from `starts` to `ends` in `data`.

    Two bytes behind the last end must be readable. A batch is unsound if it has no room for so many records.
    """
    sound = (counts >= 0) & (counts * MIN_RECORD_BYTES <= ends - starts)
    counts = np.where(sound, counts, 0)
    total = int(counts.sum())
    positions = np.empty(total, np.int64)
    batches = Lanes(starts, ends, counts, np.arange(len(starts)))
    if total and int((ends - starts)[sound].sum()) <= total * _LARGE_RECORD_BYTES:
        lanes = split_into_lanes(data, batches)
        positions, arrived = _walk_together(data, lanes)
        arrived[~arrived] = _walk_each(data, lanes, np.flatnonzero(~arrived), positions)
        hard = np.unique(lanes.batch[~arrived])  # of the batches that were cut, the cut may have been wrong
    else:
        hard = np.arange(len(starts))
    hard = hard[sound[hard]]
    sound[hard] = _walk_each(data, batches, hard, positions)
    return Starts(positions if sound.all() else positions[np.repeat(sound, counts)], sound)


def _walk_together(data: UInt8s, lanes: Lanes) -> tuple[Int64s, Bools]:
    """Return the positions of all records, and which lanes ended where they should. Other lanes have no meaning."""
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
    positions = _put_in_order(flat, widths, order, lanes.records)
    arrived = np.empty(len(order), np.bool_)
    arrived[order] = (current == lanes.end[order]) & (-falling <= len(widths))
    # A lane that reached its end too early may have stayed there because of the bytes behind it.
    lasts = np.cumsum(lanes.records) - 1
    arrived &= (lanes.records == 0) | (positions[lasts] < lanes.end)
    return positions, arrived


def _put_in_order(flat: Int64s, widths: npt.NDArray[np.intp], order: npt.NDArray[np.intp], counts: Int64s) -> Int64s:
    """Return the values, noted step by step and lane by lane, in the records' order."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    firsts = np.cumsum(counts) - counts
    step = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    step_starts = np.cumsum(widths) - widths
    if len(widths) == 0:
        return np.empty(len(step), np.int64)
    index = step_starts.take(step, mode="clip") + np.repeat(rank, counts)
    return flat.take(index, mode="clip")


def _walk_each(data: UInt8s, lanes: Lanes, which: npt.NDArray[np.intp], positions: Int64s) -> Bools:
    """Walk these lanes record by record, and put the positions in place. Return whether each lane is sound."""
    firsts = np.cumsum(lanes.records) - lanes.records
    sound = np.zeros(len(which), np.bool_)
    for index, lane in enumerate(which.tolist()):
        start, records = int(lanes.start[lane]), int(lanes.records[lane])
        starts = find_starts(data[start : int(lanes.end[lane])].tobytes(), records)
        if starts is not None:
            positions[firsts[lane] : firsts[lane] + records] = starts + start
            sound[index] = True
    return sound


def find_starts(payload: bytes, count: int) -> Int64s | None:
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
                    length, body = read_unsigned(payload, position, MAX_VARINT_BYTES)
                else:
                    length, body = length + second[following], body + 1
            if length & 1 or not length:
                return None
            position = body + (length >> 1)
    except (IndexError, MalformedVarint):
        return None
    return np.frombuffer(starts, np.int64) if position == size else None


def _make_advances() -> Int64s:
    """Return the size of a record by its first two bytes (the lowest first); 0 if invalid or longer."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    is_long = first >= 0x80
    raw = np.where(is_long, first & 0x7F | second << 7, first)
    known = (raw & 1 == 0) & (raw > 0) & ~(is_long & (second >= 0x80))
    return np.where(known, 1 + is_long + (raw >> 1), 0)


_ADVANCE: Final = _make_advances()


class Lanes(NamedTuple):
    """Runs of consecutive records. `batch` is the index of their batch."""

    start: Int64s
    end: Int64s
    records: Int64s  # the number of records
    batch: Int64s


def split_into_lanes(data: UInt8s, batches: Lanes) -> Lanes:
    """Return the lanes of these batches. In `batches`, each batch is one lane, in order."""
    large = np.flatnonzero(batches.records >= _LARGE_RECORDS)
    if not len(large):
        return batches
    parts: list[Lanes] = []
    done = 0
    for index in large.tolist():
        parts.append(Lanes(*(column[done:index] for column in batches)))
        parts.append(_cut_one(data, *(int(column[index]) for column in batches)))
        done = index + 1
    parts.append(Lanes(*(column[done:] for column in batches)))
    return Lanes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _cut_one(data: UInt8s, start: int, end: int, records: int, batch: int) -> Lanes:
    count = records // _LANE_RECORDS
    step = (end - start) // count
    window = min(_WINDOW_RECORDS * (end - start) // records + 16, step, _MAX_WINDOW_BYTES)
    windows = start + step * np.arange(1, count)
    cuts, deltas = _guess_starts(data, windows, window, end)
    fitting = (deltas > 0) & (deltas < records)
    cuts, deltas = np.append(start, cuts[fitting]), np.append(0, deltas[fitting])
    counts = np.diff(np.append(deltas, records))
    if (counts <= 0).any():  # as in compacted batches, where deltas do not count the records
        cuts, counts = np.array([start]), np.array([records])
    return Lanes(cuts, np.append(cuts[1:], end), counts, np.full(len(cuts), batch, np.int64))


def _guess_starts(data: UInt8s, windows: Int64s, window_bytes: int, end: int) -> tuple[Int64s, Int64s]:
    """Return the first place in each window that looks like a record's start, and its offset delta.

    Windows without such a place are left out. A record begins with its length (1 or 2 bytes) and its attributes (0).
    """
    zero_in, zero_at = np.nonzero(data[windows[:, np.newaxis] + np.arange(window_bytes)] == 0)
    zeros = windows[zero_in] + zero_at
    candidates = np.concatenate((zeros - 1, zeros - 2))
    in_window = np.concatenate((zero_in, zero_in))
    is_start, deltas = _look_like_starts(data, candidates, end)
    candidates, in_window, deltas = candidates[is_start], in_window[is_start], deltas[is_start]
    order = np.lexsort((candidates, in_window))
    _, firsts = np.unique(in_window[order], return_index=True)
    chosen = order[firsts]
    return candidates[chosen], deltas[chosen]


def _look_like_starts(data: UInt8s, candidates: Int64s, end: int) -> tuple[Bools, Int64s]:
    """Return whether two records with consecutive offset deltas seem to begin at each place, and the first delta."""
    following, delta, is_record = _read_record_at(data, candidates, end)
    _, next_delta, next_is_record = _read_record_at(data, following, end)
    return is_record & next_is_record & (next_delta == delta + 1), delta


def _read_record_at(data: UInt8s, at: Int64s, end: int) -> tuple[Int64s, Int64s, Bools]:
    """Return where the record at each place would end, its offset delta, and whether it may be a record."""
    length, body = read_varints(data, at)
    following = body + (length >> 1)
    is_record = (length & 1 == 0) & (length > 0) & (following < end) & (data.take(body, mode="clip") == 0)
    _, after = read_varlongs(data, body + 1)
    raw, _ = read_varints(data, after)
    return following, decode_zigzag(raw), is_record
