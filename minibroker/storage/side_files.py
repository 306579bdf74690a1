"""What a log keeps in files beside its segments: snapshots of producers, aborted transactions, leader epochs.

They follow the segments, which come and go as the log decides, and become part of its next flush, as the names in its
directory do. What each kind of file holds is in its own module; finding all of it on the disk is `recovery.py`'s
business.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from minibroker.storage.checkpoints.leader_epochs import LeaderEpochFile, LeaderEpochs
from minibroker.storage.files import Disk, File
from minibroker.storage.producers.aborted_transactions import AbortedTransactions
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots, replay
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.segment import Segment


class LogContents(NamedTuple):
    """The parts of a log, found on the disk by `recovery.py`. There is at least one segment, oldest first.

    `synced` says that all of it, the indexes included, is known to be on the disk itself; `is_new` that there was
    nothing of it before.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    aborted: AbortedTransactions
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    synced: bool
    is_new: bool = False


class KeptFiles(Protocol):
    """Files that somebody else writes."""

    def unsynced_paths(self) -> Sequence[str]:
        """The paths of those that may not be on the disk itself. Raises `OSError`."""

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""


class Unsynced:
    """The files in a log's `directory` that may not be on the disk itself, `kept` by several.

    Nor may be the names in it, nor its own, before the first flush unless `names_synced`, and after `names_change()`.
    """

    __slots__ = ("_disk", "_directory", "_kept", "_names_synced")

    def __init__(self, disk: Disk, directory: str, kept: Sequence[KeptFiles], *, names_synced: bool = False) -> None:
        self._disk = disk
        self._directory = directory
        self._kept = kept
        self._names_synced = names_synced

    def names_change(self) -> None:
        """A file is made, renamed or removed."""
        self._names_synced = False

    def collect(self) -> tuple[list[File], list[str]]:
        """The files and the directories to sync, files first. Raises `OSError`."""
        paths = [path for kept in self._kept for path in kept.unsynced_paths()]
        files = [self._disk.open(path) for path in paths]
        if self._names_synced and not paths:
            return files, []
        return files, [self._directory, os.path.dirname(self._directory)]

    def note_synced(self) -> None:
        """The caller sees to the sync of what `collect()` gave."""
        for kept in self._kept:
            kept.note_synced()
        self._names_synced = True


class SideFiles(Unsynced):
    """The files in a log's `directory`, which tell of its producers and its epochs. Methods raise `OSError`."""

    __slots__ = ("aborted", "epoch_file", "_epochs", "_producers", "_snapshots")

    def __init__(self, disk: Disk, directory: str, contents: LogContents) -> None:
        self.aborted = contents.aborted
        self.epoch_file = LeaderEpochFile(
            contents.epochs, disk, directory, synced=contents.synced, is_new=contents.is_new
        )
        self._epochs = contents.epochs
        self._producers = contents.producers
        self._snapshots = contents.snapshots
        # A stop syncs nothing of a log that never had records.
        names_synced = contents.synced and contents.segments[-1].size_bytes > 0
        super().__init__(disk, directory, (self._snapshots, self.epoch_file, self.aborted), names_synced=names_synced)

    def collect(self) -> tuple[list[File], list[str]]:
        """The files and the directories to sync, files first, with all that could not be written before."""
        self.aborted.catch_up()
        return super().collect()

    def finish_segment(self, base_offsets: Sequence[int], *, last: bool = False) -> None:
        """Write what must be there before another segment begins; the segments have these base offsets.

        Or, with `last`, before the log is closed. Its last snapshot only spares a start reading, so it is not synced.
        """
        self.aborted.catch_up()
        self.epoch_file.write()
        if self._snapshots.take(self._producers, base_offsets[0], sync=not last):
            self.names_change()  # or an older snapshot, cut off since, may come back under this name
        self.aborted.count(base_offsets[-1])
        self.aborted.write_counts(self._directory, base_offsets)

    def begin_at(self, first_base_offset: int) -> None:
        """Remove what was of segments before the one that is now the first.

        The epochs are written with the next flush, or at the end: a start cuts off what lies before the log's itself.
        """
        self._snapshots.remove_before(first_base_offset)
        self.aborted.remove_before(first_base_offset)

    def keep_of(self, base_offsets: Sequence[int]) -> None:
        """Remove the snapshots that are of none of these segments, which are the log's."""
        self._snapshots.remove_strays(base_offsets)
        self.aborted.write_counts(self._directory, base_offsets)

    def end_at(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Follow the log, which now ends there in the last of these segments; restore the producers' states of then.

        Raises `CorruptBatch`, too, as the batches may have to be read for it.
        """
        self._epochs.truncate_from_end(end_offset)
        self.epoch_file.write()
        self.aborted.truncate(segments[-1].path, end_offset)
        self._snapshots.remove_after(end_offset)
        self.restore_producers(end_offset, segments)

    def restore_producers(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Read the producers' states at `end_offset`, where the log ends, from the last snapshot and the batches.

        Raises `CorruptBatch`, too.
        """
        self._snapshots.load(self._producers, segments[0].base_offset, end_offset)
        replay(self._producers, segments, end_offset)
