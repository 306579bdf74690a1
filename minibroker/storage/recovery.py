"""Opening a log: what its directory holds, what a crash left there, and what must be read or cut before it is used.

After a clean stop almost nothing is read. After any other, the segments from the recovery point on are read batch by
batch, and the first torn or corrupt batch ends the log. How a log works once it is open is not told here.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from minibroker.protocol.errors import CorruptBatch
from minibroker.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    MalformedCheckpoint,
    epochs_from_text,
    topic_id_from_text,
)
from minibroker.storage.files import Disk
from minibroker.storage.leader_epochs import LeaderEpochs
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producer_snapshots import ProducerSnapshots, replay
from minibroker.storage.producer_state import ProducerStates
from minibroker.storage.scanning import OldMessageFormat, sound_batches
from minibroker.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, Segment

logger = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"


class LogDirectoryError(Exception):
    """Why a log directory cannot be used, in one line that a person can act on."""


class Checkpointed(NamedTuple):
    """What is known of a log before it is opened: whether the last stop was clean, and its checkpointed offsets."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0


def open_log(
    environment: Environment,
    directory: str,
    topic_partition: tuple[str, int],
    settings: LogSettings,
    known: Checkpointed,
) -> Log:
    """Open the log that is in `directory`, recovering it as far as it needs.

    Raises `LogDirectoryError` if the directory cannot be read or written, or holds what cannot be served.
    """
    try:
        return _Opening(environment, directory, topic_partition, settings).open(known)
    except (OSError, OldMessageFormat) as error:
        topic, partition = topic_partition
        raise LogDirectoryError(f"{topic}-{partition} cannot be opened: {error}") from error


class _Opening:
    """One log on the way from its directory to a `Log`."""

    def __init__(
        self, environment: Environment, directory: str, topic_partition: tuple[str, int], settings: LogSettings
    ) -> None:
        self.environment = environment
        self.disk = environment.disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.settings = settings
        self.segments: list[Segment] = []
        self.states = ProducerStates()

    def open(self, known: Checkpointed) -> Log:
        names = settle_leftovers(self.disk, self.directory)
        base_offsets = [base_offset for base_offset in _numbered(names, LOG_SUFFIX)]
        _remove_orphans(self.disk, self.directory, names, set(base_offsets))
        self.segments = [self._segment(base_offset) for base_offset in base_offsets]
        self.snapshots = ProducerSnapshots(self.disk, self.directory, _numbered(names, SNAPSHOT_SUFFIX))
        self.snapshots.remove_strays(base_offsets)
        self.epochs = self._read_epochs(names)
        end_offset = self._end_offset(known)
        start_offset = max(known.log_start_offset, self.segments[0].base_offset if self.segments else 0)
        if not self.segments or start_offset > end_offset:
            end_offset = start_offset
            self._begin_at(start_offset)
        self.segments[-1].load()
        self.epochs.truncate_from_end(end_offset)
        self.epochs.truncate_from_start(start_offset)
        self._load_producers(start_offset, end_offset)
        recovery_point = end_offset if known.clean else min(known.recovery_point, end_offset)
        return self._log(names, (start_offset, end_offset, recovery_point))

    def _log(self, names: list[str], offsets: tuple[int, int, int]) -> Log:
        topic_id = bytes(16)
        if PARTITION_METADATA in names:
            try:
                topic_id = topic_id_from_text(self.disk.read_whole(f"{self.directory}/{PARTITION_METADATA}"))
            except MalformedCheckpoint as error:
                raise LogDirectoryError(f"{self.directory}/{PARTITION_METADATA} is malformed: {error}") from None
        return Log(
            self.environment,
            self.directory,
            self.topic_partition,
            topic_id,
            self.settings,
            self.segments,
            self.epochs,
            (self.states, self.snapshots),
            offsets,
        )

    def _segment(self, base_offset: int) -> Segment:
        return Segment.open(self.disk, self.directory, base_offset, self.settings, self.environment.now_ms())

    def _read_epochs(self, names: list[str]) -> LeaderEpochs:
        if LEADER_EPOCH_CHECKPOINT not in names:
            return LeaderEpochs()
        path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            return LeaderEpochs(epochs_from_text(self.disk.read_whole(path)))
        except MalformedCheckpoint as error:
            raise LogDirectoryError(f"{path} is malformed: {error}") from None

    def _end_offset(self, known: Checkpointed) -> int:
        if not self.segments:
            return known.log_start_offset
        if not known.clean:
            return self._recover(known.recovery_point)
        try:
            return self.segments[-1].next_offset()
        except CorruptBatch as error:
            logger.warning("%s is damaged despite a clean stop, it is recovered: %s", self.directory, error.message)
            return self._recover(self.segments[-1].base_offset)

    def _begin_at(self, start_offset: int) -> None:
        """No segment, or none that reaches the log's start: what is there is below it, and deleted records."""
        for segment in self.segments:
            self._remove(segment)
        self.segments = [
            Segment.create(self.disk, self.directory, start_offset, self.settings, self.environment.now_ms())
        ]

    def _recover(self, recovery_point: int) -> int:
        """Read the segments from the recovery point on, cut the log where it is not sound; its end offset."""
        first = max((i for i, s in enumerate(self.segments) if s.base_offset <= recovery_point), default=0)
        start = self.segments[first].base_offset
        self.snapshots.remove_after(start)
        self.epochs.truncate_from_end(start)
        self.snapshots.load(self.states, self.segments[0].base_offset, start)
        replay(self.states, [s for s in self.segments[:first] if s.base_offset >= self.states.end_offset], start)
        next_offset = start
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            next_offset, problem = self._recover_segment(segment, max(next_offset, segment.base_offset))
            if problem:
                self._cut(index, next_offset, problem)
                break
        return next_offset

    def _recover_segment(self, segment: Segment, next_offset: int) -> tuple[int, CorruptBatch | None]:
        """Read one segment, making its indexes anew; the offset after its last sound batch, and what is wrong there."""
        self.states.end_offset = next_offset
        self.snapshots.take(self.states)
        segment.forget_batches()
        try:
            for position, header in sound_batches(segment.file, 0, segment.size_bytes):
                if header.base_offset < next_offset or not segment.can_name(header.last_offset):
                    raise CorruptBatch(
                        f"{segment.file.path}: the batch at {position} has the offset {header.base_offset} "
                        f"where {next_offset} or a later one must come",
                        position,
                    )
                segment.note(position, header.last_offset, header.max_timestamp)
                if header.partition_leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)
                if header.producer_id >= 0:
                    self.states.update(header, header.base_offset)
                next_offset = self.states.end_offset = header.next_offset
        except CorruptBatch as error:
            return next_offset, error
        return next_offset, None

    def _cut(self, index: int, end_offset: int, problem: CorruptBatch) -> None:
        segment, later = self.segments[index], self.segments[index + 1 :]
        topic, partition = self.topic_partition
        logger.warning(
            "%s-%d: %s is cut at position %d, offset %d; lost are %d bytes, and %d later segments with %d bytes: %s",
            topic,
            partition,
            segment.file.path,
            problem.position,
            end_offset,
            segment.size_bytes - problem.position,
            len(later),
            sum(other.size_bytes for other in later),
            problem.message,
        )
        segment.file.truncate(problem.position)
        segment.size_bytes = problem.position
        for other in later:
            self._remove(other)
        del self.segments[index + 1 :]
        self.snapshots.remove_after(end_offset)

    def _remove(self, segment: Segment) -> None:
        segment.close()
        for suffix in SEGMENT_SUFFIXES:
            self.disk.remove(segment.path + suffix)

    def _load_producers(self, start_offset: int, end_offset: int) -> None:
        self.snapshots.load(self.states, start_offset, end_offset)
        if self.states.end_offset < end_offset:
            replay(self.states, [s for s in self.segments if s.size_bytes], end_offset)


def settle_leftovers(disk: Disk, directory: str) -> list[str]:
    """Finish or undo what a crash interrupted, by Kafka's rules; the names that are there then.

    `.deleted` and `.cleaned` files and temporary ones are removed. `.swap` files are whole and replace their originals,
    unless a `.cleaned` file shows that a later one of the same group was not.
    """
    names = disk.names(directory)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    first_cleaned = min((int(name[:20]) for name in cleaned if name[:20].isdigit()), default=None)
    leftover = False
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(SWAP_SUFFIX):
            leftover = True
            if first_cleaned is not None and name[:20].isdigit() and int(name[:20]) >= first_cleaned:
                disk.remove(path)
        elif name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
            leftover = True
            disk.remove(path)
    return disk.names(directory) if leftover else names


def _numbered(names: list[str], suffix: str) -> list[int]:
    """The offsets that files with this suffix are named by, ascending."""
    return sorted(int(name[:20]) for name in names if name.endswith(suffix) and len(name) == 20 + len(suffix))


def _remove_orphans(disk: Disk, directory: str, names: list[str], base_offsets: set[int]) -> None:
    """Index files without their `.log` file."""
    for suffix in SEGMENT_SUFFIXES[1:]:
        for base_offset in _numbered(names, suffix):
            if base_offset not in base_offsets:
                logger.warning("%s: an index without a log is removed", f"{directory}/{base_offset:020d}{suffix}")
                disk.remove(f"{directory}/{base_offset:020d}{suffix}")
