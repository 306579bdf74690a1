"""The state of a log's producers: sequences, epochs, their last batches, open transactions (KIP-98, 360, 890).

The state is a fold over the log. A snapshot file saves reading the log again.

    byte  size  field of a .snapshot file
       0     2  version                    1
       2     4  crc                        CRC-32C of all that follows this field
       6     4  number of entries
      10        entries of 46 bytes:
                8 producer id              2 producer epoch          4 last sequence         8 last offset
                4 offset delta             8 timestamp               4 coordinator epoch     8 first offset of the open
                  (last batch)               (last batch, largest)     (-1: none)              transaction (-1: none)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import MAX_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.producers.transaction_markers import TransactionMarker

SNAPSHOT_VERSION: Final = 1
BATCHES_KEPT: Final = 5
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
FIRST_VERSION_WITH_OWN_EPOCHS: Final = 2

_SNAPSHOT_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_ENTRIES_POSITION: Final = _SNAPSHOT_HEAD.size + _COUNT.size

# (first sequence, last sequence, last offset, offset delta, largest timestamp) of an appended batch
AppendedBatch = tuple[int, int, int, int, int]


class CorruptSnapshot(ValueError):
    """A damaged `.snapshot` file. The message says what is wrong."""


class ProducerEntry:
    """The state of one producer id. `batches` are the last ones of `epoch`, five at most, the newest last."""

    __slots__ = ("epoch", "coordinator_epoch", "last_timestamp", "transaction_first_offset", "batches")

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = NO_OFFSET
        self.batches: list[AppendedBatch] = []


class ProducerStates:
    """The producers of one log, by producer id, after the batches below `end_offset`.

    `open_transactions` has the first offset of each open transaction, by producer id, in the order of the offsets.
    """

    __slots__ = ("end_offset", "open_transactions", "_entries")

    def __init__(self) -> None:
        self.end_offset = 0
        self.open_transactions: dict[int, int] = {}
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def iterate_entries(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Return (producer id, entry) of each producer, in the order of their first batches."""
        return iter(self._entries.items())

    def list_producer_ids(self) -> array[int]:
        """Return the producer ids in the order of their first batches. 100,000 take a millisecond."""
        return array("q", self._entries)

    def find_producer_entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of a producer, None if it is unknown."""
        return self._entries.get(producer_id)

    def find_first_unstable_offset(self, offset: int) -> int:
        """Return the first offset of the oldest open transaction, or `offset` if there is none."""
        for first_offset in self.open_transactions.values():
            return first_offset
        return offset

    def find_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """Return the last stable offset of a log from `log_start_offset` to `log_end_offset`."""
        return max(self.find_first_unstable_offset(log_end_offset), log_start_offset)

    def check_epoch_and_sequence(self, header: BatchHeader) -> tuple[int, int] | None:
        """Check a batch. Return None to append it, or (first offset, largest timestamp) of the batch that it repeats.

        It has a producer id; what it repeats is one of the producer's last five. Raises `KafkaError`:
        INVALID_PRODUCER_EPOCH for an old epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a wrong sequence, INVALID_TXN_STATE
        for a batch outside of the producer's open transaction.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch == NO_EPOCH:
            return None  # unknown, or forgotten with its records: any sequence may begin
        first = header.base_sequence
        if header.producer_epoch != entry.epoch:
            _check_new_epoch_sequence(header, entry)
            _check_batch_in_transaction(header, entry)
            return None
        batches = entry.batches
        expected = (batches[-1][1] + 1) & MAX_SEQUENCE if batches else 0
        if first == expected:
            if entry.transaction_first_offset != NO_OFFSET:
                _check_batch_in_transaction(header, entry)
            return None
        last = header.last_sequence
        for batch in batches:
            if batch[0] == first and batch[1] == last:
                return batch[2] - batch[3], batch[4]
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {first} (incoming seq. number), "
            f"{batches[-1][1] if batches else -1} (current end sequence number); expected {expected}, "
            f"last five batches: {_format_sequences(batches)}",
        )

    def check_first_sequence(self, header: BatchHeader) -> None:
        """Raise `KafkaError` OUT_OF_ORDER_SEQUENCE_NUMBER for an unknown producer's batch whose sequence is not 0.

        This is for producers with a new epoch for each transaction. A forgotten producer has a new epoch and begins at
        0, so another sequence means that an earlier batch was refused and will be sent again (KIP-890).
        """
        entry = self._entries.get(header.producer_id)
        if header.base_sequence != 0 and (entry is None or not entry.batches):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for producer {header.producer_id}: {header.base_sequence} (incoming seq. "
                "number); expected 0, no batch of it is known",
            )

    def is_in_transaction(self, header: BatchHeader) -> bool:
        """Return whether the producer has an open transaction in this log, under the batch's epoch."""
        entry = self._entries.get(header.producer_id)
        return (
            entry is not None and entry.transaction_first_offset != NO_OFFSET and entry.epoch == header.producer_epoch
        )

    def check_producer_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise `KafkaError` INVALID_PRODUCER_EPOCH for an old epoch. This is for requests without sequences."""
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _make_past_epoch_error(producer_id, epoch, entry)

    def check_marker_may_end_transaction(
        self, header: BatchHeader, marker: TransactionMarker, transaction_version: int = 0
    ) -> None:
        """Check that this marker may end the producer's transaction. A marker without an open transaction passes.

        Raises `KafkaError`: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. From transaction version 2 on, each
        transaction ends with a new epoch, by which a late marker is recognised (KIP-890).
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        is_late = epoch < entry.epoch
        if transaction_version >= FIRST_VERSION_WITH_OWN_EPOCHS and epoch == entry.epoch:
            is_late = entry.transaction_first_offset != NO_OFFSET  # otherwise it repeats the last marker
        if is_late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {epoch}, and the last seen epoch is {entry.epoch} "
                f"(transaction version {transaction_version})",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {header.producer_id}: {marker.coordinator_epoch} (zombie), "
                f"{entry.coordinator_epoch} (current)",
            )

    def apply_appended_batch(self, header: BatchHeader, first_offset: int) -> None:
        """Update the state by a data batch that was appended at `first_offset`."""
        entry = self._find_or_make_entry(header)
        entry.last_timestamp = timestamp = header.max_timestamp
        delta = header.last_offset_delta
        if header.attributes & TRANSACTIONAL_BIT and entry.transaction_first_offset == NO_OFFSET:
            entry.transaction_first_offset = self.open_transactions[header.producer_id] = first_offset
        first = header.base_sequence
        if first < 0:
            return  # a coordinator's batch, which has a transaction, but no sequences
        batches = entry.batches
        batches.append((first, (first + delta) & MAX_SEQUENCE, first_offset + delta, delta, timestamp))
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def end_transaction(
        self, header: BatchHeader, offset: int, marker: TransactionMarker | None
    ) -> AbortedTransaction | None:
        """Update the state by a control batch that was appended at `offset`. Return the transaction it aborts, or None.

        `marker` is its content, None if compaction has emptied it.
        """
        entry = self._find_or_make_entry(header)
        entry.last_timestamp = header.max_timestamp
        first_offset = self.open_transactions.pop(header.producer_id, NO_OFFSET)
        entry.transaction_first_offset = NO_OFFSET
        if marker is None:
            return None
        entry.coordinator_epoch = marker.coordinator_epoch
        if marker.committed or first_offset == NO_OFFSET:
            return None
        return AbortedTransaction(header.producer_id, first_offset, offset, self.find_first_unstable_offset(offset + 1))

    def abort_hanging_transaction(self, producer_id: int, offset: int) -> AbortedTransaction:
        """End a producer's open transaction at `offset` as if aborted, as its outcome is unknown.

        Raises KeyError if none is open.
        """
        first_offset = self.open_transactions.pop(producer_id)
        self._entries[producer_id].transaction_first_offset = NO_OFFSET
        return AbortedTransaction(producer_id, first_offset, offset, self.find_first_unstable_offset(offset + 1))

    def _find_or_make_entry(self, header: BatchHeader) -> ProducerEntry:
        """Return the entry of the batch's producer, with the batch's epoch."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry()
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers silent for `expiration_ms` (producer.id.expiration.ms), unless in a transaction."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_first_offset == NO_OFFSET and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]

    def clear_all_producers(self, end_offset: int) -> None:
        """Remove all state, and begin at `end_offset`."""
        self._entries.clear()
        self.open_transactions.clear()
        self.end_offset = end_offset

    def encode_snapshot(self) -> bytes:
        """Return the content of a `.snapshot` file, which has only the newest of the last five batches."""
        body = b"".join(
            (_COUNT.pack(len(self._entries)), *(_encode_producer_entry(*item) for item in self._entries.items()))
        )
        return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    def load_snapshot(self, data: bytes, end_offset: int) -> None:
        """Load the state from a `.snapshot` file that was taken at `end_offset`.

        Raises `CorruptSnapshot` for a damaged file, and then keeps its state.
        """
        entries = _decode_snapshot(data)
        self._entries = entries
        self.open_transactions = _find_open_transactions(entries)
        self.end_offset = end_offset


def _find_open_transactions(entries: dict[int, ProducerEntry]) -> dict[int, int]:
    """Return the first offset of each open transaction by producer id, the oldest first."""
    found = [(entry.transaction_first_offset, producer_id) for producer_id, entry in entries.items()]
    return {producer_id: offset for offset, producer_id in sorted(found) if offset != NO_OFFSET}


def _format_sequences(batches: Sequence[AppendedBatch]) -> str:
    return ", ".join(f"{first}-{last}" for first, last, *_ in batches) or "none"


def _check_batch_in_transaction(header: BatchHeader, entry: ProducerEntry) -> None:
    """Raise `KafkaError` INVALID_TXN_STATE for a non-transactional batch during a transaction."""
    if entry.transaction_first_offset != NO_OFFSET and not header.attributes & TRANSACTIONAL_BIT:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {header.producer_id}"
        )


def _make_past_epoch_error(producer_id: int, epoch: int, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {producer_id} is {epoch}, which is smaller than the last seen epoch {entry.epoch}",
    )


def _check_new_epoch_sequence(header: BatchHeader, entry: ProducerEntry) -> None:
    """Raise `KafkaError` for an older epoch, or a newer one that does not begin with sequence 0."""
    if header.producer_epoch < entry.epoch:
        raise _make_past_epoch_error(header.producer_id, header.producer_epoch, entry)
    if header.base_sequence != 0:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Invalid sequence number for new epoch of producer {header.producer_id}: {header.producer_epoch} "
            f"(request epoch), {header.base_sequence} (seq. number), {entry.epoch} (current producer epoch); "
            f"expected 0, last five batches: {_format_sequences(entry.batches)}",
        )


def _encode_producer_entry(producer_id: int, entry: ProducerEntry) -> bytes:
    _, last_sequence, last_offset, delta, _ = entry.batches[-1] if entry.batches else (-1, -1, NO_OFFSET, 0, -1)
    return SNAPSHOT_ENTRY.pack(
        producer_id,
        entry.epoch,
        last_sequence,
        last_offset,
        delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _decode_snapshot(data: bytes) -> dict[int, ProducerEntry]:
    """Return the entries of a `.snapshot` file by producer id. Raises CorruptSnapshot."""
    if len(data) < _ENTRIES_POSITION:
        raise CorruptSnapshot(f"it has {len(data)} bytes, fewer than its head")
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"its version is {version}, not {SNAPSHOT_VERSION}")
    computed = crc32c(memoryview(data)[_SNAPSHOT_HEAD.size :])
    if crc != computed:
        raise CorruptSnapshot(f"its checksum is {crc}, computed {computed}")
    (count,) = _COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    if count * SNAPSHOT_ENTRY.size != len(data) - _ENTRIES_POSITION:
        raise CorruptSnapshot(f"it announces {count} entries in {len(data)} bytes")
    entries = SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_ENTRIES_POSITION:])
    return {fields[0]: _decode_producer_entry(*fields[1:]) for fields in entries}


def _decode_producer_entry(
    epoch: int, last_sequence: int, last_offset: int, delta: int, timestamp: int, coordinator_epoch: int, first: int
) -> ProducerEntry:
    entry = ProducerEntry(epoch)
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = first
    if last_offset >= 0:
        entry.batches.append(((last_sequence - delta) & MAX_SEQUENCE, last_sequence, last_offset, delta, timestamp))
    return entry
