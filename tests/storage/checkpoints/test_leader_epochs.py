"""Leader epochs of one log, compared with the rules of Kafka's LeaderEpochFileCache.

That a log keeps them up to date is tested in `test_log.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.checkpoints.leader_epochs import LeaderEpochFile, LeaderEpochs
from tests.cases import for_each
from tests.storage.support import FailingDisk

ENTRIES = [(0, 0), (2, 10), (5, 30)]


def test_an_empty_log_has_no_leader_epochs() -> None:
    epochs = LeaderEpochs()
    assert epochs.latest == -1
    assert epochs.find_end_offset(0, 100) == (-1, -1)
    assert epochs.find_epoch_at(5) == -1
    assert not epochs.changed


@for_each(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),  # an undefined epoch
        (0, (0, 10)),
        (1, (0, 10)),  # not known: the one before it, which ended where the next one began
        (2, (2, 30)),
        (4, (2, 30)),
        (5, (5, 100)),  # the present one ends where the log ends
        (6, (-1, -1)),  # later than any
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(epoch: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).find_end_offset(epoch, 100) == answer


def test_an_epoch_before_all_known_ones_ends_where_the_first_begins() -> None:
    assert LeaderEpochs([(5, 30), (7, 40)]).find_end_offset(3, 100) == (3, 30)


def test_assigning_the_latest_leader_epoch_again_changes_nothing() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign_epoch(5, 31)
    assert not epochs.changed
    epochs.assign_epoch(6, 40)
    assert epochs.changed
    assert epochs.latest == 6
    assert epochs.list_entries() == [*ENTRIES, (6, 40)]


def test_a_leader_epoch_replaces_those_that_begin_at_or_after_its_start() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign_epoch(6, 10)
    assert epochs.list_entries() == [(0, 0), (6, 10)]
    epochs.assign_epoch(3, 20)
    assert epochs.list_entries() == [(0, 0), (3, 20)]


def test_batches_without_an_epoch_add_none() -> None:
    epochs = LeaderEpochs()
    epochs.assign_epoch(-1, 0)
    epochs.assign_epoch_if_newer(-1, 0)
    assert epochs.list_entries() == []


def test_only_newer_epochs_in_batches_are_added() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign_epoch_if_newer(4, 50)
    epochs.assign_epoch_if_newer(6, 60)
    assert epochs.list_entries() == [*ENTRIES, (6, 60)]


@for_each(
    ("end_offset", "left"),
    [(100, ENTRIES), (31, ENTRIES), (30, ENTRIES[:2]), (11, ENTRIES[:2]), (10, ENTRIES[:1]), (0, [])],
)
def test_truncating_the_end_removes_epochs_that_began_there(end_offset: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end_offset)
    assert epochs.list_entries() == left
    assert epochs.latest == (left[-1][0] if left else -1)
    assert epochs.changed == (left != ENTRIES)


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, ENTRIES),
        (5, [(0, 5), (2, 10), (5, 30)]),
        (10, [(2, 10), (5, 30)]),
        (11, [(2, 11), (5, 30)]),
        (40, [(5, 40)]),
    ],
)
def test_truncating_the_start_moves_the_start_of_its_epoch(start_offset: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start_offset)
    assert epochs.list_entries() == left
    assert epochs.changed == (left != ENTRIES)


def test_truncating_before_the_first_epoch_changes_nothing() -> None:
    epochs = LeaderEpochs([(3, 10)])
    epochs.truncate_from_start(5)
    assert epochs.list_entries() == [(3, 10)]


@for_each(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (29, 2), (30, 5), (1000, 5)])
def test_an_offset_belongs_to_the_last_epoch_that_began_at_or_before_it(offset: int, epoch: int) -> None:
    assert LeaderEpochs(ENTRIES).find_epoch_at(offset) == epoch


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_epochs_and_their_start_offsets_always_increase(assigned: list[tuple[int, int]]) -> None:
    entries = LeaderEpochs(assigned).list_entries()
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(entries, entries[1:], strict=False))
    if assigned:
        assert entries[-1][0] == assigned[-1][0]


def test_the_epoch_checkpoint_is_written_only_when_an_epoch_begins(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    file = LeaderEpochFile(epochs, FailingDisk(), str(tmp_path))
    path = tmp_path / "leader-epoch-checkpoint"
    file.write_epochs()
    assert not path.exists()
    epochs.assign_epoch(3, 17)
    file.write_epochs()
    assert path.read_bytes() == b"0\n1\n3 17\n"
    path.unlink()
    file.write_epochs()
    assert not path.exists()


def test_an_epoch_checkpoint_without_changes_needs_no_fsync(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    file = LeaderEpochFile(epochs, FailingDisk(), str(tmp_path))
    assert file.list_unsynced_paths() == []
    epochs.assign_epoch(0, 0)
    assert file.list_unsynced_paths() == file.list_unsynced_paths() == [f"{tmp_path}/leader-epoch-checkpoint"]
    file.mark_synced()
    assert file.list_unsynced_paths() == []
    epochs.assign_epoch(1, 5)
    assert file.list_unsynced_paths() == [f"{tmp_path}/leader-epoch-checkpoint"]
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n1 5\n"


def test_an_epoch_checkpoint_that_could_not_be_written_is_written_before_its_fsync(tmp_path: Path) -> None:
    epochs, disk = LeaderEpochs(), FailingDisk()
    file = LeaderEpochFile(epochs, disk, str(tmp_path))
    epochs.assign_epoch(0, 0)
    disk.failing = {"rename"}
    with pytest.raises(OSError):
        file.write_epochs()
    disk.failing = set()
    assert file.list_unsynced_paths() != []
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
