"""What a log keeps in files beside its segments: snapshots of producers, aborted transactions, leader epochs.

They follow the segments, which come and go as the log decides. What each kind of file holds is in its own module.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.storage.files import Disk, File
from minibroker.storage.leader_epoch_file import LeaderEpochFile
from minibroker.storage.log_contents import LogContents
from minibroker.storage.producer_snapshots import replay
from minibroker.storage.segment import Segment
from minibroker.storage.unsynced import Unsynced


class SideFiles(Unsynced):
    """The files in a log's `directory`, which tell of its producers and its epochs. Methods raise `OSError`."""

    __slots__ = ("aborted", "epoch_file", "_epochs", "_producers", "_snapshots")

    def __init__(self, disk: Disk, directory: str, contents: LogContents) -> None:
        self.aborted = contents.aborted
        self.epoch_file = LeaderEpochFile(contents.epochs, disk, directory)
        self._epochs = contents.epochs
        self._producers = contents.producers
        self._snapshots = contents.snapshots
        super().__init__(disk, directory, (self._snapshots, self.epoch_file, self.aborted))

    def collect(self) -> tuple[list[File], list[str]]:
        """The files and the directories to sync, files first, with all that could not be written before."""
        self.aborted.catch_up()
        return super().collect()

    def finish_segment(self, base_offsets: Sequence[int]) -> None:
        """Write what must be there before another segment begins, or the log is closed; the segments have these."""
        self.aborted.catch_up()
        self.epoch_file.write()
        self._snapshots.take(self._producers, base_offsets[0])
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
