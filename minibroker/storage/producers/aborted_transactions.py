"""The aborted transactions of one log, which readers of committed records skip, from its `.txnindex` files.

They are read when the log is opened; there is one file a segment, of the transactions whose abort markers lie in it.
Nothing in the log says that such a file is missing or has lost entries, but for its markers, which would all have to be
read: so `aborted-transactions-checkpoint` notes of each segment how many there are.

    byte  size  field of an entry, 34 bytes
       0     2  version                  0
       2     8  producer id
      10     8  first offset of the transaction
      18     8  last offset, that of the marker which aborted it
      26     8  last stable offset when it was aborted
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from minibroker.protocol.records.crc import crc32c
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    MalformedCheckpoint,
    aborted_counts_from_text,
    aborted_counts_text,
)
from minibroker.storage.files import Disk
from minibroker.storage.names import OFFSET_DIGITS, TRANSACTION_INDEX_SUFFIX
from minibroker.storage.segment_indexes import CorruptIndex

logger = logging.getLogger(__name__)

TRANSACTION_INDEX_VERSION = 0
TRANSACTION_ENTRY = Struct(">hqqqq")

Counts = dict[int, tuple[int, int]]  # by base offset: how many aborted transactions, and the CRC-32C of their entries


class AbortedTransaction(NamedTuple):
    """A transaction whose records no committed reader sees."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def transactions_bytes(transactions: Iterable[AbortedTransaction]) -> bytes:
    """The content of a `.txnindex` file."""
    return b"".join(TRANSACTION_ENTRY.pack(TRANSACTION_INDEX_VERSION, *transaction) for transaction in transactions)


def transactions_from_bytes(data: bytes) -> list[AbortedTransaction]:
    """The transactions in a `.txnindex` file. Raises `CorruptIndex`."""
    if len(data) % TRANSACTION_ENTRY.size:
        raise CorruptIndex(f"its size is {len(data)}, not a multiple of {TRANSACTION_ENTRY.size}")
    found = []
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(data):
        if version != TRANSACTION_INDEX_VERSION or min(fields) < 0 or fields[1] > fields[2]:
            raise CorruptIndex(f"an entry of version {version} that cannot be: {fields}")
        found.append(AbortedTransaction(*fields))
    return found


class AbortedTransactions:
    """Aborted transactions in the order of the markers that ended them. All methods that write raise `OSError`."""

    __slots__ = ("_behind", "_counts", "_disk", "_known", "_last_offsets", "_unsynced", "_written")

    def __init__(
        self, disk: Disk, transactions: Iterable[AbortedTransaction] = (), counts: Mapping[int, tuple[int, int]] = {}
    ) -> None:
        """`counts` are those that the checkpoint has."""
        self._disk = disk
        self._counts: Counts = dict(counts)
        self._written: Counts = dict(counts)
        self._known = list(transactions)
        self._last_offsets = [transaction.last_offset for transaction in self._known]
        self._unsynced: set[str] = set()
        self._behind: str | None = None  # the path of the segment whose file lacks the last entries

    def between(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions that may have records from `start_offset` on and below `end_offset`."""
        if not self._known:
            return ()
        found = []
        for transaction in self._known[bisect_left(self._last_offsets, start_offset) :]:
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break  # all that end later have begun later
        return found

    def add(self, segment_path: str, transaction: AbortedTransaction) -> None:
        """Note one whose marker has been appended to the segment being written to, with this path (without suffix).

        What the disk fails with is only logged: the marker is in the log, where recovery finds it, and `catch_up` tries
        again.
        """
        self._known.append(transaction)
        self._last_offsets.append(transaction.last_offset)
        self._behind = segment_path
        try:
            self.catch_up()
        except OSError as error:
            logger.warning("%s%s cannot be written to: %s", segment_path, TRANSACTION_INDEX_SUFFIX, error)

    def replace(self, segment_path: str, transactions: Sequence[AbortedTransaction]) -> None:
        """Put these, which were found in the newest segment so far, in place of what its file says."""
        path = segment_path + TRANSACTION_INDEX_SUFFIX
        self._disk.remove(path)
        for transaction in transactions:
            self._known.append(transaction)
            self._last_offsets.append(transaction.last_offset)
        if transactions:
            self._behind = segment_path
            self.catch_up()
        self.count(_base_offset(segment_path))

    def catch_up(self) -> None:
        """Write what could not be written: before the next segment begins, and before a flush."""
        if self._behind is None:
            return
        file = self._disk.open(self._behind + TRANSACTION_INDEX_SUFFIX, create=True)
        try:
            written = file.size_bytes() // TRANSACTION_ENTRY.size  # a torn entry is written again
            first = bisect_left(self._last_offsets, _base_offset(self._behind)) + written
            try:
                file.write(written * TRANSACTION_ENTRY.size, transactions_bytes(self._known[first:]))
            except OSError:
                with suppress(OSError):
                    file.truncate(written * TRANSACTION_ENTRY.size)  # somebody may read the file meanwhile
                raise
        finally:
            file.close()
        self._unsynced.add(file.path)
        self._behind = None

    def count(self, base_offset: int) -> None:
        """Note how many there are in the newest segment, as it ends, or the log is closed."""
        first = bisect_left(self._last_offsets, base_offset)
        data = transactions_bytes(self._known[first:])
        if data:
            self._counts[base_offset] = len(data) // TRANSACTION_ENTRY.size, crc32c(data)
        else:
            self._counts.pop(base_offset, None)

    def write_counts(self, directory: str, base_offsets: Iterable[int]) -> None:
        """Write the checkpoint for the log's segments, which have these base offsets, if it is no longer up to date."""
        self._counts = {offset: self._counts[offset] for offset in base_offsets if offset in self._counts}
        if self._counts != self._written:
            path = f"{directory}/{ABORTED_TRANSACTIONS_CHECKPOINT}"
            self._disk.write_whole(path, aborted_counts_text(self._counts), sync=False)
            self._written = dict(self._counts)

    def renew(self, start_offset: int, end_offset: int, transactions: Sequence[AbortedTransaction]) -> None:
        """Let these stand for all whose markers lie from `start_offset` on and before `end_offset`.

        They are what compaction has left there, and it has written the file.
        """
        changed = slice(bisect_left(self._last_offsets, start_offset), bisect_left(self._last_offsets, end_offset))
        self._known[changed] = transactions
        self._last_offsets[changed] = [transaction.last_offset for transaction in transactions]
        self._unsynced = {path for path in self._unsynced if not start_offset <= _base_offset(path) < end_offset}
        for base_offset in [offset for offset in self._counts if start_offset <= offset < end_offset]:
            del self._counts[base_offset]
        if transactions:
            data = transactions_bytes(transactions)
            self._counts[start_offset] = len(transactions), crc32c(data)

    def unsynced_paths(self) -> list[str]:
        """The paths of the files that may not be on the disk itself."""
        return sorted(self._unsynced)

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""
        self._unsynced.clear()

    def remove_before(self, offset: int) -> None:
        """Forget those whose markers lie before `offset`, as their segments are gone."""
        gone = bisect_left(self._last_offsets, offset)
        del self._known[:gone], self._last_offsets[:gone]
        self._unsynced = {path for path in self._unsynced if _base_offset(path) >= offset}
        if self._behind is not None and _base_offset(self._behind) < offset:
            self._behind = None

    def truncate(self, segment_path: str, end_offset: int) -> None:
        """Forget those whose markers are cut off: the log now ends there, in the segment with this path."""
        kept = bisect_left(self._last_offsets, end_offset)
        if kept == len(self._known):
            return
        del self._known[kept:], self._last_offsets[kept:]
        of_segment = self._known[bisect_left(self._last_offsets, _base_offset(segment_path)) :]
        path = segment_path + TRANSACTION_INDEX_SUFFIX
        self._behind = None
        last = _base_offset(segment_path)
        self._unsynced = {path for path in self._unsynced if _base_offset(path) <= last}
        if of_segment:
            self._disk.write_whole(path, transactions_bytes(of_segment), sync=False)
            self._unsynced.add(path)
        else:
            self._disk.remove(path)
            self._unsynced.discard(path)


def read_counts(disk: Disk, directory: str) -> Counts:
    """Return the counts of the checkpoint, or none if it is malformed. Raises `OSError`."""
    path = f"{directory}/{ABORTED_TRANSACTIONS_CHECKPOINT}"
    try:
        return aborted_counts_from_text(disk.read_whole(path))
    except MalformedCheckpoint as error:
        logger.warning("%s is malformed, and made anew: %s", path, error)
        return {}


def read_index(disk: Disk, path: str, end_offset: int, expected: tuple[int, int] | None) -> list[AbortedTransaction]:
    """The transactions in the file of a segment that ends at `end_offset`; its path is given without suffix.

    There may be more than were `expected`, as counted last. Raises `OSError`, and `CorruptIndex` also if it is missing.
    """
    try:
        data = disk.read_whole(path + TRANSACTION_INDEX_SUFFIX)
    except FileNotFoundError:
        raise CorruptIndex("it is missing") from None
    if expected is not None:
        count, crc = expected
        if crc32c(data[: count * TRANSACTION_ENTRY.size]) != crc:
            raise CorruptIndex(f"it does not have the {count} entries that it had")
    found = transactions_from_bytes(data)
    last_offsets = [transaction.last_offset for transaction in found]
    if last_offsets != sorted(set(last_offsets)):
        raise CorruptIndex("its entries do not increase")
    if found and not _base_offset(path) <= last_offsets[0] <= last_offsets[-1] < end_offset:
        raise CorruptIndex("an entry is about a marker in another segment")
    return found


def _base_offset(path: str) -> int:
    """The base offset of a segment, by the path of its transaction index, or of its files without suffix."""
    return int(path.rsplit("/", 1)[1][:OFFSET_DIGITS])
