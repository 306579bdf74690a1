"""The work of a cleaning outside the loop's thread: it maps the keys, then writes new segments.

It reads closed segments, and writes files that nobody else reads. `cleaning.py` calls it, and swaps the files in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.batch import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from minibroker.protocol.records.formats import iterate_records_in_any_format
from minibroker.protocol.records.streaming import check_record_sizes, stream_record_slices
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.compaction.batch_filter import (
    BatchFilter,
    CleaningCounts,
    DeleteRetention,
    HeaderAndBytes,
    LastRecord,
)
from minibroker.storage.compaction.batch_reading import (
    StoredBatch,
    UncleanableLog,
    iterate_stored_batches,
    make_unreadable_batch_error,
)
from minibroker.storage.compaction.cleaned_transactions import CleanedTransactions
from minibroker.storage.compaction.dirtiness import LogDirtiness
from minibroker.storage.compaction.offset_map import OffsetMap
from minibroker.storage.compaction.segment_writer import SegmentOverflow, SegmentWriter, remove_unfinished_cleaned_files
from minibroker.storage.compaction.thread_pauses import do_not_pause, iterate_records_with_pauses
from minibroker.storage.files import Disk, File
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    decode_aborted_transactions,
)
from minibroker.storage.segment import Segment
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET, CorruptIndex

# Kafka has no such bound. Here one step of the event loop renames the files of a group, which takes 50 us a segment.
MAX_GROUP_SEGMENTS = 100


class SourceSegment(NamedTuple):
    """A segment to clean. It is closed and does not change.

    `path` is the path of its files without suffix, `end_offset` the base offset of the next segment.
    """

    segment: Segment
    path: str
    base_offset: int
    end_offset: int
    size_bytes: int


class IndexSizes(NamedTuple):
    """The sizes of a segment's two indexes, in bytes."""

    offsets_bytes: int
    times_bytes: int


def group_segments(
    sources: Iterable[SourceSegment], index_sizes: Callable[[SourceSegment], IndexSizes], settings: LogSettings
) -> list[list[SourceSegment]]:
    """Group segments so that each group fits into one segment: no file grows beyond the settings' sizes.

    Its offsets also fit into the indexes. A segment that is too large by itself is a group of its own.
    """
    groups: list[list[SourceSegment]] = []
    size = offsets = times = 0
    for source in sources:
        indexes = index_sizes(source)
        size += source.size_bytes
        offsets += indexes.offsets_bytes
        times += indexes.times_bytes
        fits = size <= settings.segment_bytes and max(offsets, times) <= settings.segment_index_bytes
        if groups and fits and _fits_offset_index(groups[-1], source):
            groups[-1].append(source)
        else:
            groups.append([source])
            size, (offsets, times) = source.size_bytes, indexes
    return groups


def _fits_offset_index(group: list[SourceSegment], source: SourceSegment) -> bool:
    """Return whether a group with this segment has few enough segments, and offsets that fit its indexes."""
    if len(group) >= MAX_GROUP_SEGMENTS:
        return False
    return source.size_bytes == 0 or source.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET


class KeyMapper:
    """Puts the keys of batches into `keys`, oldest first: of records from `start_offset` on that were not aborted."""

    def __init__(
        self,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        start_offset: int,
        record_bytes: int,
        pause_if_due: Callable[[], None],
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._start_offset = start_offset
        self._record_bytes = record_bytes  # the largest that may be decompressed
        self._pause_if_due = pause_if_due

    def map_batch_keys(self, file: File, batch: StoredBatch) -> bool:
        """Put the keys of a batch of `file` into the offset map. Return False if only some of them fit.

        Raises `UncleanableLog` if the records cannot be read.
        """
        header = batch.header
        try:
            taken = not self._has_keys_to_map(header, batch.data) or self._put_keys_of_batch(header, batch.data)
        except KafkaError as error:
            raise make_unreadable_batch_error(file, batch.position, header.base_offset, error) from error
        if taken and header.last_offset >= self._start_offset:
            self._keys.latest_offset = header.last_offset
        return taken

    def _has_keys_to_map(self, header: BatchHeader, data: bytes) -> bool:
        """Return whether a batch has records that are dirty and not aborted; note the end of transactions."""
        if header.attributes & CONTROL_BIT:
            self._transactions.is_marker_removable(header, data)
            return False
        if header.attributes & TRANSACTIONAL_BIT and self._transactions.is_data_batch_aborted(header):
            return False
        return header.record_count != 0 and header.last_offset >= self._start_offset

    def _put_keys_of_batch(self, header: BatchHeader, data: bytes) -> bool:
        """Put the keys of a batch into the offset map. Return False if only some of them fit."""
        if header.magic < MAGIC:
            return self._put_keys_of_message(data)
        put, start, base = self._keys.put_offset_of_key, self._start_offset, header.base_offset
        run_all_steps(check_record_sizes(data, header, self._record_bytes))
        for record in iterate_records_with_pauses(stream_record_slices(data, header), self._pause_if_due):
            if record is None:
                continue
            _, _, raw_offset, _, key, _ = record
            offset = base + (raw_offset >> 1)
            if key is not None and offset >= start and not put(key, offset):
                return False
        return True

    def _put_keys_of_message(self, data: bytes) -> bool:
        """Put the keys of a message of format 0 or 1 into the offset map. Return False if only some fit."""
        for record in iterate_records_in_any_format(data):
            key, offset = record.key, record.offset
            if key is not None and offset >= self._start_offset and not self._keys.put_offset_of_key(key, offset):
                return False
        return True


class SyncFailed(OSError):
    """A segment of the log could not be synced. What is on the disk is unknown."""


class CleaningLimits(NamedTuple):
    """The memory of one cleaning: its map of keys, how full that may get (up to 1), and each of its two buffers."""

    keys_bytes: int
    load_factor: float
    buffer_bytes: int


class RewrittenSegment(NamedTuple):
    """A new segment, and the aborted transactions that its index lists."""

    segment: Segment
    aborted: Sequence[AbortedTransaction]


class CleaningPlan(NamedTuple):
    """The input of a cleaning, taken from the log when it began. It never changes.

    `sources` are the closed segments up to the end of the cleanable part. `transaction_indexes` are the paths of the
    transaction indexes of all segments; most do not exist, and they may lack some of `aborted`. Everything before
    `recovery_point` is synced.
    """

    disk: Disk
    directory: str
    sources: Sequence[SourceSegment]
    transaction_indexes: Sequence[str]
    aborted: Sequence[AbortedTransaction]
    last_records: Mapping[int, LastRecord]
    recovery_point: int
    settings: LogSettings
    dirt: LogDirtiness
    limits: CleaningLimits
    now_ms: int


class LogRewriter:
    """The work on a plan. `pace(size_bytes)` is called after each read and write; it may wait, and raise.

    `pause_if_due` is called now and then while it computes.

    Methods raise `UncleanableLog` and `OSError`; `SyncFailed` if the log itself cannot be synced.
    """

    def __init__(
        self, plan: CleaningPlan, pace: Callable[[int], None], pause_if_due: Callable[[], None] = do_not_pause
    ) -> None:
        dirt = plan.dirt
        self._plan = plan
        self._pace = pace
        aborted = self._read_aborted_transactions()
        self.keys = OffsetMap(
            plan.limits.keys_bytes, plan.limits.load_factor, dirt.end_offset - dirt.first_dirty_offset
        )
        record_bytes = plan.settings.max_decompressed_message_bytes
        self._mapper = KeyMapper(
            self.keys,
            CleanedTransactions(aborted, dirt.first_dirty_offset),
            dirt.first_dirty_offset,
            record_bytes,
            pause_if_due,
        )
        self._transactions = CleanedTransactions(aborted, plan.sources[0].base_offset if plan.sources else 0)
        retention = DeleteRetention(plan.now_ms, plan.settings.delete_retention_ms)
        format_version = plan.settings.message_format_version
        self._filter = BatchFilter(
            self.keys,
            self._transactions,
            plan.last_records,
            dirt.end_offset,
            retention,
            format_version,
            elides=plan.settings.record_attributes_elide is True,
            record_bytes=record_bytes,
            pause_if_due=pause_if_due,
        )
        self._old_horizon_ms = self._find_tombstone_horizon_of_old_formats()

    @property
    def counts(self) -> CleaningCounts:
        """The counts of what was read and written."""
        return self._filter.counts

    def map_dirty_keys(self) -> list[list[SourceSegment]]:
        """Put the keys of the dirty part, or of as much as fits, into the offset map. Return the groups to write."""
        dirty = [source for source in self._plan.sources if source.end_offset > self._plan.dirt.first_dirty_offset]
        for source in dirty:
            if not self._map_keys_of_segment(source):
                break
            self.keys.latest_offset = source.end_offset - 1
        known = [source for source in self._plan.sources if source.base_offset <= self.keys.latest_offset]
        return group_segments(known, self._measure_index_files, self._plan.settings)

    def _map_keys_of_segment(self, source: SourceSegment) -> bool:
        """Put the keys of one segment into the offset map. Return False if not all fit."""
        file = self._plan.disk.open(source.path + LOG_SUFFIX)
        fits = True
        for batch in iterate_stored_batches(
            file, source.size_bytes, source.base_offset, self._plan.limits.buffer_bytes
        ):
            self._pace(len(batch.data))
            fits = self._mapper.map_batch_keys(file, batch)
            if not fits:
                break
        if source.end_offset > self._plan.recovery_point:
            _sync_file(file)  # older values are removed because of these: a power cut must not lose both
        return fits

    def write_cleaned_segment(self, group: Sequence[SourceSegment]) -> RewrittenSegment:
        """Write one segment for the group. Its files end in `.cleaned`; after a failure none is left."""
        plan, first = self._plan, group[0]
        try:
            writer = SegmentWriter(plan.disk, first.path, first.base_offset, plan.settings, plan.limits.buffer_bytes)
            for source in group:
                self._write_filtered_segment(source, writer)
            aborted, self._transactions.still_indexed = self._transactions.still_indexed, []
            file = writer.finish_segment_files(aborted, plan.disk.get_modified_ms(group[-1].path + LOG_SUFFIX))
        except SegmentOverflow as error:
            remove_unfinished_cleaned_files(plan.disk, first.path)
            raise UncleanableLog(str(error)) from error
        except BaseException:
            remove_unfinished_cleaned_files(plan.disk, first.path)
            raise
        new = Segment.open_with_file(plan.disk, plan.directory, first.base_offset, plan.settings, plan.now_ms, file)
        return RewrittenSegment(new, aborted)

    def _write_filtered_segment(self, source: SourceSegment, writer: SegmentWriter) -> None:
        """Write what is kept of one segment."""
        for _, kept in self.iterate_filtered_batches(source):
            if kept is not None:
                writer.add_batch(*kept)
                self._pace(len(kept[1]))

    def iterate_filtered_batches(self, source: SourceSegment) -> Iterator[tuple[StoredBatch, HeaderAndBytes | None]]:
        """Yield each batch of a segment with what is kept of it, None for nothing. Take the segments in order."""
        disk = self._plan.disk
        file = disk.open(source.path + LOG_SUFFIX)
        self._filter.old_tombstones_stay = disk.get_modified_ms(source.path + LOG_SUFFIX) > self._old_horizon_ms
        for batch in iterate_stored_batches(
            file, source.size_bytes, source.base_offset, self._plan.limits.buffer_bytes
        ):
            self._pace(len(batch.data))
            try:
                kept = self._filter.filter_batch(batch.header, batch.data)
            except KafkaError as error:
                raise make_unreadable_batch_error(file, batch.position, batch.header.base_offset, error) from error
            yield batch, kept

    def _find_tombstone_horizon_of_old_formats(self) -> int:
        """Return a time, in ms: segments modified until then keep no tombstones of formats 0 and 1.

        It is `delete.retention.ms` before the time of the last clean segment.
        """
        clean = [source for source in self._plan.sources if source.base_offset < self._plan.dirt.first_dirty_offset]
        if not clean:
            return 0
        return self._plan.disk.get_modified_ms(clean[-1].path + LOG_SUFFIX) - self._plan.settings.delete_retention_ms

    def _measure_index_files(self, source: SourceSegment) -> IndexSizes:
        """Return the sizes of a segment's offset index and time index."""
        return IndexSizes(
            self._measure_file_if_present(source.path + INDEX_SUFFIX),
            self._measure_file_if_present(source.path + TIME_INDEX_SUFFIX),
        )

    def _measure_file_if_present(self, path: str) -> int:
        try:
            return self._plan.disk.size_bytes(path)
        except FileNotFoundError:  # it is rebuilt when it is needed
            return 0

    def _read_aborted_transactions(self) -> set[AbortedTransaction]:
        """Return all aborted transactions. An unreadable index raises, as its transactions would seem committed."""
        found = set(self._plan.aborted)
        for path in self._plan.transaction_indexes:
            try:
                found |= set(decode_aborted_transactions(self._plan.disk.read_whole(path)))
            except FileNotFoundError:
                continue
            except CorruptIndex as error:
                raise UncleanableLog(f"{path} cannot be read: {error}") from error
        return found


def _sync_file(file: File) -> None:
    try:
        file.sync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, file.path) from error
