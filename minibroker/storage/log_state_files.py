"""The files of a log beside its segments: producer snapshots, aborted transactions, leader epochs.

They change with the segments, and are synced by the next flush, together with the names in the log's directory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from minibroker.named_tuples import NamedTuple
from minibroker.storage.checkpoints.leader_epochs import LeaderEpochFile, LeaderEpochs
from minibroker.storage.files import Disk, File
from minibroker.storage.producers.aborted_transactions import AbortedTransactions
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots, replay_batches
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.segment import Segment


class LogContents(NamedTuple):
    """The parts of a log that `recovery.py` has found on the disk. There is at least one segment; the oldest is first.

    `synced` says that all of it, with the indexes, is synced; `is_new` that the log was just created.
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


class SyncedFiles(Protocol):
    """Files whose owner keeps track of which may not be synced."""

    def list_unsynced_paths(self) -> Sequence[str]:
        """Write what is out of date, and return the paths of the files that may not be synced. Raises `OSError`."""

    def mark_synced(self) -> None:
        """Mark the files as synced. The caller syncs what `list_unsynced_paths` has returned."""


class UnsyncedFiles:
    """The files in a log's `directory` that may not be synced, of several `owners`.

    Before the first flush, unless `names_synced`, and after `mark_directory_unsynced()`, the names in the directory and
    its own name may not be synced, either.
    """

    __slots__ = ("_disk", "_directory", "_owners", "_names_synced")

    def __init__(
        self, disk: Disk, directory: str, owners: Sequence[SyncedFiles], *, names_synced: bool = False
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._owners = owners
        self._names_synced = names_synced

    def mark_directory_unsynced(self) -> None:
        """Record that a file was created, renamed or removed."""
        self._names_synced = False

    def open_unsynced_files(self) -> tuple[list[File], list[str]]:
        """Return the files and the directories to sync, in this order. Raises `OSError`."""
        paths = [path for owner in self._owners for path in owner.list_unsynced_paths()]
        files = [self._disk.open(path) for path in paths]
        if self._names_synced and not paths:
            return files, []
        return files, [self._directory, os.path.dirname(self._directory)]

    def mark_synced(self) -> None:
        """Mark all as synced. The caller syncs what `open_unsynced_files()` has returned."""
        for owner in self._owners:
            owner.mark_synced()
        self._names_synced = True


class LogStateFiles(UnsyncedFiles):
    """The files of a log's producers and leader epochs in its `directory`. Methods raise `OSError`."""

    __slots__ = ("aborted", "epoch_file", "_epochs", "_producers", "_snapshots")

    def __init__(self, disk: Disk, directory: str, contents: LogContents) -> None:
        self.aborted = contents.aborted
        self.epoch_file = LeaderEpochFile(
            contents.epochs, disk, directory, synced=contents.synced, is_new=contents.is_new
        )
        self._epochs = contents.epochs
        self._producers = contents.producers
        self._snapshots = contents.snapshots
        # Closing a log that never had records syncs nothing.
        names_synced = contents.synced and contents.segments[-1].size_bytes > 0
        super().__init__(disk, directory, (self._snapshots, self.epoch_file, self.aborted), names_synced=names_synced)

    def open_unsynced_files(self) -> tuple[list[File], list[str]]:
        """Write files whose last write has failed, and return the files and directories to sync."""
        self.aborted.write_missing_entries()
        return super().open_unsynced_files()

    def write_files_before_roll(self, base_offsets: Sequence[int], *, with_last_snapshot: bool = False) -> None:
        """Write the files before a new segment begins. `base_offsets` are those of the segments so far.

        With `with_last_snapshot`, the log is being closed. That one is not synced, as it only saves time at a start.
        """
        self.aborted.write_missing_entries()
        self.epoch_file.write_epochs()
        if self._snapshots.take_snapshot(self._producers, base_offsets[0], sync=not with_last_snapshot):
            self.mark_directory_unsynced()  # otherwise an older snapshot of this name may come back after a power cut
        self.aborted.update_entry_count(base_offsets[-1])
        self.aborted.write_entry_counts(self._directory, base_offsets)

    def remove_files_before(self, first_base_offset: int) -> None:
        """Remove the state files of deleted segments. The first one left begins at this offset.

        The epochs are written by the next flush or `close`: a start removes those before the log start offset.
        """
        self._snapshots.remove_snapshots_before(first_base_offset)
        self.aborted.remove_transactions_before(first_base_offset)

    def remove_stray_snapshots(self, base_offsets: Sequence[int]) -> None:
        """Remove the snapshots that belong to none of the log's segments."""
        self._snapshots.remove_stray_snapshots(base_offsets)
        self.aborted.write_entry_counts(self._directory, base_offsets)

    def truncate_to(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Truncate the files to `end_offset`, where the log now ends, and restore the producer states at that offset.

        Raises `CorruptBatch`, too, as it may read batches.
        """
        self._epochs.truncate_from_end(end_offset)
        self.epoch_file.write_epochs()
        self.aborted.truncate_to(segments[-1].path, end_offset)
        self._snapshots.remove_snapshots_after(end_offset)
        self.restore_producer_states(end_offset, segments)

    def restore_producer_states(self, end_offset: int, segments: Sequence[Segment]) -> None:
        """Restore the producer states at `end_offset`, the log's end, from the last snapshot and the batches after it.

        Raises `CorruptBatch`, too.
        """
        self._snapshots.load_newest_snapshot(self._producers, segments[0].base_offset, end_offset)
        replay_batches(self._producers, segments, end_offset)
