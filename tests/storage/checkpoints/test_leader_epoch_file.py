"""The leader epochs' checkpoint is written when they have changed, and offered for the next sync once."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.checkpoints.leader_epochs import LeaderEpochFile, LeaderEpochs
from tests.storage.support import FailingDisk


def test_it_is_written_when_an_epoch_begins_and_only_then(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    file = LeaderEpochFile(epochs, FailingDisk(), str(tmp_path))
    path = tmp_path / "leader-epoch-checkpoint"
    file.write()
    assert not path.exists()
    epochs.assign(3, 17)
    file.write()
    assert path.read_bytes() == b"0\n1\n3 17\n"
    path.unlink()
    file.write()
    assert not path.exists()


def test_there_is_nothing_to_sync_without_epochs_or_after_a_sync(tmp_path: Path) -> None:
    epochs = LeaderEpochs()
    file = LeaderEpochFile(epochs, FailingDisk(), str(tmp_path))
    assert file.unsynced_paths() == []
    epochs.assign(0, 0)
    assert file.unsynced_paths() == file.unsynced_paths() == [f"{tmp_path}/leader-epoch-checkpoint"]
    file.note_synced()
    assert file.unsynced_paths() == []
    epochs.assign(1, 5)
    assert file.unsynced_paths() == [f"{tmp_path}/leader-epoch-checkpoint"]
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n1 5\n"


def test_a_failed_write_is_made_up_for_by_the_next(tmp_path: Path) -> None:
    epochs, disk = LeaderEpochs(), FailingDisk()
    file = LeaderEpochFile(epochs, disk, str(tmp_path))
    epochs.assign(0, 0)
    disk.failing = {"rename"}
    with pytest.raises(OSError):
        file.write()
    disk.failing = set()
    assert file.unsynced_paths() != []
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
