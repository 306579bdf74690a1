"""Opening a log: what its directory holds, what a crash left there, and what must be read or cut before it is used.

After a clean stop almost nothing is read. After any other, the segments from the recovery point on are read batch by
batch, and the first torn or corrupt batch ends the log. How a log works once it is open is not told here.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import BatchHeader
from minibroker.storage.batch_scanning import headers, is_blank, misplaced, sound_batches
from minibroker.storage.checkpoints.checkpoint_texts import (
    ABORTED_TRANSACTIONS_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    MalformedCheckpoint,
    epochs_from_text,
    epochs_text,
    partition_metadata_text,
    topic_id_from_text,
)
from minibroker.storage.checkpoints.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import MAX_LONG, LogSettings
from minibroker.storage.names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offsets_with,
)
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    read_counts,
    read_index,
    transactions_bytes,
)
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots, note_stored, replay
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.recovery.failed_sync import FAILED_SYNC, remember, write_again
from minibroker.storage.recovery.leftovers import damage_behind, settle
from minibroker.storage.segment import Segment
from minibroker.storage.segment_indexes import CorruptIndex
from minibroker.storage.side_files import LogContents

logger = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)


class LogDirectoryError(Exception):
    """Why a log directory cannot be used, in one line that a person can act on."""


class LostRecords(LogDirectoryError):
    """A start would lose what may have been on the disk itself, of a log that is guarded against that."""


class Checkpointed(NamedTuple):
    """The facts about a log before it is opened: whether the last stop was clean, and its checkpointed offsets.

    A `guarded` log is not opened if records of it are lost that may have been on the disk itself.
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
    known: Checkpointed,
) -> Log:
    """Open the log that is in `directory`, recovering it as far as it needs.

    Raises `LogDirectoryError` if the directory cannot be read or written, or holds what cannot be served, and
    `LostRecords`; then nothing was cut off.
    """
    try:
        opening = _Opening(environment, directory, topic_partition, settings)
        topic_id = opening.topic_id(known.clean)
        return Log(environment, directory, topic_partition, topic_id, settings, opening.open(known))
    except (OSError, MalformedCheckpoint, CorruptBatch) as error:
        raise LogDirectoryError(f"the log in {directory} cannot be opened: {error}") from error


def new_log(
    environment: Environment, directory: str, topic_partition: tuple[str, int], topic_id: bytes, settings: LogSettings
) -> Log:
    """An empty log in `directory`, where there is nothing of one yet. Raises `LogDirectoryError`."""
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
    """Write a log's `partition.metadata`, unless the id is all zeros, which stand for none. Raises `OSError`."""
    if topic_id != NO_TOPIC_ID:
        disk.write_whole(f"{directory}/{PARTITION_METADATA}", partition_metadata_text(topic_id), sync=sync)


class _Opening:
    """One log on the way from its directory to the contents of a `Log`."""

    def __init__(
        self, environment: Environment, directory: str, topic_partition: tuple[str, int], settings: LogSettings
    ) -> None:
        self.disk = environment.disk
        self.now_ms = environment.now_ms()
        self.directory = directory
        self.label = "{}-{}".format(*topic_partition)
        self.settings = settings
        self.names = settle(self.disk, directory)
        self.segments = [
            Segment.open(self.disk, directory, base_offset, settings, self.now_ms)
            for base_offset in offsets_with(self.names, LOG_SUFFIX)
        ]
        self.snapshots = ProducerSnapshots(self.disk, directory, offsets_with(self.names, SNAPSHOT_SUFFIX))
        self.snapshots.remove_strays([segment.base_offset for segment in self.segments])
        self.states = ProducerStates()
        self.epochs = LeaderEpochs()
        self.recovered: dict[str, list[AbortedTransaction]] = {}  # what was aborted in the segments that were read
        self.guarded = self.told = False  # `told` of a loss
        self.epochs_fall = False

    def topic_id(self, clean: bool) -> bytes:
        """The id in `partition.metadata`, zeros if there is none. Raises `MalformedCheckpoint`.

        The file of a new log is not synced: a power cut, also one after an orderly stop, may leave it without content.
        Who opens the log knows its id, too.
        """
        if PARTITION_METADATA not in self.names:
            return NO_TOPIC_ID
        path = f"{self.directory}/{PARTITION_METADATA}"
        text = self.disk.read_whole(path)
        try:
            return topic_id_from_text(text)
        except MalformedCheckpoint as error:
            if clean and text.strip(b"\0"):
                raise MalformedCheckpoint(
                    f"{path} is malformed: {error}; without this file, a start writes it from the metadata"
                ) from None
            logger.warning("%s is of no use after a crash: %s", path, error)
            return NO_TOPIC_ID

    def open(self, known: Checkpointed) -> LogContents:
        """Recover what needs it, and settle on where the log begins and ends."""
        self.guarded = known.guarded
        self._read_epochs()
        last_epoch = self.epochs.entries()[-1:]
        early = known.clean or any(segment.has_room_of_kafka() for segment in self.segments[-1:])
        end_offset = self._end_offset(known)
        self._check_end(end_offset, known, last_epoch, early)
        start_offset = max(known.log_start_offset, self.segments[0].base_offset if self.segments else 0)
        if not self.segments or start_offset > end_offset:
            end_offset = start_offset
            self._begin_at(start_offset)
        self.segments[-1].load()
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(start_offset)
        if not known.clean:
            self._restore_epochs(start_offset, end_offset)
        if self.epochs.entries()[-1:] != last_epoch:
            self._write_epochs()
        self._load_producers(self.segments[0].base_offset, end_offset)
        for segment in self.segments:
            segment.close()  # a log that nobody uses holds no descriptor
        recovery_point = end_offset if known.clean else min(known.recovery_point, end_offset)
        return LogContents(
            self.segments,
            self.epochs,
            self.states,
            self.snapshots,
            self._aborted_transactions(end_offset),
            start_offset,
            end_offset,
            recovery_point,
            known.clean,
        )

    def _aborted_transactions(self, end_offset: int) -> AbortedTransactions:
        """Return the transactions that the files name, if the log still has their markers; rewrite wrong files."""
        indexed = set(offsets_with(self.names, TRANSACTION_INDEX_SUFFIX))
        counts = read_counts(self.disk, self.directory) if ABORTED_TRANSACTIONS_CHECKPOINT in self.names else {}
        found: list[AbortedTransaction] = []
        if indexed or counts:
            ends = [segment.base_offset for segment in self.segments[1:]] + [end_offset]
            for segment, segment_end in zip(self.segments, ends, strict=True):
                expected = counts.get(segment.base_offset)
                if segment.path not in self.recovered and (segment.base_offset in indexed or expected):
                    found += self._indexed(segment, max(segment_end, segment.base_offset + 1), expected)
        aborted = AbortedTransactions(self.disk, found, counts)
        for path, transactions in self.recovered.items():
            aborted.replace(path, transactions)
        aborted.truncate(self.segments[-1].path, end_offset)
        if self.recovered:
            aborted.write_counts(self.directory, [segment.base_offset for segment in self.segments])
        return aborted

    def _indexed(self, segment: Segment, end_offset: int, expected: tuple[int, int] | None) -> list[AbortedTransaction]:
        """Return the transactions in a segment's file, or, if it is not as it was, those in the batches, and rewrite
        it."""
        try:
            return read_index(self.disk, segment.path, end_offset, expected)
        except CorruptIndex as error:
            path = segment.path + TRANSACTION_INDEX_SUFFIX
            logger.warning("%s is made anew from the log: %s", path, error)
        states, found = ProducerStates(), []
        self.snapshots.load(states, self.segments[0].base_offset, segment.base_offset)
        before = self.segments[: self.segments.index(segment)]
        try:
            if before:
                replay(states, before, segment.base_offset)
            for position, header in headers(segment.file, 0, segment.size_bytes):
                transaction = note_stored(states, segment, position, header)
                if transaction is not None:
                    found.append(transaction)
        except CorruptBatch as damage:
            logger.warning("%s: what is known of its aborted transactions is incomplete: %s", path, damage.message)
        segment.close()
        self.disk.write_whole(path, transactions_bytes(found), sync=False)
        return found

    def _read_epochs(self) -> None:
        """The checkpoint is not synced with each change: if it is no good, the batches know the epochs too."""
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        if LEADER_EPOCH_CHECKPOINT in self.names:
            try:
                self.epochs = LeaderEpochs(epochs_from_text(self.disk.read_whole(path)))
            except MalformedCheckpoint as error:
                logger.warning("%s is malformed, and made anew from the log: %s", path, error)
        if self.epochs.latest == UNDEFINED_EPOCH:
            self._gather_epochs()

    def _gather_epochs(self, start_offset: int = 0, end_offset: int = MAX_LONG) -> None:
        """Gather the epochs of the batches between two offsets, as far as they can be read: recovery says where not."""
        with suppress(CorruptBatch):
            for segment in self.segments:
                for _, header in headers(segment.file, 0, segment.size_bytes):
                    if header.base_offset >= end_offset:
                        return
                    if header.next_offset > start_offset:
                        first_offset = max(header.base_offset, start_offset)
                        self.epochs.assign_later(header.partition_leader_epoch, first_offset)

    def _restore_epochs(self, start_offset: int, end_offset: int) -> None:
        """Where deleted records are back, as a crash came before the checkpoint, so are their epochs."""
        known = self.epochs.entries()
        known_from = known[0][1] if known else end_offset
        if known_from <= start_offset:
            return
        self.epochs = LeaderEpochs()
        self._gather_epochs(start_offset, known_from)
        for epoch, first_offset in known:
            self.epochs.assign_later(epoch, first_offset)

    def _end_offset(self, known: Checkpointed) -> int:
        """Where the log ends, once it has been recovered if that is needed."""
        if not self.segments:
            return known.log_start_offset
        if not known.clean:
            return self._recover(known.recovery_point, known.clean_offset)
        try:
            return self._clean_end_offset()
        except CorruptBatch as error:
            if self.guarded:
                raise LostRecords(f"{error.message}, although the last stop was clean") from error
            logger.warning("%s is damaged although the last stop was clean: %s", self.label, error.message)
            return self._recover(self.segments[-1].base_offset, known.clean_offset)

    def _write_epochs(self) -> None:
        """Write the leader epochs into the checkpoint, as the next start draws conclusions from it."""
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        self.disk.write_whole(path, epochs_text(self.epochs.entries()), sync=False)
        self.epochs.changed = True  # until the next flush has synced it

    def _check_end(self, end_offset: int, known: Checkpointed, last_epoch: list[tuple[int, int]], early: bool) -> None:
        """Tell that the log ends before an offset of which it is known that it was reached. Raises `LostRecords`.

        Kafka notes an epoch before its first record (`early`): there, one at the end says nothing.
        """
        reached = max(known.recovery_point, known.high_watermark)
        if self.told:
            return
        if end_offset < reached:
            lost = f"the log in {self.directory} ends at offset {end_offset}, and had reached {reached}"
            if self.guarded and (known.clean or end_offset < known.recovery_point):
                raise LostRecords(lost)
            logger.warning("%s: what followed is lost", lost)
        elif last_epoch and last_epoch[0][1] >= end_offset + early:
            logger.warning(
                "the log in %s ends at offset %d, and leader epoch %d is noted from %d on: if there were records, "
                "they are lost",
                self.directory,
                end_offset,
                *last_epoch[0],
            )

    def _clean_end_offset(self) -> int:
        """The end of the last segment, which is taken back if it is empty and was begun before the previous ended."""
        *_, last = self.segments
        if len(self.segments) > 1 and not last.size_bytes:
            end_offset = self.segments[-2].next_offset()
            if end_offset > last.base_offset:
                self._remove(self.segments.pop())
                return end_offset
        return last.next_offset()

    def _begin_at(self, start_offset: int) -> None:
        """There is no segment, or all lie below the log's start, which means that their records were deleted."""
        if self.segments:
            logger.warning(
                "%s: what is left ends before the log start offset %d; the log begins anew there",
                self.label,
                start_offset,
            )
        new = Segment.create(self.disk, self.directory, start_offset, self.settings, self.now_ms)
        if start_offset:
            self.disk.sync_directory(self.directory)  # without any segment, a start would begin at offset 0
        for segment in self.segments:
            self._remove(segment)
        if self.segments:
            self.disk.sync_directory(self.directory)
        self.segments = [new]
        self.recovered = {new.path: []}  # an index of this name may have been that of a segment that is gone

    def _recover(self, recovery_point: int, clean_offset: int) -> int:
        """Read the segments from the recovery point on, and cut the log where it is not sound; its end offset.

        A power cut may take an unsynced segment and leave a later one. What lies beyond such a gap is no use either,
        unless it was compaction that left the gap. It may also leave segments that a truncation has removed.
        """
        first = max((i for i, s in enumerate(self.segments) if s.base_offset <= recovery_point), default=0)
        next_offset = self.segments[first].base_offset
        self.snapshots.remove_after(next_offset)
        self.epochs.truncate_from_end(next_offset)
        self._load_producers(self.segments[0].base_offset, next_offset)
        for segment in self.segments[first:]:
            if not segment.size_bytes and segment.base_offset < next_offset:
                self._remove(segment)  # of a roll that failed: what came then went to the segment before
                self.segments.remove(segment)
                continue
            compacted = "compact" in self.settings.cleanup_policy or segment.base_offset <= clean_offset
            if segment.base_offset < next_offset or segment.base_offset > next_offset and not compacted:
                before = self.segments[self.segments.index(segment) - 1]
                reason = f"it ends at offset {next_offset}, and the next segment begins at {segment.base_offset}"
                self._cut(before, next_offset, CorruptBatch(reason, before.size_bytes))
                break
            next_offset, problem = self._recover_segment(segment, max(next_offset, segment.base_offset))
            if problem:
                self._cut(segment, next_offset, problem)
                if segment is self.segments[-1]:
                    break
            elif segment is not self.segments[-1]:  # whose indexes are written when it ends, as those of any active one
                segment.finish()
        if FAILED_SYNC in self.names:
            write_again(self.disk, self.directory, self.segments[first:])
            self.epochs.changed = True
        return next_offset

    def _recover_segment(self, segment: Segment, next_offset: int) -> tuple[int, CorruptBatch | None]:
        """Read one segment, making its indexes anew; the offset after its last sound batch, and what is wrong there."""
        self.states.end_offset = next_offset
        self.snapshots.take(self.states, self.segments[0].base_offset)
        noted = segment.noted_last_offset()
        segment.forget()
        aborted: list[AbortedTransaction] = []
        try:
            for position, header in sound_batches(segment.file, 0, segment.size_bytes):
                last_offset = header.base_offset + header.last_offset_delta
                if header.base_offset < next_offset or not segment.indexes.can_name(last_offset):
                    raise misplaced(segment.file, position, header, next_offset)
                segment.note(position, last_offset, header.max_timestamp)
                if header.partition_leader_epoch != self.epochs.latest:
                    self._note_epoch(segment, position, header)
                if header.producer_id >= 0:
                    transaction = note_stored(self.states, segment, position, header)
                    if transaction is not None:
                        aborted.append(transaction)
                next_offset = self.states.end_offset = last_offset + 1
        except CorruptBatch as problem:
            return next_offset, problem
        finally:
            self.recovered[segment.path] = aborted
        if noted >= next_offset:
            reached = f"ends at offset {next_offset}, and had reached {noted + 1}: what followed is lost"
            logger.warning("%s %s", segment.file.path, reached)
        return next_offset, None

    def _note_epoch(self, segment: Segment, position: int, header: BatchHeader) -> None:
        """Take in the leader epoch of a batch. An epoch that is older than one before is logged once."""
        epoch, latest = header.partition_leader_epoch, self.epochs.latest
        if epoch > latest:
            self.epochs.assign(epoch, header.base_offset)
        elif epoch >= 0 and not self.epochs_fall:
            self.epochs_fall = True
            logger.warning(
                "%s: the batch at %d, offset %d, has leader epoch %d, and one before it %d",
                *(segment.file.path, position, header.base_offset, epoch, latest),
            )

    def _cut(self, segment: Segment, end_offset: int, problem: CorruptBatch) -> None:
        """End the log where the sound batches end, and say what is lost.

        A segment that begins right there shows that nothing is: what lies between was never part of the log.
        """
        later = self.segments[self.segments.index(segment) + 1 :]
        if later and later[0].base_offset == end_offset:
            later = []
        if self.guarded:
            self._refuse_damage(segment, end_offset, problem, later)
        preallocated = self.settings.preallocate and not later and is_blank(segment.file, problem.position)
        self.told = not (preallocated or self.guarded)
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
            self._remove(other)
            self.segments.remove(other)
        segment.file.truncate(problem.position)
        segment.size_bytes = problem.position
        segment.finish()
        self.snapshots.remove_after(end_offset)
        if not preallocated:
            self._sync_cut(segment)

    def _refuse_damage(self, segment: Segment, end_offset: int, problem: CorruptBatch, later: list[Segment]) -> None:
        """Raises `LostRecords` unless what is about to be cut off was torn by a crash."""
        damage = f"there are {len(later)} segments behind it" if any(other.size_bytes for other in later) else None
        if damage is None:
            damage = damage_behind(segment.file, problem.position, segment.size_bytes)
        if damage is not None:
            raise LostRecords(
                f"{segment.file.path} is damaged at position {problem.position}, offset {end_offset}: {damage}"
            ) from problem

    def _sync_cut(self, segment: Segment) -> None:
        """Or a power cut may bring back what is cut off, behind what is appended next."""
        try:
            segment.file.sync()
            self.disk.sync_directory(self.directory)
        except OSError:
            remember(self.disk, self.directory)
            raise

    def _remove(self, segment: Segment) -> None:
        segment.close()
        for suffix in SEGMENT_SUFFIXES:
            self.disk.remove(segment.path + suffix)

    def _load_producers(self, start_offset: int, end_offset: int) -> None:
        """Bring the producer states to `end_offset`, by a snapshot and the batches after it, unless recovery has done
        so."""
        if self.states.end_offset == end_offset:
            return
        self.snapshots.load(self.states, start_offset, end_offset)
        try:
            replay(self.states, self.segments, end_offset)
        except CorruptBatch as error:
            logger.warning("%s: what is known of its producers is incomplete: %s", self.label, error.message)
            self.states.end_offset = end_offset
