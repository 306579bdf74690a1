"""Directories in which a broker removes files during the check: nothing fails, and nothing false is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from minibroker.pipeline.verifying import log_files
from minibroker.pipeline.verifying.log_files import PartitionPlan, plan_verification_of_directory
from minibroker.pipeline.verifying.verify_job import verify_plan
from tests.pipeline.verifying.support import kinds, written

ALL_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def remove(path: Path, count: int) -> None:
    """Remove the files of the oldest segments, as retention does."""
    for base in sorted(file.stem for file in path.glob("*.log"))[:count]:
        for suffix in ALL_SUFFIXES:
            (path / f"{base}{suffix}").unlink(missing_ok=True)


@pytest.mark.parametrize("count", [1, 3])
def test_segments_deleted_during_the_verification_are_reported_as_notes(tmp_path: Path, count: int) -> None:
    path = written(tmp_path)
    plan = plan_verification_of_directory(str(tmp_path))
    remove(path, count)
    assert kinds(verify_plan(plan)) == {"vanished": count}


def test_a_concurrent_compaction_suppresses_findings_across_its_segment(tmp_path: Path) -> None:
    path = written(tmp_path)
    plan = plan_verification_of_directory(str(tmp_path), compacted=["orders"])
    third = sorted(path.glob("*.log"))[2]
    third.unlink()
    (finding,) = verify_plan(plan)
    assert (finding.kind, finding.severity, finding.file) == ("vanished", "note", f"orders-0/{third.name}")


def test_a_concurrently_deleted_log_is_not_damage(tmp_path: Path) -> None:
    path = written(tmp_path)
    plan = plan_verification_of_directory(str(tmp_path))
    shutil.rmtree(path)
    assert kinds(verify_plan(plan)) == {"vanished": len(plan.segments)}


def test_files_are_listed_again_if_one_is_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    segments_of = log_files.list_segment_plans
    left = [2, 1]

    def removing(partition: PartitionPlan) -> list[log_files.SegmentPlan]:
        if left:
            remove(path, left.pop())
        return segments_of(partition)

    monkeypatch.setattr(log_files, "list_segment_plans", removing)
    plan = plan_verification_of_directory(str(tmp_path))
    assert not left
    assert [each.base_offset for each in plan.segments] == sorted(int(file.stem) for file in path.glob("*.log"))


def test_a_concurrently_deleted_topic_is_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)

    def deleting(partition: PartitionPlan) -> list[log_files.SegmentPlan]:
        shutil.rmtree(path)
        raise FileNotFoundError(partition.directory)

    monkeypatch.setattr(log_files, "list_segment_plans", deleting)
    assert plan_verification_of_directory(str(tmp_path)).partitions == ()
