"""The leader epochs of one log with their start offsets, and the `leader-epoch-checkpoint` that stores them.

The file is written when an epoch begins or is removed, and synced with the next flush. An epoch ends where the next one
begins (KIP-101).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable

from minibroker.storage.checkpoints.checkpoint_texts import LEADER_EPOCH_CHECKPOINT, format_leader_epochs
from minibroker.storage.files import Disk

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Rows of (epoch, start offset), both increasing. `latest` is the newest epoch, -1 if there is none.

    `changed` is true while the checkpoint file is out of date.
    """

    __slots__ = ("latest", "changed", "_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.latest = UNDEFINED_EPOCH
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign_epoch(epoch, start_offset)
        self.changed = False

    def list_entries(self) -> list[tuple[int, int]]:
        """Return the (epoch, start offset) rows, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at `start_offset`, unless it has begun before.

        Entries that contradict the new one (a later epoch, or a start at or after its start) are removed.
        """
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._mark_file_outdated()

    def assign_epoch_if_newer(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a batch, if it is newer than all others. Call it in the order of the log."""
        if epoch > self.latest:
            self.assign_epoch(epoch, start_offset)

    def find_end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (the largest epoch at or below `epoch`, its end offset), or (-1, -1) if that is not known.

        For an epoch below all known ones, return that epoch and the start offset of the first known one.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def find_epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`, -1 if it is older than all known epochs."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after `end_offset`, where the log now ends."""
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self._mark_file_outdated()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end before `start_offset`, where the log now begins. The epoch there begins there."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or self._starts[at] == start_offset and at == 0:
            return
        del self._epochs[:at], self._starts[:at]
        self._starts[0] = start_offset
        self._mark_file_outdated()

    def _mark_file_outdated(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.changed = True


class LeaderEpochFile:
    """The file of `epochs`. If it is missing, damaged, or old after a crash, a start reads the epochs from batches."""

    __slots__ = ("_epochs", "_disk", "_path", "_synced", "_replaces")

    def __init__(
        self, epochs: LeaderEpochs, disk: Disk, directory: str, *, synced: bool = False, is_new: bool = False
    ) -> None:
        """Take a log's epochs. `synced`: the file is up to date and synced. `is_new`: there has never been a file."""
        self._epochs = epochs
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._synced = synced
        self._replaces = not is_new

    def assign_epoch(self, epoch: int, first_offset: int) -> None:
        """Add the epoch of an appended batch, and write the file. An OSError is only logged.

        Recovery finds the epoch in the batches, and the next flush writes the file again.
        """
        self._epochs.assign_epoch(epoch, first_offset)
        try:
            self.write_epochs()
        except OSError as error:
            logger.warning("%s could not be written: %s", self._path, error)

    def write_epochs(self) -> None:
        """Write the file if it is out of date. Raises `OSError`."""
        if self._epochs.changed:
            self._disk.write_whole(self._path, format_leader_epochs(self._epochs.list_entries()), sync=False)
            self._epochs.changed = False
            self._synced = not self._replaces  # a power cut leaves the first file whole, or visibly without content
            self._replaces = True

    def list_unsynced_paths(self) -> list[str]:
        """Write the file, and return its path in a list if it needs a sync. Raises `OSError`."""
        self.write_epochs()
        return [] if self._synced or self._epochs.latest == UNDEFINED_EPOCH else [self._path]

    def mark_synced(self) -> None:
        """Mark the file as synced. The caller syncs what `list_unsynced_paths` has returned."""
        self._synced = True
