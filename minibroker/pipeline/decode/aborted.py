"""Aborted transactions, for readers of committed records.

Readers fill it from `.txnindex` files or from answers to Fetch.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from typing import Final

import numpy as np

from minibroker.pipeline.array_types import Bools, Int64s

_OPEN: Final = (1 << 63) - 1  # the last offset of a transaction whose marker has not been read yet


class AbortedRanges:
    """Aborted transactions of one partition: (producer id, first offset, offset of the marker).

    Answers to Fetch do not have the marker's offset. It may be None: the transaction then ends at the producer's next
    marker, where a decoder calls `end`.
    """

    def __init__(self, ranges: Iterable[tuple[int, int, int | None]] = ()) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}  # (first, last), sorted, without overlaps
        for producer_id, first_offset, last_offset in ranges:
            self.add(producer_id, first_offset, last_offset)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, first_offset: int, last_offset: int | None = None) -> None:
        """Add a transaction, unless one with the same first offset is known."""
        known = self._by_producer.setdefault(producer_id, [])
        at = bisect_right(known, (first_offset, -1))
        if at == len(known) or known[at][0] != first_offset:
            insort(known, (first_offset, _OPEN if last_offset is None else last_offset))

    def end(self, producer_id: int, offset: int) -> None:
        """End the producer's open transaction at `offset`, where its marker is."""
        known = self._by_producer.get(producer_id, ())
        for index, (first, last) in enumerate(known):
            if last == _OPEN and first <= offset:
                self._by_producer[producer_id][index] = (first, offset)

    def has(self, producer_id: int, offset: int) -> bool:
        """Return whether a transactional record of this producer was aborted."""
        known = self._by_producer.get(producer_id, ())
        at = bisect_right(known, (offset, _OPEN)) - 1
        return at >= 0 and offset <= known[at][1]

    def are_aborted(self, producer_ids: Int64s, offsets: Int64s) -> Bools:
        """Return, for each producer and offset of a transactional record, whether it was aborted."""
        found = np.zeros(len(offsets), np.bool_)
        for producer_id in np.unique(producer_ids).tolist():
            known = self._by_producer.get(producer_id)
            if known:
                mine = np.flatnonzero(producer_ids == producer_id)
                bounds = np.array(known, np.int64)
                at = np.searchsorted(bounds[:, 0], offsets[mine], side="right") - 1
                found[mine] = (at >= 0) & (offsets[mine] <= bounds[at, 1])
        return found
