"""Snapshots of the metadata: which file is taken, and which is not whole."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from minibroker.broker.metadata.metadata_snapshots import (
    find_newest_snapshot,
    find_snapshot_incompleteness,
    iterate_record_values_in,
)
from minibroker.protocol.messages.metadata_records import NoOpRecord, TopicRecord
from minibroker.protocol.records.metadata_values import decode_metadata_record
from minibroker.storage.files import Disk
from tests.broker.metadata_writing import HEADER, batch_of, snapshot_of, write_snapshot

TOPICS = [TopicRecord(name=name, topic_id=bytes(15) + name.encode()) for name in "abc"]
WHOLE = snapshot_of(TOPICS)


def test_the_records_of_a_snapshot_are_between_header_and_footer() -> None:
    assert [decode_metadata_record(value) for _, value in iterate_record_values_in(WHOLE)] == TOPICS


def test_a_directory_without_snapshots_has_none(tmp_path: Path) -> None:
    for name in (
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "00000000000000000007-0000000001.checkpoint.part",
    ):
        (tmp_path / name).write_bytes(WHOLE)
    assert find_newest_snapshot(Disk(), str(tmp_path)) is None


@pytest.mark.parametrize("newest", [(8, 1), (7, 2)])
def test_the_newest_snapshot_has_the_largest_offset_and_then_epoch(tmp_path: Path, newest: tuple[int, int]) -> None:
    write_snapshot(tmp_path, 7, 1, snapshot_of([NoOpRecord()]))
    write_snapshot(tmp_path, *newest, WHOLE)
    found = find_newest_snapshot(Disk(), str(tmp_path))
    assert found is not None
    assert (found.end_offset, found.leader_epoch, found.data) == (*newest, WHOLE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it does not end with a footer"),
        (HEADER, "it does not end with a footer"),
        (HEADER + batch_of(TOPICS), "it does not end with a footer"),
        (WHOLE + batch_of(TOPICS), "it does not end with a footer"),
        (WHOLE[:-1], "its last batch, at .*, is torn"),
        (WHOLE[:-70] + b"\xff" * 70, "CORRUPT_MESSAGE"),
        (b"nonsense" * 20, "CORRUPT_MESSAGE"),
    ],
)
def test_an_incomplete_snapshot_is_skipped_for_an_older_one(
    tmp_path: Path, content: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    older = write_snapshot(tmp_path, 7, 1, WHOLE)
    torn = write_snapshot(tmp_path, 9, 1, content)
    with caplog.at_level(logging.WARNING):
        found = find_newest_snapshot(Disk(), str(tmp_path))
    assert found is not None
    assert found.path == str(older)
    assert f"the snapshot {torn} is skipped: " in caplog.text
    assert re.search(reason, find_snapshot_incompleteness(content) or "")


def test_a_complete_metadata_snapshot_is_recognized() -> None:
    assert find_snapshot_incompleteness(WHOLE) is None
