"""The aborted transactions of one log, which readers of committed records skip, from its `.txnindex` files.

They are read when the log is opened. Which files there are, and the form of an entry, is told in `names.py` and
`transaction_index.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from minibroker.storage.files import Disk
from minibroker.storage.names import TRANSACTION_INDEX_SUFFIX
from minibroker.storage.sparse_index import CorruptIndex
from minibroker.storage.transaction_index import AbortedTransaction, transactions_bytes, transactions_from_bytes

logger = logging.getLogger(__name__)


class AbortedTransactions:
    """Aborted transactions in the order of the markers that ended them. All methods that write raise `OSError`."""

    __slots__ = ("_disk", "_known", "_last_offsets")

    def __init__(self, disk: Disk, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._disk = disk
        self._known = list(transactions)
        self._last_offsets = [transaction.last_offset for transaction in self._known]

    @classmethod
    def read(cls, disk: Disk, segment_paths: Iterable[str]) -> AbortedTransactions:
        """Those in the files of some segments, which are given without suffix, oldest first. Raises `OSError`."""
        found: list[AbortedTransaction] = []
        for path in segment_paths:
            file = path + TRANSACTION_INDEX_SUFFIX
            try:
                found += transactions_from_bytes(disk.read_whole(file))
            except CorruptIndex as error:
                logger.warning("%s is of no use, what it names is read as if it was committed: %s", file, error)
        return cls(disk, sorted(found, key=lambda transaction: transaction.last_offset))

    def between(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Those that may have records from `start_offset` on and below `end_offset`."""
        if not self._known:
            return ()
        found = []
        for transaction in self._known[bisect_left(self._last_offsets, start_offset) :]:
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break  # all that end later have begun later
        return found

    def truncate(self, segment_path: str, end_offset: int) -> None:
        """Forget those whose markers are cut off: the log now ends there, in the segment with this path."""
        kept = bisect_left(self._last_offsets, end_offset)
        if kept == len(self._known):
            return
        del self._known[kept:], self._last_offsets[kept:]
        base_offset = int(segment_path.rsplit("/", 1)[1])
        of_segment = [transaction for transaction in self._known if transaction.last_offset >= base_offset]
        path = segment_path + TRANSACTION_INDEX_SUFFIX
        if of_segment:
            self._disk.write_whole(path, transactions_bytes(of_segment), sync=False)
        else:
            self._disk.remove(path)
