"""Finds where each record of format 2 begins: a chain of lengths in each batch, walked in many batches at once.

Within a batch, each length says where the next one is. Batches do not depend on each other, so one step of numpy reads
the next length in all of them:

    batch 0   |len 0       |len 1    |len 2              |          step 0, 1, 2, ... go along, each in all
    batch 1   |len 0   |len 1             |len 2     |              batches, which are its lanes
    batch 2   |len 0          |len 1    |len 2             |

A step looks up two bytes in a table of record sizes, which takes two gathers. Lengths of more than two bytes, damage
and few lanes are walked record by record. A large batch is first cut into lanes, in `lanes.py`.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode.lanes import Lanes, cut
from minibroker.protocol.records.varints import MAX_VARINT_BYTES, SECOND_BYTE, MalformedVarint, read_raw

MIN_RECORD_BYTES: Final = 6  # length, two deltas, two lengths, count of headers; attributes may be missing
_MIN_LANES: Final = 16  # fewer are faster one by one
_LARGE_RECORD_BYTES: Final = 4096  # of this mean size there are few records, and lengths may have three bytes


class Starts(NamedTuple):
    """Where the records of the `sound` ones among some batches begin, in order."""

    positions: Int64s
    sound: Bools  # whether the records fill the batch exactly, by their lengths


def record_starts(data: UInt8s, starts: Int64s, ends: Int64s, counts: Int64s) -> Starts:
    """Find the starts of `counts` records each, in the batches from `starts` to `ends` in `data`.

    Two bytes behind the last end must be readable. A batch is unsound if it has no room for so many records.
    """
    sound = (counts >= 0) & (counts * MIN_RECORD_BYTES <= ends - starts)
    counts = np.where(sound, counts, 0)
    total = int(counts.sum())
    positions = np.empty(total, np.int64)
    batches = Lanes(starts, ends, counts, np.arange(len(starts)))
    if total and int((ends - starts)[sound].sum()) <= total * _LARGE_RECORD_BYTES:
        lanes = cut(data, batches)
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
    positions = _in_order(flat, widths, order, lanes.records)
    arrived = np.empty(len(order), np.bool_)
    arrived[order] = (current == lanes.end[order]) & (-falling <= len(widths))
    # A lane that reached its end too early may have stayed there because of the bytes behind it.
    lasts = np.cumsum(lanes.records) - 1
    arrived &= (lanes.records == 0) | (positions[lasts] < lanes.end)
    return positions, arrived


def _in_order(flat: Int64s, widths: npt.NDArray[np.intp], order: npt.NDArray[np.intp], counts: Int64s) -> Int64s:
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
        found = walk(data[start : int(lanes.end[lane])].tobytes(), records)
        if found is not None:
            positions[firsts[lane] : firsts[lane] + records] = found + start
            sound[index] = True
    return sound


def walk(payload: bytes, count: int) -> Int64s | None:
    """Return where `count` records begin in `payload`, or None if they do not fill it exactly."""
    found = array("q")
    note, second = found.append, SECOND_BYTE
    position, size = 0, len(payload)
    try:
        for _ in range(count):
            note(position)
            length, body = payload[position], position + 1
            if length > 0x7F:
                following = payload[body]
                if following > 0x7F:
                    length, body = read_raw(payload, position, MAX_VARINT_BYTES)
                else:
                    length, body = length + second[following], body + 1
            if length & 1 or not length:
                return None
            position = body + (length >> 1)
    except (IndexError, MalformedVarint):
        return None
    return np.frombuffer(found, np.int64) if position == size else None


def _advances() -> Int64s:
    """Return the size of a record by its first two bytes (the lowest first); 0 if invalid or longer."""
    pair = np.arange(1 << 16)
    first, second = pair & 0xFF, pair >> 8
    is_long = first >= 0x80
    raw = np.where(is_long, first & 0x7F | second << 7, first)
    known = (raw & 1 == 0) & (raw > 0) & ~(is_long & (second >= 0x80))
    return np.where(known, 1 + is_long + (raw >> 1), 0)


_ADVANCE: Final = _advances()
