"""Lanes: the parts of batches that are walked side by side. A batch of many records is cut into several of them.

Where to cut is guessed: at places that look like the starts of two records in a row, of which the second has the next
offset delta. What the deltas say of the number of records between two such places is believed as well. A wrong guess
does no harm: a lane that does not end exactly where the next one begins is noticed, and its batch walked record by
record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from minibroker.pipeline.decode.varint_columns import from_zigzag, read_varints, read_varlongs

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_LANE_RECORDS: Final = 128  # about how many a lane gets
_LARGE_RECORDS: Final = 4 * _LANE_RECORDS  # from how many on a batch is cut
_WINDOW_RECORDS: Final = 4  # of mean size: where a lane may begin
_MAX_WINDOW_BYTES: Final = 1 << 13


class Lanes(NamedTuple):
    """Runs of records that follow one another, of which `batch` says which batch they are of."""

    start: I64
    end: I64
    records: I64  # how many each has
    batch: I64


def cut(data: U8, batches: Lanes) -> Lanes:
    """The lanes of these batches, each given as one lane, in order."""
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


def _cut_one(data: U8, start: int, end: int, records: int, batch: int) -> Lanes:
    count = records // _LANE_RECORDS
    step = (end - start) // count
    window = min(_WINDOW_RECORDS * (end - start) // records + 16, step, _MAX_WINDOW_BYTES)
    windows = start + step * np.arange(1, count)
    cuts, deltas = _guesses(data, windows, window, end)
    fitting = (deltas > 0) & (deltas < records)
    cuts, deltas = np.append(start, cuts[fitting]), np.append(0, deltas[fitting])
    counts = np.diff(np.append(deltas, records))
    if (counts <= 0).any():  # as in compacted batches, whose deltas do not count the records
        cuts, counts = np.array([start]), np.array([records])
    return Lanes(cuts, np.append(cuts[1:], end), counts, np.full(len(cuts), batch, np.int64))


def _guesses(data: U8, windows: I64, window_bytes: int, end: int) -> tuple[I64, I64]:
    """The first place in each window that looks like a record's start, where there is one, and its offset delta.

    A record begins with its length, in one byte or two, and its attributes, which are 0.
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


def _look_like_starts(data: U8, candidates: I64, end: int) -> tuple[Bool, I64]:
    """Whether two records with consecutive offset deltas seem to begin at each of these places, and the first delta."""
    following, delta, is_record = _record_at(data, candidates, end)
    _, next_delta, next_is_record = _record_at(data, following, end)
    return is_record & next_is_record & (next_delta == delta + 1), delta


def _record_at(data: U8, at: I64, end: int) -> tuple[I64, I64, Bool]:
    """Where the record at each place would end, its offset delta, and whether it may be one."""
    length, body = read_varints(data, at)
    following = body + (length >> 1)
    is_record = (length & 1 == 0) & (length > 0) & (following < end) & (data.take(body, mode="clip") == 0)
    _, after = read_varlongs(data, body + 1)
    raw, _ = read_varints(data, after)
    return following, from_zigzag(raw), is_record
