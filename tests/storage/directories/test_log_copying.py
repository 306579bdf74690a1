"""A copy of a log that is made piece by piece, while the log changes. Moves of logs are tested in `broker/control`."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.directories import log_copying
from minibroker.storage.directories.log_copying import LogCopy
from minibroker.storage.log import Log
from minibroker.storage.names import LOG_SUFFIX, make_segment_name
from tests.storage.support import SMALL, Surroundings, append, batch, open_at
from tests.storage.test_flushing import NotingDisk

PIECE_BYTES = 100


@pytest.fixture
def disk() -> NotingDisk:
    return NotingDisk()


@pytest.fixture
def log(tmp_path: Path, disk: NotingDisk, monkeypatch: pytest.MonkeyPatch) -> Log:
    """A log of several segments, each of which takes several pieces."""
    monkeypatch.setattr(log_copying, "CHUNK_BYTES", PIECE_BYTES)
    (tmp_path / "copy").mkdir()
    log = open_at(tmp_path / "orders-0", SMALL, surroundings=Surroundings(disk))
    for _ in range(30):
        append(log, batch(2))
    return log


def copy_piece(copy: LogCopy) -> bool:
    """Copy the next piece of a closed segment. Return False if the copy has all."""
    segment = copy.find_segment_to_copy()
    if segment is not None:
        copy.make_copy_work_of_segment(segment)()
        copy.record_copied_part_of_segment(segment)
    return segment is not None


def copy_rest(copy: LogCopy) -> None:
    pieces = 0
    while copy_piece(copy):
        pieces += 1
        assert pieces <= sum(segment.size_bytes // PIECE_BYTES + 1 for segment in copy.log.segments)
    copy.make_copy_work_of_tail()()
    assert copy.is_almost_complete()


def records_of(directory: Path | str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(directory).glob(f"*{LOG_SUFFIX}")}


def test_a_log_copied_in_pieces_has_the_same_records(tmp_path: Path, log: Log) -> None:
    copy = LogCopy(log, str(tmp_path / "copy"))
    copy_rest(copy)
    assert records_of(copy.path) == records_of(log.directory)
    assert copy.size_bytes == log.size_bytes


def test_copying_the_last_appends_completes_the_copy(tmp_path: Path, log: Log) -> None:
    copy = LogCopy(log, str(tmp_path / "copy"))
    copy_rest(copy)
    for _ in range(10):
        append(log, batch(2))
    assert records_of(copy.path) != records_of(log.directory)
    copy.copy_last_appends()
    assert records_of(copy.path) == records_of(log.directory)


def test_a_segment_that_is_deleted_while_it_is_copied_is_not_in_the_copy(tmp_path: Path, log: Log) -> None:
    copy = LogCopy(log, str(tmp_path / "copy"))
    assert copy_piece(copy)
    log.delete_records_before(log.segments[1].base_offset)
    copy_rest(copy)
    kept = records_of(log.directory)
    assert {name: data for name, data in records_of(copy.path).items() if name in kept} == kept


def test_only_batches_that_the_log_has_synced_are_synced_in_the_copy(
    tmp_path: Path, log: Log, disk: NotingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copying, "UNSYNCED_FILES", 1)
    copy = LogCopy(log, str(tmp_path / "copy"))
    while copy_piece(copy):
        pass
    first, second, third, *_ = [segment.base_offset for segment in log.segments]
    log.recovery_point = third
    sync = copy.make_sync_work_of_segments()
    assert sync is not None
    disk.synced.clear()
    sync()
    assert disk.synced == [make_segment_name(offset) + LOG_SUFFIX for offset in (first, second)]
