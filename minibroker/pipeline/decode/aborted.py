"""Which transactions were aborted, for readers of committed records.

Where that is known from (a `.txnindex` file, an answer to Fetch) is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


class AbortedRanges:
    """Aborted transactions of one partition: (producer id, first offset, last offset), the last being the marker's.

    As Fetch answers do not tell where a transaction ends, the last offset may be None: it then ends at the producer's
    next marker, which `end` is told of.
    """

    def __init__(self, ranges: Iterable[tuple[int, int, int | None]] = ()) -> None:
        self._by_producer: dict[int, list[tuple[int, int | None]]] = {}
        for producer_id, first_offset, last_offset in ranges:
            self.add(producer_id, first_offset, last_offset)

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, first_offset: int, last_offset: int | None = None) -> None:
        """Note one more; one that is known already changes nothing."""
        known = self._by_producer.setdefault(producer_id, [])
        if all(first != first_offset for first, _ in known):
            known.append((first_offset, last_offset))

    def end(self, producer_id: int, offset: int) -> None:
        """A marker of the producer lies at `offset`: what is open there, ends there."""
        known = self._by_producer.get(producer_id)
        if known:
            self._by_producer[producer_id] = [
                (first, offset if last is None and first <= offset else last) for first, last in known
            ]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether what the producer wrote at `offset` within a transaction was aborted."""
        return any(
            first <= offset and (last is None or offset <= last)
            for first, last in self._by_producer.get(producer_id, ())
        )

    def aborted(self, producer_ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """As `is_aborted`, of many at once."""
        found = np.zeros(len(offsets), np.bool_)
        for producer_id, ranges in self._by_producer.items():
            of_producer = producer_ids == producer_id
            if of_producer.any():
                for first, last in ranges:
                    found |= of_producer & (offsets >= first) & (offsets <= (last if last is not None else _MAX))
        return found


_MAX = (1 << 63) - 1
