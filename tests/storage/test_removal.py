"""Files of removed segments go after their time, and one that cannot go stays without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.removal import unlink_later
from tests.storage.support import Surroundings


class StickyDisk(Disk):
    """A disk on which one file cannot be removed."""

    def remove(self, path: str) -> None:
        if path.endswith("sticky"):
            raise PermissionError(13, "Permission denied", path)
        super().remove(path)


def test_files_go_when_their_time_has_come(tmp_path: Path) -> None:
    surroundings = Surroundings()
    path = tmp_path / "0.log.deleted"
    path.touch()
    unlink_later(surroundings.environment, [str(path)], 1000)
    assert path.exists()
    assert [delay_ms for delay_ms, _ in surroundings.scheduled] == [1000]
    surroundings.run_scheduled()
    assert not path.exists()


def test_nothing_to_remove_needs_no_time() -> None:
    surroundings = Surroundings()
    unlink_later(surroundings.environment, [], 1000)
    assert surroundings.scheduled == []


def test_a_file_that_cannot_be_removed_stays_and_the_others_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    surroundings = Surroundings(StickyDisk())
    paths = [tmp_path / "sticky", tmp_path / "other"]
    for path in paths:
        path.touch()
    unlink_later(surroundings.environment, [str(path) for path in paths], 0)
    surroundings.run_scheduled()
    assert [path.exists() for path in paths] == [True, False]
    assert f"{paths[0]} stays until the next start" in caplog.text
