"""What lies beside a log's segments follows them: written as one ends, gone with the oldest, cut with the log's end."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.storage.checkpoints.leader_epochs import LeaderEpochs
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.log_state_files import LogContents, LogStateFiles
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
)
from minibroker.storage.producers.producer_snapshots import ProducerSnapshots
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.segment import Segment
from tests.storage.faulty_disk import FaultyDisk

DIRECTORY = "/data/orders-0"
ABORTED = AbortedTransaction(1, 10, 20, 21)


class Made:
    """The files beside two segments, of which the second begins at 25; the log ends at 40."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(Random(1))
        self.disk.make_directory(DIRECTORY)
        self.segments = [Segment.create(self.disk, DIRECTORY, base, LogSettings(), 0) for base in (0, 25)]
        self.contents = LogContents(
            segments=self.segments,
            epochs=LeaderEpochs(),
            producers=ProducerStates(),
            snapshots=ProducerSnapshots(self.disk, DIRECTORY, []),
            aborted=AbortedTransactions(self.disk),
            log_start_offset=0,
            log_end_offset=40,
            recovery_point=0,
            synced=False,
        )
        self.files = LogStateFiles(self.disk, DIRECTORY, self.contents)
        self.files.epoch_file.assign_epoch(0, 0)
        self.files.epoch_file.assign_epoch(1, 25)
        for end_offset in (25, 40):
            self.contents.producers.end_offset = end_offset
            self.contents.snapshots.take_snapshot(self.contents.producers, 0)

    def names(self) -> list[str]:
        """Of the files that are no segments'."""
        return sorted(name for name in self.disk.list_names(DIRECTORY) if not name.endswith(("log", "index")))


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_closed_segment_has_a_snapshot_and_all_its_transactions_written(made: Made) -> None:
    made.disk.failing = {"write"}
    made.files.aborted.add_transaction(made.segments[0].path, ABORTED)
    made.disk.heal()
    made.contents.producers.end_offset = 60
    made.files.write_files_before_roll([0, 25])
    assert "00000000000000000060.snapshot" in made.names()
    assert made.disk.read_whole(f"{made.segments[0].path}.txnindex") != b""


def test_a_transaction_index_that_could_not_be_written_is_written_before_its_fsync(made: Made) -> None:
    made.disk.failing = {"write"}
    made.files.aborted.add_transaction(made.segments[0].path, ABORTED)
    made.disk.heal()
    files, _ = made.files.open_unsynced_files()
    assert f"{made.segments[0].path}.txnindex" in [file.path for file in files]


def test_aborted_transactions_of_deleted_segments_are_removed(made: Made) -> None:
    made.files.aborted.add_transaction(made.segments[0].path, ABORTED)
    made.files.remove_files_before(26)
    assert made.names() == ["00000000000000000040.snapshot", "leader-epoch-checkpoint"]
    assert list(made.files.aborted.list_transactions_between(0, 100)) == []


def test_aborted_transactions_beyond_a_truncation_are_removed(made: Made) -> None:
    made.files.aborted.add_transaction(made.segments[0].path, ABORTED)
    made.files.truncate_to(15, made.segments[:1])
    assert made.names() == ["leader-epoch-checkpoint"]
    assert list(made.files.aborted.list_transactions_between(0, 100)) == []
    assert made.contents.epochs.latest == 0
    assert made.contents.producers.end_offset == 15


def test_snapshots_of_merged_segments_are_removed_except_the_newest(made: Made) -> None:
    made.files.remove_stray_snapshots([0])
    assert made.names() == ["00000000000000000040.snapshot", "leader-epoch-checkpoint"]
