"""A rewriting that is killed goes on where it came; whatever else is in the way is refused, and nothing is harmed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.pipeline.rewriting import directory
from minibroker.pipeline.rewriting.batch_conversion import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.directory import DirectoryRewriting, SegmentRewriting, rewrite_directory
from tests.pipeline.rewriting import killed
from tests.pipeline.rewriting.directories import all_files, every_codec, idempotent, make_log, seen, transactions
from tests.storage.support import files_in

SETTINGS = RewriteSettings(batch_bytes=300)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory of two logs of several segments each."""
    for partition in range(2):
        make_log(tmp_path / "old" / f"orders-{partition}", idempotent, transactions, every_codec)
    (tmp_path / "old" / "meta.properties").write_text("version=1\nnode.id=1\n")
    return tmp_path / "old"


def test_a_killed_rewrite_continues_without_repeating_segments(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite_directory(str(old), str(tmp_path / "whole"), SETTINGS)
    command = [sys.executable, killed.__file__, str(old), str(tmp_path / "new"), "3"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with pytest.raises(RewriteError, match="in use by another process"):
            rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
        process.kill()
    assert not list((tmp_path / "new").glob("orders-*"))
    done = sorted((tmp_path / "new" / ".rewrite" / "done").iterdir())
    assert len(done) == 3
    before = {path: path.stat().st_mtime_ns for path in done}
    with DirectoryRewriting(str(old), str(tmp_path / "new"), SETTINGS) as rewriting:
        assert len(rewriting.list_unfinished_segments()) == len(rewriting.plan.tasks) - 3
        for task in rewriting.plan.tasks:
            SegmentRewriting(rewriting.source, rewriting.target, SETTINGS)(task)
        assert {path: path.stat().st_mtime_ns for path in done} == before
        rewriting.finish()
    assert all_files(tmp_path / "new") == all_files(tmp_path / "whole")


def test_a_finished_log_is_not_rewritten_again(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = directory.RewriteWorkspace.finish_log

    def fail(self: directory.RewriteWorkspace, *arguments: object, **more: object) -> None:
        if arguments[1] == "orders-1":
            raise OSError("the disk is full")
        finish(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(directory.RewriteWorkspace, "finish_log", fail)
    with pytest.raises(OSError, match="full"):
        rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "new").glob("orders-*")] == ["orders-0"]
    finished = files_in(tmp_path / "new" / "orders-0")
    report = rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert files_in(tmp_path / "new" / "orders-0") == finished
    assert seen(tmp_path / "new" / "orders-1") == seen(old / "orders-1")
    assert report.total.bytes_before == sum(path.stat().st_size for path in old.rglob("*.log"))


def test_a_finished_rewrite_leaves_a_log_directory_and_a_note(old: Path, tmp_path: Path) -> None:
    rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    names = {".lock", ".kafka_cleanshutdown", "meta.properties", ".rewritten", "orders-0", "orders-1"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    for path in old.rglob("*.log"):
        assert (
            tmp_path / "new" / path.relative_to(old)
        ).stat().st_mtime_ns // 10**6 == path.stat().st_mtime_ns // 10**6


def test_a_non_empty_target_directory_is_rejected(old: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "letter").write_text("dear")
    with pytest.raises(RewriteError, match="not empty"):
        rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["letter"]


def test_a_finished_rewrite_run_again_does_nothing(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    report = rewrite_directory(str(old), str(new), SETTINGS)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in new.rglob("*")}
    assert rewrite_directory(str(old), str(new), SETTINGS) == report
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in new.rglob("*")} == before
    with pytest.raises(RewriteError, match="new has a rewriting with other settings: remove the directory"):
        rewrite_directory(str(old), str(new), RewriteSettings(batch_bytes=4321))
    next(old.rglob("*.log")).touch()
    with pytest.raises(RewriteError, match="new has a rewriting of a directory that has changed since: remove"):
        rewrite_directory(str(old), str(new), SETTINGS)


def test_a_rewritten_directory_can_be_rewritten_again(old: Path, tmp_path: Path) -> None:
    rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    rewrite_directory(str(tmp_path / "new"), str(tmp_path / "newer"), SETTINGS)
    assert rewrite_directory(str(tmp_path / "new"), str(tmp_path / "newer"), SETTINGS).target.endswith("newer")


@pytest.mark.parametrize("place", ["old", "old/new", "."])
def test_nested_source_and_target_directories_are_rejected(old: Path, tmp_path: Path, place: str) -> None:
    with pytest.raises(RewriteError, match="neither of the two"):
        rewrite_directory(str(old), str(tmp_path / place), SETTINGS)


def test_a_rewrite_with_other_settings_or_a_changed_source_is_not_continued(old: Path, tmp_path: Path) -> None:
    with DirectoryRewriting(str(old), str(tmp_path / "new"), SETTINGS) as rewriting:
        SegmentRewriting(rewriting.source, rewriting.target, SETTINGS)(rewriting.list_unfinished_segments()[0])
    with pytest.raises(RewriteError, match="a rewriting with other settings"):
        rewrite_directory(str(old), str(tmp_path / "new"), RewriteSettings(batch_bytes=100))
    with (old / "orders-0" / "00000000000000000000.log").open("ab") as file:
        file.write(b"more")
    with pytest.raises(RewriteError, match="has changed since"):
        rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)


def test_a_rewrite_rejected_at_its_start_does_not_block_the_next(old: Path, tmp_path: Path) -> None:
    DirectoryRewriting(str(old), str(tmp_path / "new"), RewriteSettings(batch_bytes=100)).__enter__().__exit__(
        None, None, None
    )
    rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert (tmp_path / "new" / "orders-1").is_dir()
    with pytest.raises(RewriteError, match="no topic nothing"):
        rewrite_directory(str(old), str(tmp_path / "none"), SETTINGS, ["nothing"])
    assert not (tmp_path / "none").exists()


def test_damage_is_reported_and_nothing_is_written(old: Path, tmp_path: Path) -> None:
    path = old / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        RewriteError, match=r"orders-0/00000000000000000000\.log: the batch at position \d+, offset \d+"
    ):
        rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert not (tmp_path / "new" / "orders-0").exists()


def test_a_torn_end_is_omitted_and_reported(old: Path, tmp_path: Path) -> None:
    (old / ".kafka_cleanshutdown").unlink()
    path = sorted((old / "orders-0").glob("*.log"))[-1]
    before = seen(old / "orders-0")
    path.write_bytes(path.read_bytes() + b"\0" * 8 + b"torn")
    report = rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert report.total.lost_bytes == 12
    assert seen(tmp_path / "new" / "orders-0") == before
    assert not (tmp_path / "new" / ".kafka_cleanshutdown").exists()


def test_a_directory_with_an_interrupted_swap_is_rejected_with_the_remedy(old: Path, tmp_path: Path) -> None:
    (old / "orders-1" / "00000000000000000000.log.swap").touch()
    with pytest.raises(RewriteError, match="start a broker"):
        rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)


def test_a_directory_without_logs_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(RewriteError, match="has no logs"):
        rewrite_directory(str(tmp_path / "old"), str(tmp_path / "new"), SETTINGS)


def test_deleted_and_set_aside_logs_are_not_copied(old: Path, tmp_path: Path) -> None:
    for suffix in ("delete", "stray", "future"):
        (old / f"gone-0.{'0' * 32}-{suffix}").mkdir()
    rewrite_directory(str(old), str(tmp_path / "new"), SETTINGS)
    assert not list((tmp_path / "new").glob("gone*"))
