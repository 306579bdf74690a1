"""The `.txnindex` file of a segment against the aborted transactions that its log shows.

What the file says by itself is judged in `transactions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from minibroker.pipeline.jobs.verify.kinds import Problem
from minibroker.pipeline.jobs.verify.transactions import ABORT, ENTRY, IndexEntry, Marker


@dataclass(frozen=True)
class Known:
    """The other facts: where the log begins, whether it is compacted, and whether all of it could be read."""

    start_offset: int
    compacted: bool
    damaged: bool


def wrong_entries(
    entries: Sequence[IndexEntry], aborts: Sequence[Marker], markers: Mapping[int, Marker], known: Known
) -> Iterator[tuple[str, Problem]]:
    """("index" or "log", problem): the file that it is in. `aborts` are the segment's, with the log's first offsets.

    Where records are gone (by retention, by compaction), an entry may know more than the log shows. `markers` are all
    abort markers of the segment, by offset.
    """
    by_key = {(entry.producer_id, entry.last_offset): place for place, entry in enumerate(entries)}
    for marker in aborts:
        if marker.first_offset < 0 or (marker.producer_id, marker.offset) in by_key:
            continue
        detail = f"producer {marker.producer_id} aborted {marker.first_offset} to {marker.offset}; no entry says so"
        yield "log", Problem("txnindex-missing", marker.position, marker.offset, detail)
    for place, entry in enumerate(entries):
        for problem in _judged(entry, place, markers, known):
            yield "index", problem


def _judged(entry: IndexEntry, place: int, markers: Mapping[int, Marker], known: Known) -> Iterator[Problem]:
    position = place * ENTRY.size
    marker = markers.get(entry.last_offset)
    is_of_marker = marker is not None and (marker.producer_id, marker.kind) == (entry.producer_id, ABORT)
    said = f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
    gone = known.compacted or entry.first_offset < known.start_offset
    if marker is None or not is_of_marker or marker.first_offset < 0 and not gone:
        if not known.damaged:
            yield Problem("txnindex-extra", position, entry.last_offset, f"{said}: the log has no such transaction")
        return
    if marker.first_offset < 0 or known.damaged:
        return
    first = marker.first_offset
    if entry.first_offset > first or entry.first_offset != first and not gone:
        yield Problem("txnindex-first-offset", position, entry.last_offset, f"{said}: in the log it begins at {first}")
    stable = marker.stable_offset
    if entry.stable_offset != stable and not (known.compacted or entry.stable_offset < known.start_offset):
        detail = f"{said}: last stable offset {entry.stable_offset}, by the log {stable}"
        yield Problem("txnindex-stable-offset", position, entry.last_offset, detail)
