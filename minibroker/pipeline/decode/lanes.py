"""Lanes: parts of batches that are walked in parallel. A batch with many records is cut into several of them.

The cuts are guesses: places where two records seem to begin, the second with the next offset delta. The deltas also
give the number of records between two such places. A wrong guess is harmless: its lane does not end exactly where the
next one begins, and then the batch is walked record by record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s, UInt8s
from minibroker.pipeline.decode.varint_columns import from_zigzag, read_varints, read_varlongs

_LANE_RECORDS: Final = 128  # approximately, in a lane
_LARGE_RECORDS: Final = 4 * _LANE_RECORDS  # batches from this size on are cut
_WINDOW_RECORDS: Final = 4  # of mean size: the window in which a lane may begin
_MAX_WINDOW_BYTES: Final = 1 << 13


class Lanes(NamedTuple):
    """Runs of consecutive records. `batch` is the index of their batch."""

    start: Int64s
    end: Int64s
    records: Int64s  # the number of records
    batch: Int64s


def cut(data: UInt8s, batches: Lanes) -> Lanes:
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
    cuts, deltas = _guesses(data, windows, window, end)
    fitting = (deltas > 0) & (deltas < records)
    cuts, deltas = np.append(start, cuts[fitting]), np.append(0, deltas[fitting])
    counts = np.diff(np.append(deltas, records))
    if (counts <= 0).any():  # as in compacted batches, where deltas do not count the records
        cuts, counts = np.array([start]), np.array([records])
    return Lanes(cuts, np.append(cuts[1:], end), counts, np.full(len(cuts), batch, np.int64))


def _guesses(data: UInt8s, windows: Int64s, window_bytes: int, end: int) -> tuple[Int64s, Int64s]:
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
    following, delta, is_record = _record_at(data, candidates, end)
    _, next_delta, next_is_record = _record_at(data, following, end)
    return is_record & next_is_record & (next_delta == delta + 1), delta


def _record_at(data: UInt8s, at: Int64s, end: int) -> tuple[Int64s, Int64s, Bools]:
    """Return where the record at each place would end, its offset delta, and whether it may be a record."""
    length, body = read_varints(data, at)
    following = body + (length >> 1)
    is_record = (length & 1 == 0) & (length > 0) & (following < end) & (data.take(body, mode="clip") == 0)
    _, after = read_varlongs(data, body + 1)
    raw, _ = read_varints(data, after)
    return following, from_zigzag(raw), is_record
