"""The aborted transactions of a log, which readers with read_committed skip, and their `.txnindex` files.

A segment's file lists the transactions whose abort markers are in the segment. All files are read when the log is
opened. A missing file or entry could only be noticed by reading all markers of the log, so
`aborted-transactions-checkpoint` has the number of entries of each segment.

    byte  size  field of an entry, 34 bytes
       0     2  version                  0
       2     8  producer id
      10     8  first offset of the transaction
      18     8  last offset, that of the abort marker
      26     8  last stable offset when it was aborted
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from struct import Struct

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    MalformedCheckpoint,
    format_aborted_counts,
    parse_aborted_counts,
)
from minibroker.storage.files import Disk
from minibroker.storage.names import OFFSET_DIGITS, TRANSACTION_INDEX_SUFFIX
from minibroker.storage.segment_indexes import CorruptIndex

logger = logging.getLogger(__name__)

TRANSACTION_INDEX_VERSION = 0
TRANSACTION_ENTRY = Struct(">hqqqq")

EntryCounts = dict[int, tuple[int, int]]  # by base offset: (number of aborted transactions, CRC-32C of their entries)


class AbortedTransaction(NamedTuple):
    """An aborted transaction. Readers with read_committed skip its records."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the content of a `.txnindex` file."""
    return b"".join(TRANSACTION_ENTRY.pack(TRANSACTION_INDEX_VERSION, *transaction) for transaction in transactions)


def decode_aborted_transactions(data: bytes) -> list[AbortedTransaction]:
    """Parse a `.txnindex` file. Raises `CorruptIndex`."""
    if len(data) % TRANSACTION_ENTRY.size:
        raise CorruptIndex(f"its size is {len(data)}, not a multiple of {TRANSACTION_ENTRY.size}")
    found = []
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(data):
        if version != TRANSACTION_INDEX_VERSION or min(fields) < 0 or fields[1] > fields[2]:
            raise CorruptIndex(f"an invalid entry of version {version}: {fields}")
        found.append(AbortedTransaction(*fields))
    return found


class AbortedTransactions:
    """Aborted transactions in the order of their markers. All methods that write raise `OSError`."""

    __slots__ = ("_behind", "_counts", "_disk", "_known", "_last_offsets", "_unsynced", "_written")

    def __init__(
        self, disk: Disk, transactions: Iterable[AbortedTransaction] = (), counts: Mapping[int, tuple[int, int]] = {}
    ) -> None:
        """Take the transactions of all index files, and the counts of the checkpoint."""
        self._disk = disk
        self._counts: EntryCounts = dict(counts)
        self._written: EntryCounts = dict(counts)
        self._known = list(transactions)
        self._last_offsets = [transaction.last_offset for transaction in self._known]
        self._unsynced: set[str] = set()
        self._behind: str | None = None  # the path, without suffix, of the segment whose file lacks the last entries

    def list_transactions_between(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions that may have records from `start_offset` on and below `end_offset`."""
        if not self._known:
            return ()
        found = []
        for transaction in self._known[bisect_left(self._last_offsets, start_offset) :]:
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                break  # all that ended later also began later
        return found

    def add_transaction(self, segment_path: str, transaction: AbortedTransaction) -> None:
        """Add a transaction whose marker was appended to the active segment, which has this path (without suffix).

        An OSError is only logged: recovery finds the marker in the log, and `write_missing_entries` writes the entry
        again.
        """
        self._known.append(transaction)
        self._last_offsets.append(transaction.last_offset)
        self._behind = segment_path
        try:
            self.write_missing_entries()
        except OSError as error:
            logger.warning("%s%s cannot be written to: %s", segment_path, TRANSACTION_INDEX_SUFFIX, error)

    def replace_transactions_of_newest_segment(
        self, segment_path: str, transactions: Sequence[AbortedTransaction]
    ) -> None:
        """Set the transactions of the newest segment, as recovery has found them, and rewrite its file."""
        path = segment_path + TRANSACTION_INDEX_SUFFIX
        self._disk.remove(path)
        for transaction in transactions:
            self._known.append(transaction)
            self._last_offsets.append(transaction.last_offset)
        if transactions:
            self._behind = segment_path
            self.write_missing_entries()
        self.update_entry_count(_parse_base_offset(segment_path))

    def write_missing_entries(self) -> None:
        """Write entries that could not be written. Called before a flush, and before a new segment begins."""
        if self._behind is None:
            return
        file = self._disk.open(self._behind + TRANSACTION_INDEX_SUFFIX, create=True)
        try:
            written = file.size_bytes() // TRANSACTION_ENTRY.size  # a torn entry is written again
            first = bisect_left(self._last_offsets, _parse_base_offset(self._behind)) + written
            try:
                file.write(written * TRANSACTION_ENTRY.size, encode_aborted_transactions(self._known[first:]))
            except OSError:
                with suppress(OSError):
                    file.truncate(written * TRANSACTION_ENTRY.size)  # others may read the file
                raise
        finally:
            file.close()
        self._unsynced.add(file.path)
        self._behind = None

    def update_entry_count(self, base_offset: int) -> None:
        """Update the number of entries of the newest segment's index, when it ends or the log is closed."""
        first = bisect_left(self._last_offsets, base_offset)
        data = encode_aborted_transactions(self._known[first:])
        if data:
            self._counts[base_offset] = len(data) // TRANSACTION_ENTRY.size, crc32c(data)
        else:
            self._counts.pop(base_offset, None)

    def write_entry_counts(self, directory: str, base_offsets: Iterable[int]) -> None:
        """Write the checkpoint of the numbers of index entries for the segments with these base offsets, if changed."""
        self._counts = {offset: self._counts[offset] for offset in base_offsets if offset in self._counts}
        if self._counts != self._written:
            path = f"{directory}/{ABORTED_TRANSACTIONS_CHECKPOINT}"
            self._disk.write_whole(path, format_aborted_counts(self._counts), sync=False)
            self._written = dict(self._counts)

    def replace_transactions_between(
        self, start_offset: int, end_offset: int, transactions: Sequence[AbortedTransaction]
    ) -> None:
        """Replace the transactions whose markers lie from `start_offset` on and below `end_offset`.

        The new ones are what compaction has kept. It has written their file.
        """
        changed = slice(bisect_left(self._last_offsets, start_offset), bisect_left(self._last_offsets, end_offset))
        self._known[changed] = transactions
        self._last_offsets[changed] = [transaction.last_offset for transaction in transactions]
        self._unsynced = {path for path in self._unsynced if not start_offset <= _parse_base_offset(path) < end_offset}
        for base_offset in [offset for offset in self._counts if start_offset <= offset < end_offset]:
            del self._counts[base_offset]
        if transactions:
            data = encode_aborted_transactions(transactions)
            self._counts[start_offset] = len(transactions), crc32c(data)

    def list_unsynced_paths(self) -> list[str]:
        """Return the paths of the files that may not be synced."""
        return sorted(self._unsynced)

    def mark_synced(self) -> None:
        """Mark the files as synced. The caller syncs what `list_unsynced_paths` has returned."""
        self._unsynced.clear()

    def remove_transactions_before(self, offset: int) -> None:
        """Remove the transactions whose markers lie before `offset`, as their segments were deleted."""
        gone = bisect_left(self._last_offsets, offset)
        del self._known[:gone], self._last_offsets[:gone]
        self._unsynced = {path for path in self._unsynced if _parse_base_offset(path) >= offset}
        if self._behind is not None and _parse_base_offset(self._behind) < offset:
            self._behind = None

    def truncate_to(self, segment_path: str, end_offset: int) -> None:
        """Remove the transactions whose markers were truncated. The log now ends in the segment with this path."""
        kept = bisect_left(self._last_offsets, end_offset)
        if kept == len(self._known):
            return
        del self._known[kept:], self._last_offsets[kept:]
        of_segment = self._known[bisect_left(self._last_offsets, _parse_base_offset(segment_path)) :]
        path = segment_path + TRANSACTION_INDEX_SUFFIX
        self._behind = None
        last = _parse_base_offset(segment_path)
        self._unsynced = {path for path in self._unsynced if _parse_base_offset(path) <= last}
        if of_segment:
            self._disk.write_whole(path, encode_aborted_transactions(of_segment), sync=False)
            self._unsynced.add(path)
        else:
            self._disk.remove(path)
            self._unsynced.discard(path)


def read_entry_counts(disk: Disk, directory: str) -> EntryCounts:
    """Return the numbers of index entries in the checkpoint, none if it is malformed. Raises `OSError`."""
    path = f"{directory}/{ABORTED_TRANSACTIONS_CHECKPOINT}"
    try:
        return parse_aborted_counts(disk.read_whole(path))
    except MalformedCheckpoint as error:
        logger.warning("%s is malformed, and is rebuilt: %s", path, error)
        return {}


def read_aborted_transactions(
    disk: Disk, path: str, end_offset: int, count_and_crc: tuple[int, int] | None
) -> list[AbortedTransaction]:
    """Return the transactions of the segment with this path (without suffix), which ends at `end_offset`.

    `count_and_crc` are those of the first ones; others may follow. Raises `OSError`, and `CorruptIndex`, also for a
    missing file.
    """
    try:
        data = disk.read_whole(path + TRANSACTION_INDEX_SUFFIX)
    except FileNotFoundError:
        raise CorruptIndex("it is missing") from None
    if count_and_crc is not None:
        count, crc = count_and_crc
        if crc32c(data[: count * TRANSACTION_ENTRY.size]) != crc:
            raise CorruptIndex(f"it no longer has its {count} entries")
    transactions = decode_aborted_transactions(data)
    last_offsets = [transaction.last_offset for transaction in transactions]
    if last_offsets != sorted(set(last_offsets)):
        raise CorruptIndex("its entries do not increase")
    if transactions and not _parse_base_offset(path) <= last_offsets[0] <= last_offsets[-1] < end_offset:
        raise CorruptIndex("an entry belongs to a marker in another segment")
    return transactions


def _parse_base_offset(path: str) -> int:
    """Return a segment's base offset by the path of its transaction index, or by its path without suffix."""
    return int(path.rsplit("/", 1)[1][:OFFSET_DIGITS])
