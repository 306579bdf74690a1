"""Rebuilding a damaged metadata log: what comes back, and that nothing is touched before it is wanted."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.broker.metadata.metadata_repair import MetadataRepair
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.storage.files import Disk
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.broker.harness import Harness
from tests.broker.transactions.producing import fetched

NOW_MS = 1_700_000_000_000
LOG = "__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A stopped broker's directory with two topics, of which `deleted` is a third that was deleted."""
    harness = Harness(tmp_path)
    harness.create_topic("first", 2, retention_ms="-1")
    harness.create_topic("deleted")
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["deleted"])
    harness.create_topic("second")
    harness.produce("first", "one", partition=1, producer_id=41, producer_epoch=0, base_sequence=0)
    harness.produce("second", "two")
    harness.stop()
    return tmp_path / "data"


def ids(data: Path) -> dict[str, bytes]:
    """The topics' ids, and that their records are there, once a broker has started on it."""
    with Harness(data.parent) as harness:
        assert fetched(harness, "first", 1) == ["one"] and fetched(harness, "second") == ["two"]
        return {name: topic.topic_id for name, topic in harness.cluster.image.topics.items()}


def files(data: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"}


def repair(data: Path, *, apply: bool = True) -> list[str]:
    found = MetadataRepair(Disk(), [str(data)], NOW_MS)
    if apply:
        found.apply_planned_repair()
    found.close()
    return found.steps


def gone(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")


def emptied(data: Path) -> None:
    (data / LOG).write_bytes(b"")


def halved(data: Path) -> None:
    content = (data / LOG).read_bytes()
    (data / LOG).write_bytes(content[: len(content) // 2])


def flipped(data: Path) -> None:
    content = bytearray((data / LOG).read_bytes())
    content[content.index(b"first") + 2] ^= 1
    (data / LOG).write_bytes(content)


def misnumbered(data: Path) -> None:
    """The offset of a batch in the middle, which no checksum protects, has a flipped bit."""
    content = bytearray((data / LOG).read_bytes())
    content[middle_batch(content) + 1] ^= 0x40
    (data / LOG).write_bytes(content)


def middle_batch(content: bytes) -> int:
    starts = [position for position, _ in iterate_batches_in_any_format(bytes(content))]
    return starts[len(starts) // 2]


def renamed(data: Path) -> None:
    file = data / "__cluster_metadata-0" / "partition.metadata"
    file.write_bytes(file.read_bytes().replace(b"AAQ", b"ABQ"))


@pytest.mark.parametrize("damage", [gone, emptied, halved, flipped, renamed])
def test_topics_are_restored_with_their_ids_and_records(data: Path, damage: Callable[[Path], None]) -> None:
    shutil.copytree(data.parent, data.parent / "whole")
    before = ids(data.parent / "whole" / "data")
    damage(data)
    with pytest.raises(MetadataError, match="minibroker repair"):
        Harness(data.parent)
    assert repair(data)
    assert ids(data) == before
    assert ids(data) == before  # and nothing is left that the next start stumbles over
    assert repair(data, apply=False) == []


def test_a_repair_without_confirmation_changes_nothing(data: Path) -> None:
    emptied(data)
    before = files(data)
    assert repair(data, apply=False)
    assert files(data) == before


def test_repairing_a_flipped_bit_in_an_offset_loses_no_records(data: Path) -> None:
    position, content = middle_batch((data / LOG).read_bytes()), (data / LOG).read_bytes()
    offset = int.from_bytes(content[position : position + 8], "big")
    misnumbered(data)
    shutil.copytree(data.parent, data.parent / "copy")
    first, second = repair(data.parent / "copy" / "data")
    assert ids(data.parent / "copy" / "data").keys() == {"first", "second"}
    assert repair(data.parent / "copy" / "data", apply=False) == []
    assert first.endswith(
        f"the offset of the batch at {position} is damaged: {offset | 1 << 54}, where {offset} is next"
    )
    assert re.search(r" \d+ new records?; the old one is kept in a directory that ends with -stray", second)


def test_a_repair_reports_missing_offsets_of_the_metadata_log(data: Path) -> None:
    (data / LOG).rename(data / "__cluster_metadata-0" / f"{7:020d}.log")
    assert any("offsets 0 to 6 are missing" in step for step in repair(data, apply=False))


def test_a_repair_of_a_missing_metadata_log_writes_one_and_keeps_no_old_copy(data: Path) -> None:
    gone(data)
    steps = repair(data, apply=False)
    assert not any("old one" in step for step in steps)
    assert any(step.startswith("__cluster_metadata-0 is written with ") for step in steps)


def test_undamaged_topics_keep_their_configs(data: Path) -> None:
    content = bytearray((data / LOG).read_bytes())
    content[content.index(b"second") + 2] ^= 1
    (data / LOG).write_bytes(content)
    steps = repair(data)
    assert any("bytes at" in step and "are damaged" in step for step in steps)
    assert any("second is restored with the id" in step and "must be set again" in step for step in steps)
    assert not any("first" in step for step in steps)
    with Harness(data.parent) as harness:
        assert harness.cluster.image.topics["first"].overrides == {"retention.ms": "-1"}


def test_no_producer_id_is_assigned_again_after_a_repair(data: Path) -> None:
    gone(data)
    repair(data)
    with Harness(data.parent) as harness:
        assert harness.cluster.image.next_producer_id > 41


def test_a_partition_with_a_missing_directory_starts_empty(data: Path) -> None:
    gone(data)
    shutil.rmtree(data / "first-0")
    steps = repair(data)
    assert "first-0 begins empty, as it has no directory" in steps
    with Harness(data.parent) as harness:
        assert fetched(harness, "first", 0) == [] and fetched(harness, "first", 1) == ["one"]


def test_a_partition_with_a_wrong_topic_id_is_given_the_right_one(data: Path) -> None:
    file = data / "first-1" / "partition.metadata"
    right = file.read_bytes()
    file.write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ")
    (step,) = repair(data)
    assert step.startswith(f"{file} gets the id")
    assert file.read_bytes() == right


def test_an_undamaged_directory_has_nothing_to_repair(data: Path) -> None:
    assert repair(data) == []


def test_a_directory_in_use_is_not_repaired(data: Path) -> None:
    with Harness(data.parent), pytest.raises(LogDirectoryError, match="in use by another process"):
        repair(data)


def test_directories_that_are_not_log_directories_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="has no meta.properties"):
        repair(tmp_path)
