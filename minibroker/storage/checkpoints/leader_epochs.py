"""Which leader epoch began at which offset of one log, and its `leader-epoch-checkpoint`, which remembers that.

The file is written when an epoch begins or goes, and synced with the next flush; its text is `checkpoint_texts.py`'s.
Who is leader is not decided here (KIP-101: an epoch ends where the next one begins).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable

from minibroker.storage.checkpoints.checkpoint_texts import LEADER_EPOCH_CHECKPOINT, epochs_text
from minibroker.storage.files import Disk

logger = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """(epoch, start offset), both increasing. `latest` is the newest epoch, -1 if there is none.

    `changed` says that the checkpoint on the disk is older than this.
    """

    __slots__ = ("latest", "changed", "_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.latest = UNDEFINED_EPOCH
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)
        self.changed = False

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` has begun at `start_offset`, unless it began before.

        Entries that contradict the new one (a later epoch, or a start at or after its start) were never true: they go.
        """
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._note_change()

    def assign_later(self, epoch: int, start_offset: int) -> None:
        """Note an epoch that is found in a batch, in the log's order: only a newer one says something."""
        if epoch > self.latest:
            self.assign(epoch, start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch at or below `epoch`, where it ends), or (-1, -1) if that is not known.

        An epoch below all known ones is answered with itself and the start of the first known one.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        """The epoch under which `offset` was, or would be, written; -1 if it is older than all known ones."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or after `end_offset`: the log now ends there."""
        if not self._starts or self._starts[-1] < end_offset:
            return
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self._note_change()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what is before `start_offset`, where the log now begins; the epoch of that offset begins there."""
        at = bisect_right(self._starts, start_offset) - 1
        if at < 0 or self._starts[at] == start_offset and at == 0:
            return
        del self._epochs[:at], self._starts[:at]
        self._starts[0] = start_offset
        self._note_change()

    def _note_change(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.changed = True


class LeaderEpochFile:
    """Keeps the file of `epochs` up to date. A start after a crash that finds an old one, and any start that finds none
    or a spoilt one, learns the rest from the batches."""

    __slots__ = ("_epochs", "_disk", "_path", "_synced", "_replaces")

    def __init__(
        self, epochs: LeaderEpochs, disk: Disk, directory: str, *, synced: bool = False, is_new: bool = False
    ) -> None:
        """With `synced`, the file on the disk itself says the same; with `is_new` there was never one."""
        self._epochs = epochs
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._synced = synced
        self._replaces = not is_new

    def assign(self, epoch: int, first_offset: int) -> None:
        """Note that a batch of another epoch was appended. What the disk fails with is only logged.

        The batches bear the epoch, where recovery finds it, and the next flush writes it again.
        """
        self._epochs.assign(epoch, first_offset)
        try:
            self.write()
        except OSError as error:
            logger.warning("%s could not be written: %s", self._path, error)

    def write(self) -> None:
        """Bring the file up to date. Raises `OSError`."""
        if self._epochs.changed:
            self._disk.write_whole(self._path, epochs_text(self._epochs.entries()), sync=False)
            self._epochs.changed = False
            self._synced = not self._replaces  # a power cut leaves the first one, or nothing that is taken for one
            self._replaces = True

    def unsynced_paths(self) -> list[str]:
        """The file's path, up to date, if its content may not be on the disk itself. Raises `OSError`."""
        self.write()
        return [] if self._synced or self._epochs.latest == UNDEFINED_EPOCH else [self._path]

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""
        self._synced = True
