"""Decides what compaction keeps of a batch: the latest record of each key, recent tombstones, and producer state.

The rules are Kafka's (Cleaner.cleanInto, MemoryRecords.filterTo). A batch keeps its base offset, its last offset and
its producer's sequence range, whichever records are removed. `rewriting.py` calls this; the protocol's `slicing.py`
finds the records in a batch.

Tombstones and transaction markers are kept until a delete horizon (KIP-534), so that consumers which have begun to read
see them. The first cleaning that keeps one writes the horizon into the batch's base timestamp, and sets bit 6 of the
attributes. It also changes the timestamp deltas, so that the records' timestamps stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from minibroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME,
    MAGIC,
    MAX_RECORD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from minibroker.protocol.records.building import assemble_batch, assemble_batch_in_steps
from minibroker.protocol.records.compressing import compress_chunks
from minibroker.protocol.records.compression import compress
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.formats import iterate_records_in_any_format
from minibroker.protocol.records.message import read_message_header
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.payload import get_payload_if_small, get_uncompressed_payload, iterate_payload_chunks
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.restarting import add_to_timestamps
from minibroker.protocol.records.slicing import add_to_timestamp, iterate_record_slices
from minibroker.protocol.records.streaming import WHOLE_BYTES, check_record_sizes, stream_record_slices
from minibroker.protocol.records.varints import Bytes, convert_from_zigzag, wrap_to_64_bits
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.compaction.cleaned_transactions import CleanedTransactions
from minibroker.storage.compaction.offset_map import OffsetMap
from minibroker.storage.compaction.thread_pauses import do_not_pause, iterate_records_with_pauses

NO_TIMESTAMP = -1
NO_OFFSET = -1
NO_DELTA = -(1 << 63)

# The header, whose length and checksum may be out of date, and the bytes of the whole batch.
HeaderAndBytes = tuple[BatchHeader, Bytes]


class LastRecord(NamedTuple):
    """The offset of a producer's last record, -1 if only markers are left of it, and the producer's epoch."""

    offset: int
    epoch: int


class DeleteRetention(NamedTuple):
    """How long deleted records stay readable. `now_ms` is the time of the cleaning, in ms since 1970."""

    now_ms: int
    delete_retention_ms: int


class CleaningCounts:
    """Counters of the records and bytes that a cleaning has read and written."""

    __slots__ = ("read_records", "read_bytes", "written_records", "written_bytes", "keyless_records")

    def __init__(self) -> None:
        self.read_records = self.read_bytes = 0
        self.written_records = self.written_bytes = 0
        self.keyless_records = 0


class BatchFilter:
    """One pass over the batches of a log, oldest first. `end_offset` is the end of the part to clean.

    Messages of formats 0 and 1 have no field for a delete horizon. As in Kafka, `old_tombstones_stay` says for a
    whole segment whether their tombstones are kept. If `format_version`, the log's, is 2, kept messages become batches
    of format 2, as in Kafka 4. If it is older, they keep their format, as in the Kafka of that time. With `elides`,
    batches are written without the attributes of records. `record_bytes` is the largest that may be decompressed.
    `pause_if_due` is called now and then.
    """

    def __init__(
        self,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        end_offset: int,
        retention: DeleteRetention,
        format_version: int = MAGIC,
        *,
        elides: bool = False,
        record_bytes: int = MAX_RECORD_BYTES,
        pause_if_due: Callable[[], None] = do_not_pause,
    ) -> None:
        self._keys = keys
        self._pause_if_due = pause_if_due
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = retention.now_ms
        self._horizon_ms = retention.now_ms + retention.delete_retention_ms
        self.counts = CleaningCounts()
        self.old_tombstones_stay = True
        self._elides = elides
        self._record_bytes = record_bytes
        self._converts = format_version == MAGIC

    def filter_batch(self, header: BatchHeader, batch: bytes) -> HeaderAndBytes | None:
        """Return what to write in place of the batch: itself, a smaller one, one without records, or None.

        Raises `KafkaError` if the records cannot be read.
        """
        if header.magic < MAGIC:
            return self._filter_messages(header, batch)
        if header.attributes & CONTROL_BIT:
            kept = self._filter_marker(header, batch)
        elif header.attributes & TRANSACTIONAL_BIT and self._transactions.is_data_batch_aborted(header):
            kept = None
        else:
            kept = self._filter_data(header, batch)
        if kept is None and self._keeps_empty_batch(header):
            kept = _make_empty_batch(header)
        if kept is not None and self._elides:
            kept = _elide_attributes(*kept)
        counts = self.counts
        counts.read_bytes += len(batch)
        counts.read_records += header.record_count
        if kept is not None:
            counts.written_bytes += len(kept[1])
            counts.written_records += kept[0].record_count
        return kept

    def _filter_messages(self, header: BatchHeader, message: bytes) -> HeaderAndBytes | None:
        """Return what is kept of an old message or wrapper, None for nothing: these formats have no producer state."""
        records = list(iterate_records_in_any_format(message))
        kept = [record for record in records if self._keeps_record(record)]
        counts = self.counts
        counts.read_bytes += len(message)
        counts.read_records += len(records)
        if not kept:
            return None
        if self._converts:
            converted = self._convert_to_format_2(header, kept)
        else:
            data = message if len(kept) == len(records) else _rebuild_wrapper_of_kept(header, kept)
            converted = read_message_header(data), data
        counts.written_bytes += len(converted[1])
        counts.written_records += len(kept)
        return converted

    def _convert_to_format_2(self, old_header: BatchHeader, kept_records: list[Record]) -> HeaderAndBytes:
        """Return messages that are kept as a batch of format 2; tombstones give it a delete horizon."""
        data = bytes(
            build_records_in_format(
                kept_records, MAGIC, compression=old_header.compression, timestamp_type=old_header.timestamp_type
            )
        )
        header = read_header(data)
        if (
            all(record.value is not None for record in kept_records)
            or old_header.last_offset > self._keys.latest_offset
        ):
            return header, data
        payload = bytes(get_uncompressed_payload(data, 0, header))
        return self._rebuild_with_delete_horizon(
            header, _KeptRecords(payload, len(kept_records), _find_largest_delta(header, payload))
        )

    def _keeps_record(self, record: Record) -> bool:
        """Return whether to keep a record of format 0 or 1: the latest of its key, unless an old tombstone."""
        if record.offset > self._keys.latest_offset:
            return True
        if record.key is None:
            self.counts.keyless_records += 1
            return False
        if record.value is None and not self.old_tombstones_stay:
            return False
        return self._keys.find_offset_of_key(record.key) <= record.offset

    def _filter_marker(self, header: BatchHeader, batch: bytes) -> HeaderAndBytes | None:
        """Return what to write in place of a control batch, None for nothing."""
        ends_nothing = self._transactions.is_marker_removable(header, batch)
        if not header.record_count or ends_nothing and self._is_past_delete_horizon(header):
            return None
        if ends_nothing and not header.attributes & DELETE_HORIZON_BIT:
            payload = bytes(get_uncompressed_payload(batch, 0, header))
            return self._rebuild_with_delete_horizon(
                header, _KeptRecords(payload, header.record_count, _find_largest_delta(header, payload))
            )
        return header, batch

    def _filter_data(self, header: BatchHeader, batch: bytes) -> HeaderAndBytes | None:
        """Return a batch with the records that are kept, None if there are none."""
        if not header.record_count:
            return None
        run_all_steps(check_record_sizes(batch, header, self._record_bytes))
        payload = get_payload_if_small(batch, header, WHOLE_BYTES)
        if payload is None:
            return self._filter_data_in_pieces(header, batch)
        kept = self._select_records_to_keep(header, payload)
        if not kept.record_count:
            return None
        # If only a part of the keys is known, a later cleaning may remove older values of a tombstone's key. The
        # horizon must begin with that cleaning.
        all_known = header.last_offset <= self._keys.latest_offset
        if kept.has_tombstone and all_known and not header.attributes & DELETE_HORIZON_BIT:
            return self._rebuild_with_delete_horizon(header, kept)
        return (header, batch) if kept.record_count == header.record_count else _rebuild_batch_of_kept(header, kept)

    def _filter_data_in_pieces(self, header: BatchHeader, batch: bytes) -> HeaderAndBytes | None:
        """Filter a batch as `_filter_data` does, in two passes, as its records are too large for memory."""
        stays = bytearray()
        largest_delta, has_tombstone = NO_DELTA, False
        horizon_passed = self._is_past_delete_horizon(header)
        for record in stream_record_slices(batch, header):
            if record is None:
                continue
            _, _, raw_offset, raw_time, key, is_tombstone = record
            offset = header.base_offset + (raw_offset >> 1)
            if offset > self._keys.latest_offset or (
                key is not None
                and not (horizon_passed and is_tombstone)
                and self._keys.find_offset_of_key(key) <= offset
            ):
                stays.append(1)
                has_tombstone |= is_tombstone
                largest_delta = max(largest_delta, convert_from_zigzag(raw_time))
            else:
                stays.append(0)
                self.counts.keyless_records += key is None
        count = stays.count(1)
        if not count:
            return None
        all_known = header.last_offset <= self._keys.latest_offset
        by_ms, changed = 0, header
        if has_tombstone and all_known and not header.attributes & DELETE_HORIZON_BIT:
            by_ms = header.base_timestamp - self._horizon_ms
            changed = _set_horizon_bit(header, self._horizon_ms)
        elif count == header.record_count:
            return header, batch
        changed = _make_header_of_kept_records(changed, _KeptRecords(b"", count, largest_delta + by_ms))
        chunks = compress_chunks(
            header.compression, add_to_timestamps(iterate_payload_chunks(batch, 0, header), stays, by_ms), None
        )
        return changed, run_all_steps(assemble_batch_in_steps(changed, chunks))

    def _select_records_to_keep(self, header: BatchHeader, payload: bytes) -> _KeptRecords:
        """Return the latest record of each key, without tombstones behind their horizon."""
        get, latest_offset, base = self._keys.find_offset_of_key, self._keys.latest_offset, header.base_offset
        tombstones_stay = not self._is_past_delete_horizon(header)
        kept = bytearray()
        run_start = count = 0
        largest_delta, has_tombstone = NO_DELTA, False
        records = iterate_record_slices(payload, header.record_count)
        for start, end, raw_offset, raw_time, key, is_tombstone in iterate_records_with_pauses(
            records, self._pause_if_due
        ):
            offset = base + (raw_offset >> 1)
            if offset > latest_offset or (
                key is not None and (tombstones_stay or not is_tombstone) and get(key) <= offset
            ):
                count += 1
                has_tombstone |= is_tombstone
                delta = (raw_time >> 1) ^ -(raw_time & 1)
                if delta > largest_delta:
                    largest_delta = delta
                continue
            self.counts.keyless_records += key is None
            kept += payload[run_start:start]
            run_start = end
        return _KeptRecords(
            bytes(kept + payload[run_start:]) if run_start else payload, count, largest_delta, has_tombstone
        )

    def _rebuild_with_delete_horizon(self, header: BatchHeader, kept_records: _KeptRecords) -> HeaderAndBytes:
        """Return a batch of the kept records with a delete horizon for its tombstones or its marker."""
        by_ms = header.base_timestamp - self._horizon_ms
        moved = bytearray()
        for record in iterate_record_slices(kept_records.payload, kept_records.record_count):
            moved += add_to_timestamp(kept_records.payload, record, by_ms)
        changed = _set_horizon_bit(header, self._horizon_ms)
        return _rebuild_batch_of_kept(
            changed, _KeptRecords(bytes(moved), kept_records.record_count, kept_records.largest_delta + by_ms)
        )

    def _keeps_empty_batch(self, header: BatchHeader) -> bool:
        """Return whether the batch must be kept even without records.

        The last batch of a producer has its sequence and epoch. The last batch of the cleaned part shows where that
        ends.
        """
        if header.next_offset == self._end_offset:
            return True
        last = self._last_records.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last.offset == NO_OFFSET:
            return header.is_control and header.producer_epoch == last.epoch
        return header.last_offset == last.offset

    def _is_past_delete_horizon(self, header: BatchHeader) -> bool:
        """Return whether the batch has a delete horizon that is over."""
        return header.attributes & DELETE_HORIZON_BIT != 0 and header.base_timestamp <= self._now_ms


class _KeptRecords(NamedTuple):
    """The kept records: their bytes, their number, their largest timestamp delta, and whether one is a tombstone."""

    payload: bytes
    record_count: int
    largest_delta: int
    has_tombstone: bool = False


def _find_largest_delta(header: BatchHeader, payload: bytes) -> int:
    """Return the largest offset delta of the records."""
    return max(convert_from_zigzag(record[3]) for record in iterate_record_slices(payload, header.record_count))


def _rebuild_batch_of_kept(header: BatchHeader, kept_records: _KeptRecords) -> HeaderAndBytes:
    """Return the batch with only these records. Their deltas must fit its base offset and base timestamp."""
    changed = _make_header_of_kept_records(header, kept_records)
    return changed, assemble_batch(changed, compress(header.compression, kept_records.payload))


def _set_horizon_bit(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    return header._replace(base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON_BIT)


def _make_header_of_kept_records(header: BatchHeader, kept_records: _KeptRecords) -> BatchHeader:
    """Return the header of a batch that keeps only these records."""
    largest = header.max_timestamp
    if header.timestamp_type != LOG_APPEND_TIME:
        largest = wrap_to_64_bits(header.base_timestamp + kept_records.largest_delta)
    attributes = header.attributes & KNOWN_ATTRIBUTES
    return header._replace(attributes=attributes, max_timestamp=largest, record_count=kept_records.record_count)


def _rebuild_wrapper_of_kept(header: BatchHeader, kept_records: list[Record]) -> bytes:
    """Return a wrapper of the same format and codec with these records."""
    codec, timestamp_type = header.compression, header.timestamp_type
    return bytes(build_message_set(kept_records, header.magic, compression=codec, timestamp_type=timestamp_type))


def _elide_attributes(header: BatchHeader, data: Bytes) -> HeaderAndBytes:
    """Return the batch without the attributes of its records, or as it is if they are not all 0."""
    batch = elide_attributes(data, read_header(data))
    return (header, data) if batch is None else (read_header(batch), batch)


def _make_empty_batch(header: BatchHeader) -> HeaderAndBytes:
    """Return the batch without records, as Kafka writes it."""
    attributes = header.attributes & KNOWN_ATTRIBUTES & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    changed = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return changed, assemble_batch(changed, b"")
