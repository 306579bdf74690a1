"""Compares the indexes of a segment with its `.log` file.

Each check gets the batches in the order of the log, and the damage that `log_inspection.py` has found, as entries for
damaged bytes cannot be checked. `index_inspection.py` checks an index by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.control import ControlType, decode_control_type
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.walking import FoundBatch
from minibroker.storage.files import File
from minibroker.storage.inspection.index_inspection import (
    AnyEntry,
    OffsetEntry,
    TimeEntry,
    TransactionEntry,
    iterate_undamaged_entries,
)
from minibroker.storage.inspection.log_inspection import DamagedBytes

# A control batch contains one small record. A larger batch is not read.
MAX_CONTROL_BATCH_BYTES = 1 << 16


class IndexCheck(Protocol):
    """The check of an index: `check_batch` and `skip_entries_of_damage` in the log's order, then what remains."""

    def check_batch(self, batch: FoundBatch) -> Iterable[DamagedBytes]:
        """Yield what is wrong with the entries up to this batch of the log."""

    def skip_entries_of_damage(self, damage: DamagedBytes) -> None:
        """Do not check the entries of damaged bytes of the log."""

    def check_remaining_entries(self, size_bytes: int) -> Iterable[DamagedBytes]:
        """Yield what is wrong with the entries behind all batches of a log of `size_bytes`."""


class _IndexEntries(Generic[AnyEntry]):
    """The sound entries of an index. `next` is the next one, None at the end."""

    def __init__(self, path: str, entries: Iterable[object], kind: type[AnyEntry]) -> None:
        self.path = path
        self._entries: Iterator[AnyEntry] = iterate_undamaged_entries(entries, kind)
        self.next: AnyEntry | None = next(self._entries, None)

    def remove_next_entry(self) -> AnyEntry:
        """Return the next entry, and move on to the one after it."""
        entry = self.next
        assert entry is not None
        self.next = next(self._entries, None)
        return entry

    def make_mismatch_damage(self, entry: AnyEntry, offset: int, expected: str, found: str) -> DamagedBytes:
        """Return the damage of an entry that does not match the log."""
        return DamagedBytes(self.path, entry.position, 0, offset, expected, found)


class OffsetIndexCheck(_IndexEntries[OffsetEntry]):
    """Each entry names the last offset of the batch at its position."""

    def __init__(self, path: str, entries: Iterable[object]) -> None:
        super().__init__(path, entries, OffsetEntry)

    def check_batch(self, batch: FoundBatch) -> Iterator[DamagedBytes]:
        """Yield the entries that have no batch, or not this batch's last offset."""
        while self.next is not None and self.next.log_position <= batch.position:
            entry = self.remove_next_entry()
            if entry.log_position < batch.position:
                yield self._make_no_batch_damage(entry)
            elif batch.is_credible and entry.offset != batch.header.last_offset:
                expected = f"offset {batch.header.last_offset}, the last of the batch at {batch.position}"
                yield self.make_mismatch_damage(entry, batch.header.base_offset, expected, f"{entry.offset}")

    def skip_entries_of_damage(self, damage: DamagedBytes) -> None:
        """Skip the entries that point into damaged bytes of the log."""
        end = damage.position + damage.size_bytes
        while self.next is not None and damage.position <= self.next.log_position < end:
            self.remove_next_entry()

    def check_remaining_entries(self, size_bytes: int) -> Iterator[DamagedBytes]:
        """Yield the entries behind the log's end."""
        while self.next is not None:
            yield self._make_no_batch_damage(self.remove_next_entry())

    def _make_no_batch_damage(self, entry: OffsetEntry) -> DamagedBytes:
        """Return the damage of an entry where no batch begins."""
        return self.make_mismatch_damage(
            entry, entry.offset, "the position at which a batch begins", f"{entry.log_position}"
        )


class TimeIndexCheck(_IndexEntries[TimeEntry]):
    """Each entry names the largest timestamp so far and the last offset of the first batch that has it."""

    def __init__(self, path: str, entries: Iterable[object]) -> None:
        super().__init__(path, entries, TimeEntry)
        self._largest = -1
        self._is_certain = True

    def check_batch(self, batch: FoundBatch) -> Iterator[DamagedBytes]:
        """Yield the entries that have not this batch's last offset, or not the largest timestamp so far."""
        header = batch.header
        if not batch.is_credible:
            self._is_certain = False
            return
        while self.next is not None and self.next.offset <= header.last_offset:
            entry = self.remove_next_entry()
            largest = max(self._largest, header.max_timestamp)
            if entry.offset != header.last_offset:
                if self._is_certain:
                    yield self.make_mismatch_damage(
                        entry, entry.offset, "the last offset of a batch", f"{entry.offset}"
                    )
            elif entry.timestamp != header.max_timestamp or (self._is_certain and entry.timestamp != largest):
                expected = f"timestamp {largest}, the largest up to offset {entry.offset}"
                yield self.make_mismatch_damage(entry, entry.offset, expected, f"{entry.timestamp}")
        self._largest = max(self._largest, header.max_timestamp)

    def skip_entries_of_damage(self, damage: DamagedBytes) -> None:
        """Check less from here on: damaged bytes may have had a larger timestamp."""
        self._is_certain = False

    def check_remaining_entries(self, size_bytes: int) -> Iterator[DamagedBytes]:
        """Yield the entries with offsets behind the log's end."""
        while self.next is not None and self._is_certain:
            entry = self.remove_next_entry()
            if size_bytes:
                yield self.make_mismatch_damage(entry, entry.offset, "an offset that is in the log", f"{entry.offset}")


class TransactionIndexCheck(_IndexEntries[TransactionEntry]):
    """Each abort marker has its entry. Compaction may have left an entry without a marker."""

    def __init__(self, log: File, path: str, entries: Iterable[object]) -> None:
        super().__init__(path, entries, TransactionEntry)
        self._log = log

    def check_batch(self, batch: FoundBatch) -> Iterator[DamagedBytes]:
        """Yield the entry, or its lack, if it does not match the marker in this batch."""
        header = batch.header
        if not batch.is_credible or not header.is_control or not self._is_abort(batch):
            return
        while self.next is not None and self.next.last_offset < header.base_offset:
            self.remove_next_entry()
        entry = self.next
        if entry is None or entry.last_offset != header.base_offset or entry.producer_id != header.producer_id:
            expected = f"the transaction of producer {header.producer_id} that offset {header.base_offset} aborts"
            position = 0 if entry is None else entry.position
            found_text = "none" if entry is None else f"producer {entry.producer_id}, offset {entry.last_offset}"
            yield DamagedBytes(self.path, position, 0, header.base_offset, expected, found_text)

    def _is_abort(self, batch: FoundBatch) -> bool:
        """Return whether a control batch aborts a transaction; False if it cannot be read."""
        if batch.header.size_bytes > MAX_CONTROL_BATCH_BYTES:
            return False
        try:
            records = iterate_records_of_batch(self._log.read(batch.position, batch.header.size_bytes))
            return any(decode_control_type(record.key) == ControlType.ABORT for record in records)
        except KafkaError:
            return False  # reported where the records are read

    def skip_entries_of_damage(self, damage: DamagedBytes) -> None:
        """Do nothing: each marker is checked by itself."""

    def check_remaining_entries(self, size_bytes: int) -> Iterator[DamagedBytes]:
        """Yield nothing: compaction may have removed the markers."""
        return iter(())
