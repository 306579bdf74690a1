"""The file `leader-epoch-checkpoint` of one log: written when an epoch begins or goes, synced with the next flush.

Which epoch began where is `leader_epochs.py`'s business, the text is `checkpoints.py`'s.
"""

from __future__ import annotations

import logging

from minibroker.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, epochs_text
from minibroker.storage.files import Disk
from minibroker.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs

logger = logging.getLogger(__name__)


class LeaderEpochFile:
    """Keeps the file of `epochs` up to date. A start that finds an old one learns the rest from the batches."""

    __slots__ = ("_epochs", "_disk", "_path", "_synced")

    def __init__(self, epochs: LeaderEpochs, disk: Disk, directory: str) -> None:
        self._epochs = epochs
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._synced = False  # the file on the disk itself is the one that was written last

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
            self._synced = False

    def unsynced_paths(self) -> list[str]:
        """The file's path, up to date, if its content may not be on the disk itself. Raises `OSError`."""
        self.write()
        return [] if self._synced or self._epochs.latest == UNDEFINED_EPOCH else [self._path]

    def note_synced(self) -> None:
        """The caller sees to the sync of what `unsynced_paths` gave."""
        self._synced = True
