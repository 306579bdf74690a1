"""Rewrites one segment: reads and checks its batches, converts them a chunk at a time, and writes them with indexes.

The new files have other names until they are whole and synced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.rewriting.batch_conversion import (
    BatchConverter,
    RewriteError,
    RewriteSettings,
    SourceBatch,
    choose_target_form,
)
from minibroker.protocol.errors import CorruptBatch, KafkaError
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.records.varints import Bytes
from minibroker.storage import names
from minibroker.storage.checkpoints.checkpoint_texts import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from minibroker.storage.checkpoints.leader_epochs import LeaderEpochs
from minibroker.storage.compaction.batch_reading import StoredBatch, UncleanableLog, iterate_stored_batches
from minibroker.storage.compaction.segment_writer import SegmentWriter
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.aborted_transactions import AbortedTransaction, decode_aborted_transactions
from minibroker.storage.segment_indexes import MAX_RELATIVE_OFFSET

# How much is converted at once: bytes in the file, and decoded bytes. The expansion is known from earlier batches, so
# the first chunks are small.
CHUNK_BYTES = 4 << 20
DECODED_BYTES = 24 << 20
FIRST_CHUNK_BYTES = 1 << 14
GROWTH = 8
BUFFER_BYTES = 1 << 20
LOG_SETTINGS = LogSettings()

FindEpochAt = Callable[[int], int]


@dataclass(frozen=True)
class SegmentTask:
    """A segment to rewrite. `is_last`: of its log. `is_torn`: a crash may have left a torn batch at its end."""

    topic: str
    partition: int
    base_offset: int
    size_bytes: int
    is_last: bool = False
    is_torn: bool = False

    @property
    def log(self) -> str:
        """The name of the log's directory."""
        return names.format_log_name(self.topic, self.partition)


class NewSegment(NamedTuple):
    """A segment that was written. If one becomes several, the first has all its `source_bytes` and `lost_bytes`."""

    base_offset: int
    next_offset: int
    size_bytes: int
    batch_count: int
    record_count: int
    source_bytes: int
    lost_bytes: int


class SegmentRewriter:
    """Rewrites one segment of the log directory `source`, into the existing directory `work`."""

    def __init__(self, task: SegmentTask, source: str, work_directory: str, settings: RewriteSettings) -> None:
        self._task = task
        self._disk = Disk()
        self._directory = f"{source}/{task.log}"
        self._path = f"{self._directory}/{names.make_segment_name(task.base_offset)}{names.LOG_SUFFIX}"
        self._work = work_directory
        self._settings = settings
        self._lost_bytes = 0
        self._output = _SegmentsWriter(
            self._disk, work_directory, self._read_aborted_transactions(), self._disk.get_modified_ms(self._path)
        )

    def rewrite_segment(self) -> list[NewSegment]:
        """Write the new segments and return them; mostly there is one.

        Raises `RewriteError` with topic, partition and offset, `CorruptData`, `OSError`.
        """
        task = self._task
        converter = BatchConverter(
            TopicPartition(task.topic, task.partition), self._path, self._settings, self._make_epoch_finder()
        )
        self._output.begin_segment(task.base_offset, limit_bytes=max(task.size_bytes, LOG_SETTINGS.segment_bytes))
        chunk: list[SourceBatch] = []
        chunk_bytes, limit_bytes = 0, FIRST_CHUNK_BYTES
        for batch in self._iterate_sound_batches():
            chunk.append(SourceBatch(batch.header, batch.data, choose_target_form(batch.header, self._settings)))
            chunk_bytes += len(batch.data)
            if chunk_bytes >= limit_bytes:
                self._write_chunk(converter, chunk)
                chunk, chunk_bytes = [], 0
                limit_bytes = min(CHUNK_BYTES, GROWTH * limit_bytes, int(DECODED_BYTES / converter.expansion))
        self._write_chunk(converter, chunk)
        first, *others = self._output.finish_segments()
        return [first._replace(source_bytes=task.size_bytes, lost_bytes=self._lost_bytes), *others]

    def _write_chunk(self, converter: BatchConverter, chunk: list[SourceBatch]) -> None:
        try:
            for written in converter.convert_batches(chunk):
                self._output.write_batch(written)
        except KafkaError as error:
            offset = chunk[0].header.base_offset
            raise RewriteError(f"{self._path}: records from offset {offset} on cannot be read: {error}") from error

    def _iterate_sound_batches(self) -> Iterator[StoredBatch]:
        """Yield the whole, sound batches of the segment. It ends at a torn batch, as after a broker's recovery."""
        size_bytes = self._task.size_bytes
        position = 0
        with closing(self._disk.open_to_read(self._path)) as file:
            try:
                for batch in iterate_stored_batches(file, size_bytes, self._task.base_offset, BUFFER_BYTES):
                    yield batch
                    position += len(batch.data)
            except UncleanableLog as error:
                if not (self._task.is_torn and isinstance(error.__cause__, CorruptBatch)):
                    raise RewriteError(str(error)) from error
                self._lost_bytes = size_bytes - position

    def _make_epoch_finder(self) -> FindEpochAt:
        """Return a function that finds the leader epoch of an offset in the log's checkpoint."""
        path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        if not self._disk.exists(path):
            return LeaderEpochs().find_epoch_at
        return LeaderEpochs(parse_leader_epochs(DISK.read_whole(path))).find_epoch_at

    def _read_aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions in the segment's index. Raises `CorruptIndex`, `OSError`."""
        path = self._path.removesuffix(names.LOG_SUFFIX) + names.TRANSACTION_INDEX_SUFFIX
        return list(decode_aborted_transactions(DISK.read_whole(path))) if self._disk.exists(path) else []


class _SegmentsWriter:
    """The new segments of a segment. Another one begins if one would be too large."""

    def __init__(self, disk: Disk, work_directory: str, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        self._disk = disk
        self._work = work_directory
        self._aborted = aborted
        self._modified_ms = modified_ms
        self._done: list[NewSegment] = []

    def begin_segment(self, base_offset: int, limit_bytes: int) -> None:
        """Begin the first or another segment."""
        self._limit_bytes = limit_bytes
        self._base_offset = self._next_offset = base_offset
        self._batches = self._records = 0
        self._path = f"{self._work}/{names.make_segment_name(base_offset)}"
        self._writer = SegmentWriter(self._disk, self._path, base_offset, LOG_SETTINGS, BUFFER_BYTES)

    def write_batch(self, data: Bytes) -> None:
        """Write a batch."""
        header = read_header(data)
        is_full = self._writer.size_bytes + len(data) > self._limit_bytes
        is_far = header.last_offset - self._base_offset > MAX_RELATIVE_OFFSET
        if self._writer.size_bytes and (is_full or is_far):
            is_next_far = header.last_offset - self._next_offset > MAX_RELATIVE_OFFSET
            base_offset = header.base_offset if is_next_far else self._next_offset
            self._finish_segment(base_offset)
            self.begin_segment(base_offset, self._limit_bytes)
        self._writer.add_batch(header, data)
        self._next_offset = header.next_offset
        self._batches += 1
        self._records += header.record_count

    def finish_segments(self) -> list[NewSegment]:
        """End the last segment. Return all that were written."""
        self._finish_segment(None)
        return self._done

    def _finish_segment(self, end_offset: int | None) -> None:
        """Sync the segment's files and rename them. Write a transaction index if transactions end in it."""
        aborted = [each for each in self._aborted if end_offset is None or each.last_offset < end_offset]
        self._aborted = self._aborted[len(aborted) :]
        file = self._writer.finish_segment_files(aborted, self._modified_ms)
        file.close()
        for suffix in (*names.SEGMENT_SUFFIXES[1:], names.SEGMENT_SUFFIXES[0]):
            if aborted or suffix != names.TRANSACTION_INDEX_SUFFIX:  # an empty transaction index has no file
                self._disk.rename(self._path + suffix + names.CLEANED_SUFFIX, self._path + suffix)
        size_bytes, counts = self._writer.size_bytes, (self._batches, self._records)
        self._done.append(NewSegment(self._base_offset, self._next_offset, size_bytes, *counts, 0, 0))
