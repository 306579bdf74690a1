"""Opens a log. After an unclean stop it checks and repairs the log first.

After a clean stop it reads almost nothing. After any other stop it reads all batches from the recovery point's segment
on, and truncates the log at the first torn or corrupt batch.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import is_unwritten, iterate_headers, iterate_sound_batches, make_offset_error
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    MalformedCheckpoint,
    format_leader_epochs,
    format_partition_metadata,
    parse_leader_epochs,
    parse_topic_id,
)
from minibroker.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import MAX_LONG, LogSettings
from minibroker.storage.log_state_files import LogContents
from minibroker.storage.names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    list_offsets_with_suffix,
)
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    encode_aborted_transactions,
    read_aborted_transactions,
    read_entry_counts,
)
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots, replay_batch, replay_batches
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.recovery.failed_sync import FAILED_SYNC, mark_failed_sync, rewrite_unsynced_segments
from minibroker.storage.recovery.leftovers import find_damage_beyond_torn_write, finish_or_undo_file_swaps
from minibroker.storage.segment import Segment
from minibroker.storage.segment_indexes import CorruptIndex

logger = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)


class LogDirectoryError(Exception):
    """A log directory cannot be used. The message is one line that says why and what to do."""


class LostRecords(LogDirectoryError):
    """A start would lose records that may have been synced, of a `guarded` log."""


class Checkpoints(NamedTuple):
    """What is known of a log before it is opened: whether the last stop was clean, and its checkpointed offsets.

    A `guarded` log is not opened if records are lost that may have been synced.
    """

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    clean_offset: int = 0
    high_watermark: int = 0
    guarded: bool = False


def open_log(
    environment: Environment,
    directory: str,
    topic_partition: tuple[str, int],
    settings: LogSettings,
    checkpoints: Checkpoints,
) -> Log:
    """Open the log in `directory`, and recover it if necessary.

    Raises `LogDirectoryError` if the directory cannot be read or written, or contains something invalid, and
    `LostRecords`, and then has truncated nothing.
    """
    try:
        opening = _LogOpening(environment, directory, topic_partition, settings)
        topic_id = opening.read_topic_id(checkpoints.clean)
        return Log(environment, directory, topic_partition, topic_id, settings, opening.recover_contents(checkpoints))
    except (OSError, MalformedCheckpoint, CorruptBatch) as error:
        raise LogDirectoryError(f"the log in {directory} cannot be opened: {error}") from error


def create_log(
    environment: Environment, directory: str, topic_partition: tuple[str, int], topic_id: bytes, settings: LogSettings
) -> Log:
    """Create an empty log in `directory`, which has no files of a log. Raises `LogDirectoryError`."""
    disk = environment.disk
    try:
        segment = Segment.create(disk, directory, 0, settings, environment.now_ms())
    except OSError as error:
        raise LogDirectoryError(f"the log in {directory} cannot be created: {error}") from error
    segment.close()
    contents = LogContents(
        [segment],
        LeaderEpochs(),
        ProducerStates(),
        ProducerSnapshots(disk, directory, ()),
        AbortedTransactions(disk),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        synced=True,
        is_new=True,
    )
    return Log(environment, directory, topic_partition, topic_id, settings, contents)


def write_topic_id(disk: Disk, directory: str, topic_id: bytes, *, sync: bool) -> None:
    """Write a log's `partition.metadata`, unless the id is zeros, which stand for none. Raises `OSError`."""
    if topic_id != NO_TOPIC_ID:
        disk.write_whole(f"{directory}/{PARTITION_METADATA}", format_partition_metadata(topic_id), sync=sync)


class _LogOpening:
    """The opening of one log, from its directory to the contents of a `Log`."""

    def __init__(
        self, environment: Environment, directory: str, topic_partition: tuple[str, int], settings: LogSettings
    ) -> None:
        self.disk = environment.disk
        self.now_ms = environment.now_ms()
        self.directory = directory
        self.label = "{}-{}".format(*topic_partition)
        self.settings = settings
        self.names = finish_or_undo_file_swaps(self.disk, directory)
        self.segments = [
            Segment.open(self.disk, directory, base_offset, settings, self.now_ms)
            for base_offset in list_offsets_with_suffix(self.names, LOG_SUFFIX)
        ]
        self.snapshots = ProducerSnapshots(self.disk, directory, list_offsets_with_suffix(self.names, SNAPSHOT_SUFFIX))
        self.snapshots.remove_stray_snapshots([segment.base_offset for segment in self.segments])
        self.states = ProducerStates()
        self.epochs = LeaderEpochs()
        self.recovered: dict[str, list[AbortedTransaction]] = {}  # by the path of each segment that was read
        self.guarded = self.reported = False  # a loss was logged
        self.epochs_fall = False

    def read_topic_id(self, was_clean_shutdown: bool) -> bytes:
        """Return the id in `partition.metadata`, zeros if there is none. Raises `MalformedCheckpoint`.

        The file of a new log is not synced, so a power cut may leave it empty, even after a clean stop. The caller also
        knows the id.
        """
        if PARTITION_METADATA not in self.names:
            return NO_TOPIC_ID
        path = f"{self.directory}/{PARTITION_METADATA}"
        text = self.disk.read_whole(path)
        try:
            return parse_topic_id(text)
        except MalformedCheckpoint as error:
            if was_clean_shutdown and text.strip(b"\0"):
                raise MalformedCheckpoint(
                    f"{path} is malformed: {error}; remove it, and the next start writes it from the metadata"
                ) from None
            logger.warning("%s is ignored, as a crash has damaged it: %s", path, error)
            return NO_TOPIC_ID

    def recover_contents(self, checkpoints: Checkpoints) -> LogContents:
        """Recover the log if necessary, and find where it begins and ends."""
        self.guarded = checkpoints.guarded
        self._read_leader_epochs()
        last_epoch = self.epochs.list_entries()[-1:]
        may_epoch_be_empty = checkpoints.clean or any(
            segment.is_preallocated_by_kafka() for segment in self.segments[-1:]
        )
        end_offset = self._recover_end_offset(checkpoints)
        self._check_no_records_lost(end_offset, checkpoints, last_epoch, may_epoch_be_empty)
        start_offset = max(checkpoints.log_start_offset, self.segments[0].base_offset if self.segments else 0)
        if not self.segments or start_offset > end_offset:
            end_offset = start_offset
            self._create_first_segment(start_offset)
        self.segments[-1].load_last_entries()
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(start_offset)
        if not checkpoints.clean:
            self._restore_epochs_of_deleted_records(start_offset, end_offset)
        if self.epochs.list_entries()[-1:] != last_epoch:
            self._write_leader_epochs()
        self._load_producer_states(self.segments[0].base_offset, end_offset)
        for segment in self.segments:
            segment.close()  # an unused log holds no descriptor
        recovery_point = end_offset if checkpoints.clean else min(checkpoints.recovery_point, end_offset)
        return LogContents(
            self.segments,
            self.epochs,
            self.states,
            self.snapshots,
            self._read_aborted_transactions(end_offset),
            start_offset,
            end_offset,
            recovery_point,
            checkpoints.clean,
        )

    def _read_aborted_transactions(self, end_offset: int) -> AbortedTransactions:
        """Return the transactions in the index files whose markers the log still has. Rewrite wrong files."""
        indexed = set(list_offsets_with_suffix(self.names, TRANSACTION_INDEX_SUFFIX))
        counts = read_entry_counts(self.disk, self.directory) if ABORTED_TRANSACTIONS_CHECKPOINT in self.names else {}
        found: list[AbortedTransaction] = []
        if indexed or counts:
            ends = [segment.base_offset for segment in self.segments[1:]] + [end_offset]
            for segment, segment_end in zip(self.segments, ends, strict=True):
                count_and_crc = counts.get(segment.base_offset)
                if segment.path not in self.recovered and (segment.base_offset in indexed or count_and_crc):
                    found += self._read_indexed_transactions(
                        segment, max(segment_end, segment.base_offset + 1), count_and_crc
                    )
        aborted = AbortedTransactions(self.disk, found, counts)
        for path, transactions in self.recovered.items():
            aborted.replace_transactions_of_newest_segment(path, transactions)
        aborted.truncate_to(self.segments[-1].path, end_offset)
        if self.recovered:
            aborted.write_entry_counts(self.directory, [segment.base_offset for segment in self.segments])
        return aborted

    def _read_indexed_transactions(
        self, segment: Segment, end_offset: int, count_and_crc: tuple[int, int] | None
    ) -> list[AbortedTransaction]:
        """Return the transactions in a segment's index. If it is wrong, read the batches and rewrite it."""
        try:
            return read_aborted_transactions(self.disk, segment.path, end_offset, count_and_crc)
        except CorruptIndex as error:
            path = segment.path + TRANSACTION_INDEX_SUFFIX
            logger.warning("%s is rebuilt from the log: %s", path, error)
        states, found = ProducerStates(), []
        self.snapshots.load_newest_snapshot(states, self.segments[0].base_offset, segment.base_offset)
        before = self.segments[: self.segments.index(segment)]
        try:
            if before:
                replay_batches(states, before, segment.base_offset)
            for position, header in iterate_headers(segment.file, 0, segment.size_bytes):
                transaction = replay_batch(states, segment, position, header)
                if transaction is not None:
                    found.append(transaction)
        except CorruptBatch as damage:
            logger.warning("%s: its aborted transactions are incomplete: %s", path, damage.message)
        segment.close()
        self.disk.write_whole(path, encode_aborted_transactions(found), sync=False)
        return found

    def _read_leader_epochs(self) -> None:
        """Read the checkpoint, or the batches if it is malformed or missing, as it is not always synced."""
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        if LEADER_EPOCH_CHECKPOINT in self.names:
            try:
                self.epochs = LeaderEpochs(parse_leader_epochs(self.disk.read_whole(path)))
            except MalformedCheckpoint as error:
                logger.warning("%s is malformed, and is rebuilt from the log: %s", path, error)
        if self.epochs.latest == UNDEFINED_EPOCH:
            self._collect_epochs_of_batches()

    def _collect_epochs_of_batches(self, start_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Add the epochs of the batches between two offsets, as far as these can be read. Recovery reports damage."""
        with suppress(CorruptBatch):
            for segment in self.segments:
                for _, header in iterate_headers(segment.file, 0, segment.size_bytes):
                    if header.base_offset >= end_offset:
                        return
                    if header.next_offset > start_offset:
                        first_offset = max(header.base_offset, start_offset)
                        self.epochs.assign_epoch_if_newer(header.partition_leader_epoch, first_offset)

    def _restore_epochs_of_deleted_records(self, start_offset: int, end_offset: int) -> None:
        """Add the epochs of deleted records that are back, as a crash came before the checkpoint was written."""
        known = self.epochs.list_entries()
        known_from = known[0][1] if known else end_offset
        if known_from <= start_offset:
            return
        self.epochs = LeaderEpochs()
        self._collect_epochs_of_batches(start_offset, known_from)
        for epoch, first_offset in known:
            self.epochs.assign_epoch_if_newer(epoch, first_offset)

    def _recover_end_offset(self, checkpoints: Checkpoints) -> int:
        """Return the log's end offset, after recovery if that is necessary."""
        if not self.segments:
            return checkpoints.log_start_offset
        if not checkpoints.clean:
            return self._recover_log_end_offset(checkpoints.recovery_point, checkpoints.clean_offset)
        try:
            return self._find_end_after_clean_shutdown()
        except CorruptBatch as error:
            if self.guarded:
                raise LostRecords(f"{error.message}, although the last stop was clean") from error
            logger.warning("%s is damaged although the last stop was clean: %s", self.label, error.message)
            return self._recover_log_end_offset(self.segments[-1].base_offset, checkpoints.clean_offset)

    def _write_leader_epochs(self) -> None:
        """Write the leader epochs into the checkpoint, as the next start relies on it."""
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        self.disk.write_whole(path, format_leader_epochs(self.epochs.list_entries()), sync=False)
        self.epochs.changed = True  # until the next flush has synced it

    def _check_no_records_lost(
        self, end_offset: int, checkpoints: Checkpoints, last_epoch: list[tuple[int, int]], may_epoch_be_empty: bool
    ) -> None:
        """Log, or raise `LostRecords`, if the log ends before an offset, or a leader epoch, that it had reached."""
        reached = max(checkpoints.recovery_point, checkpoints.high_watermark)
        if self.reported:
            return
        if end_offset < reached:
            lost = f"the log in {self.directory} ends at offset {end_offset}, but had reached {reached}"
            if self.guarded and (checkpoints.clean or end_offset < checkpoints.recovery_point):
                raise LostRecords(lost)
            logger.warning("%s: what followed is lost", lost)
        elif last_epoch and last_epoch[0][1] >= end_offset + may_epoch_be_empty:  # Kafka writes it before its records
            logger.warning(
                "the log in %s ends at offset %d, but leader epoch %d began at %d: if it had records, they are lost",
                self.directory,
                end_offset,
                *last_epoch[0],
            )

    def _find_end_after_clean_shutdown(self) -> int:
        """Return the end of the last segment. Remove an empty one that begins before the end of the previous one."""
        *_, last = self.segments
        if len(self.segments) > 1 and not last.size_bytes:
            end_offset = self.segments[-2].find_next_offset()
            if end_offset > last.base_offset:
                self._remove_segment(self.segments.pop())
                return end_offset
        return last.find_next_offset()

    def _create_first_segment(self, start_offset: int) -> None:
        """Begin a new log at `start_offset`, as there are no segments, or only ones whose records were deleted."""
        if self.segments:
            logger.warning(
                "%s: its segments end before the log start offset %d; an empty log begins there",
                self.label,
                start_offset,
            )
        new = Segment.create(self.disk, self.directory, start_offset, self.settings, self.now_ms)
        if start_offset:
            self.disk.sync_directory(self.directory)  # without any segment, a start would begin at offset 0
        for segment in self.segments:
            self._remove_segment(segment)
        if self.segments:
            self.disk.sync_directory(self.directory)
        self.segments = [new]
        self.recovered = {new.path: []}  # there may be an old index of this name

    def _recover_log_end_offset(self, recovery_point: int, clean_offset: int) -> int:
        """Read the segments from the recovery point on, and truncate unsound data. Return the log's end offset.

        A power cut may remove an unsynced segment and leave a later one. Segments behind such a gap are removed, unless
        compaction has left the gap. A power cut may also bring back segments that a truncation has removed.
        """
        first = max((i for i, s in enumerate(self.segments) if s.base_offset <= recovery_point), default=0)
        next_offset = self.segments[first].base_offset
        self.snapshots.remove_snapshots_after(next_offset)
        self.epochs.truncate_from_end(next_offset)
        self._load_producer_states(self.segments[0].base_offset, next_offset)
        for segment in self.segments[first:]:
            if not segment.size_bytes and segment.base_offset < next_offset:
                self._remove_segment(segment)  # left by a failed roll, after which appends went to the segment before
                self.segments.remove(segment)
                continue
            compacted = "compact" in self.settings.cleanup_policy or segment.base_offset <= clean_offset
            if segment.base_offset < next_offset or segment.base_offset > next_offset and not compacted:
                before = self.segments[self.segments.index(segment) - 1]
                reason = f"it ends at offset {next_offset}, and the next segment begins at {segment.base_offset}"
                self._truncate_at_corrupt_batch(before, next_offset, CorruptBatch(reason, before.size_bytes))
                break
            next_offset, problem = self._recover_sound_batches(segment, max(next_offset, segment.base_offset))
            if problem:
                self._truncate_at_corrupt_batch(segment, next_offset, problem)
                if segment is self.segments[-1]:
                    break
            elif segment is not self.segments[-1]:  # the indexes of the active one are written when it ends
                segment.finish_indexes()
        if FAILED_SYNC in self.names:
            rewrite_unsynced_segments(self.disk, self.directory, self.segments[first:])
            self.epochs.changed = True
        return next_offset

    def _recover_sound_batches(self, segment: Segment, next_offset: int) -> tuple[int, CorruptBatch | None]:
        """Read a segment and rebuild its indexes. Return the offset after its last sound batch, and the error there."""
        self.states.end_offset = next_offset
        self.snapshots.take_snapshot(self.states, self.segments[0].base_offset)
        noted = segment.read_last_offset_of_time_index()
        segment.clear_indexes_to_rebuild()
        aborted: list[AbortedTransaction] = []
        try:
            for position, header in iterate_sound_batches(segment.file, 0, segment.size_bytes):
                last_offset = header.base_offset + header.last_offset_delta
                if header.base_offset < next_offset or not segment.indexes.fits_relative_offset(last_offset):
                    raise make_offset_error(segment.file, position, header, next_offset)
                segment.add_batch_to_indexes(position, last_offset, header.max_timestamp)
                if header.partition_leader_epoch != self.epochs.latest:
                    self._remember_epoch_of_batch(segment, position, header)
                if header.producer_id >= 0:
                    transaction = replay_batch(self.states, segment, position, header)
                    if transaction is not None:
                        aborted.append(transaction)
                next_offset = self.states.end_offset = last_offset + 1
        except CorruptBatch as problem:
            return next_offset, problem
        finally:
            self.recovered[segment.path] = aborted
        if noted >= next_offset:
            reached = f"ends at offset {next_offset}, but had reached {noted + 1}: what followed is lost"
            logger.warning("%s %s", segment.file.path, reached)
        return next_offset, None

    def _remember_epoch_of_batch(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Add the leader epoch of a batch. The first epoch that is older than one before is logged."""
        epoch, latest = header.partition_leader_epoch, self.epochs.latest
        if epoch > latest:
            self.epochs.assign_epoch(epoch, header.base_offset)
        elif epoch >= 0 and not self.epochs_fall:
            self.epochs_fall = True
            logger.warning(
                "%s: the batch at %d, offset %d, has leader epoch %d, and one before it %d",
                *(segment.file.path, position, header.base_offset, epoch, latest),
            )

    def _truncate_at_corrupt_batch(self, segment: Segment, end_offset: int, problem: CorruptBatch) -> None:
        """Truncate the log behind its sound batches, and log what is lost.

        If the next segment begins right there, nothing is lost: the bytes between were never part of the log.
        """
        later = self.segments[self.segments.index(segment) + 1 :]
        if later and later[0].base_offset == end_offset:
            later = []
        if self.guarded:
            self._check_is_torn(segment, end_offset, problem, later)
        preallocated = self.settings.preallocate and not later and is_unwritten(segment.file, problem.position)
        self.reported = not (preallocated or self.guarded)
        logger.log(
            logging.INFO if preallocated else logging.WARNING,
            "%s: %s is cut at position %d, offset %d; lost are %d bytes of it and %d later segments of %d bytes: %s",
            self.label,
            segment.file.path,
            problem.position,
            end_offset,
            segment.size_bytes - problem.position,
            len(later),
            sum(other.size_bytes for other in later),
            problem.message,
        )
        for other in reversed(later):
            self._remove_segment(other)
            self.segments.remove(other)
        segment.file.truncate(problem.position)
        segment.size_bytes = problem.position
        segment.finish_indexes()
        self.snapshots.remove_snapshots_after(end_offset)
        if not preallocated:
            self._sync_truncated_segment(segment)

    def _check_is_torn(self, segment: Segment, end_offset: int, problem: CorruptBatch, later: list[Segment]) -> None:
        """Raise `LostRecords` unless a crash has torn the data that is about to be removed."""
        damage = f"there are {len(later)} segments behind it" if any(other.size_bytes for other in later) else None
        if damage is None:
            damage = find_damage_beyond_torn_write(segment.file, problem.position, segment.size_bytes)
        if damage is not None:
            raise LostRecords(
                f"{segment.file.path} is damaged at position {problem.position}, offset {end_offset}: {damage}"
            ) from problem

    def _sync_truncated_segment(self, segment: Segment) -> None:
        """Sync a truncation. Otherwise a power cut may bring the removed bytes back, behind new batches."""
        try:
            segment.file.sync()
            self.disk.sync_directory(self.directory)
        except OSError:
            mark_failed_sync(self.disk, self.directory)
            raise

    def _remove_segment(self, segment: Segment) -> None:
        segment.close()
        for suffix in SEGMENT_SUFFIXES:
            self.disk.remove(segment.path + suffix)

    def _load_producer_states(self, start_offset: int, end_offset: int) -> None:
        """Load the producer states at `end_offset`, from a snapshot and the batches after it, unless recovery has."""
        if self.states.end_offset == end_offset:
            return
        self.snapshots.load_newest_snapshot(self.states, start_offset, end_offset)
        try:
            replay_batches(self.states, self.segments, end_offset)
        except CorruptBatch as error:
            logger.warning("%s: the state of its producers is incomplete: %s", self.label, error.message)
            self.states.end_offset = end_offset
