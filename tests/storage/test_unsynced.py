"""What a log has written without a sync beside its segments: each file is synced once, with the names it needs."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.storage.checkpoints.leader_epochs import LeaderEpochFile, LeaderEpochs
from minibroker.storage.log_state_files import UnsyncedFiles
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots
from minibroker.storage.producers.producer_state import ProducerStates
from tests.storage.faulty_disk import FaultyDisk

DIRECTORY = "/data/orders-0"
DIRECTORIES = [DIRECTORY, "/data"]


class Made:
    """All that belongs to it, in a directory of its own."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(Random(1))
        self.disk.make_directory(DIRECTORY)
        self.epochs = LeaderEpochs()
        self.snapshots = ProducerSnapshots(self.disk, DIRECTORY, [])
        epoch_file = LeaderEpochFile(self.epochs, self.disk, DIRECTORY)
        self.unsynced = UnsyncedFiles(self.disk, DIRECTORY, (self.snapshots, epoch_file))

    def collected(self) -> tuple[list[str], list[str]]:
        """(names of the files, directories)."""
        files, directories = self.unsynced.open_unsynced_files()
        return [file.path.removeprefix(f"{DIRECTORY}/") for file in files], directories


@pytest.fixture
def made() -> Made:
    return Made()


def test_the_file_names_of_a_new_log_are_fsynced_once(made: Made) -> None:
    assert made.collected() == ([], DIRECTORIES)
    made.unsynced.mark_synced()
    assert made.collected() == ([], [])


def test_a_changed_directory_is_fsynced_even_if_no_file_is(made: Made) -> None:
    made.unsynced.mark_synced()
    made.unsynced.mark_directory_unsynced()
    assert made.collected() == ([], DIRECTORIES)


def test_files_are_fsynced_once_with_their_names(made: Made) -> None:
    made.unsynced.mark_synced()
    made.epochs.assign_epoch(3, 0)
    states = ProducerStates()
    states.end_offset = 5
    made.snapshots.take_snapshot(states, 0)
    files = ["00000000000000000005.snapshot", "leader-epoch-checkpoint"]
    assert made.collected() == (files, DIRECTORIES)
    made.unsynced.mark_synced()
    assert made.collected() == ([], [])


def test_files_whose_fsync_could_not_begin_stay_unsynced(made: Made) -> None:
    made.epochs.assign_epoch(3, 0)
    made.disk.failing = {"open"}
    with pytest.raises(OSError, match="Input/output error"):
        made.unsynced.open_unsynced_files()
    made.disk.heal()
    assert made.collected() == (["leader-epoch-checkpoint"], DIRECTORIES)
