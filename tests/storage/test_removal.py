"""Files of removed segments and logs go after their time, and one that cannot go stays without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.removal import TreeRemoval, remove_files_later
from tests.storage.support import Aside, Surroundings


class StickyDisk(Disk):
    """A disk on which one file cannot be removed."""

    def remove(self, path: str) -> None:
        if path.endswith("sticky"):
            raise PermissionError(13, "Permission denied", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        if path.endswith("sticky"):
            raise PermissionError(13, "Permission denied", path)
        super().remove_tree(path)


def test_deleted_files_are_removed_after_their_delay(tmp_path: Path) -> None:
    surroundings = Surroundings()
    path = tmp_path / "0.log.deleted"
    path.touch()
    remove_files_later(surroundings.environment, [str(path)], 1000)
    assert path.exists()
    assert [delay_ms for delay_ms, _ in surroundings.scheduled] == [1000]
    surroundings.run_scheduled()
    assert not path.exists()


def test_removing_no_files_sets_no_timer() -> None:
    surroundings = Surroundings()
    remove_files_later(surroundings.environment, [], 1000)
    assert surroundings.scheduled == []


def test_a_file_that_cannot_be_removed_stays_and_the_others_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    surroundings = Surroundings(StickyDisk())
    paths = [tmp_path / "sticky", tmp_path / "other"]
    for path in paths:
        path.touch()
    remove_files_later(surroundings.environment, [str(path) for path in paths], 0)
    surroundings.run_scheduled()
    assert [path.exists() for path in paths] == [True, False]
    assert f"{paths[0]} stays until the next start" in caplog.text


def trees(directory: Path, *names: str) -> list[Path]:
    paths = [directory / name for name in names]
    for path in paths:
        path.mkdir()
        (path / "0.log").touch()
    return paths


def test_directories_are_removed_by_at_most_one_other_thread(tmp_path: Path) -> None:
    surroundings, aside = Surroundings(), Aside()
    removal = TreeRemoval(surroundings.environment._replace(run_in_thread=aside.take))
    paths = trees(tmp_path, "a", "b", "c")
    for path in paths:
        removal.remove_tree_later(str(path), 1000)
    surroundings.run_scheduled()
    left = []
    while aside.jobs:
        assert len(aside.jobs) == 1
        left.append(sum(path.exists() for path in paths))
        aside.do()
    assert left == [3, 2, 1]
    assert not any(path.exists() for path in paths)
    (again,) = trees(tmp_path, "d")
    removal.remove_tree_later(str(again), 1000)
    surroundings.run_scheduled()
    aside.do()
    assert not again.exists()


def test_a_directory_that_cannot_be_removed_stays_and_the_others_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    surroundings = Surroundings(StickyDisk())
    removal = TreeRemoval(surroundings.environment)
    paths = trees(tmp_path, "sticky", "other", "also sticky")
    for path in paths[:2]:
        removal.remove_tree_later(str(path), 0)
    surroundings.run_scheduled()
    removal.remove_tree_now(str(paths[2]))
    assert [path.exists() for path in paths] == [True, False, True]
    assert f"{paths[0]} stays until the next start" in caplog.text
    assert f"{paths[2]} stays until the next start" in caplog.text
