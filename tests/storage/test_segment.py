"""One segment: its indexes, what it remembers, and that it knows the same after each way of learning it.

Offsets are tested in `test_log.py`, rolling in `test_log_rolling.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.segment import REMEMBERED_POSITIONS, Segment
from tests.storage.support import NOW_MS, batch

SETTINGS = LogSettings(index_interval_bytes=200)


def fill(segment: Segment, count: int = 20) -> None:
    """Batches of two records, whose timestamps rise by ten."""
    for number in range(count):
        offset = segment.base_offset + 2 * number
        data = batch(2, timestamp=NOW_MS + 10 * number, base_offset=offset)
        segment.append(data, offset, (check_batch(data),))


def created(directory: Path, base_offset: int = 100, settings: LogSettings = SETTINGS) -> Segment:
    return Segment.create(Disk(), str(directory), base_offset, settings, NOW_MS)


def opened(directory: Path, base_offset: int = 100) -> Segment:
    return Segment.open(Disk(), str(directory), base_offset, SETTINGS, NOW_MS)


def known(segment: Segment) -> tuple[object, ...]:
    """All that a segment knows about its batches."""
    segment.find_position_of_offset(segment.base_offset + 1)
    indexes = segment.indexes
    return (
        indexes.offsets.list_entries(),
        indexes.times.list_entries(),
        indexes.max_timestamp,
        indexes.offset_of_max_timestamp,
        segment.first_timestamp,
        segment.find_next_offset(),
    )


def test_an_index_entry_is_added_per_interval_at_the_start_of_a_batch(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    size = len(batch(2))
    entries = segment.indexes.offsets.list_entries()
    assert [position for _, position in entries] == list(range(3 * size, 20 * size, 3 * size))
    assert all(offset == 100 + 2 * (position // size) + 1 for offset, position in entries)
    assert segment.indexes.times.list_entries()[0] == (NOW_MS + 30, 107)


def test_an_interval_of_zero_adds_an_entry_for_each_batch_but_the_first(tmp_path: Path) -> None:
    segment = created(tmp_path, settings=LogSettings(index_interval_bytes=0))
    fill(segment, 5)
    assert segment.indexes.offsets.count == 4


def test_a_reopened_segment_has_the_same_state_as_the_one_that_was_written(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    assert known(opened(tmp_path)) == known(segment)


def test_a_reopened_segment_adds_index_entries_at_the_same_positions(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment, 8)
    segment.finish_indexes()
    again = opened(tmp_path)
    again.load_last_entries()
    for number in range(8, 20):
        data = batch(2, timestamp=NOW_MS + 10 * number, base_offset=100 + 2 * number)
        again.append(data, 100 + 2 * number, (check_batch(data),))
    (tmp_path / "whole").mkdir()
    whole = created(tmp_path / "whole")
    fill(whole, 20)
    again.find_position_of_offset(101)
    assert again.indexes.offsets.list_entries() == whole.indexes.offsets.list_entries()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        None,
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + bytes(24),
        lambda data: data[:-4] + b"\xff\xff\xff\xff",
        lambda data: data[24:] + data[:24],
        lambda data: bytes(len(data)),
    ],
    ids=["missing", "empty", "bad size", "zeros behind", "negative", "out of order", "zeros"],
)
def test_corrupt_indexes_are_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, damage) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("minibroker.storage.segment_indexes.LARGE_BATCH_BYTES", 200)
    segment = created(tmp_path)
    fill(segment)
    expected = known(segment)
    segment.finish_indexes()
    path = Path(segment.path + suffix)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    again = opened(tmp_path)
    for number in range(20):
        assert again.find_position_of_offset(100 + 2 * number) == number * len(batch(2))
        found = run_all_steps(again.find_first_record_at_timestamp(NOW_MS + 10 * number, 0))
        assert found is not None and found.offset == 100 + 2 * number
    assert known(again)[0] == expected[0]
    assert known(again)[2:] == expected[2:]


def names_to_sync(segment: Segment) -> list[str]:
    """The kinds of files that a flush syncs of it."""
    return [Path(file.path).suffix for file in segment.write_indexes_and_list_files(with_indexes=True)]


def test_only_indexes_with_several_entries_need_an_fsync(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment, 1)
    segment.finish_indexes()
    assert Path(segment.path + ".timeindex").stat().st_size == 12
    assert names_to_sync(segment) == [".log"]
    again = opened(tmp_path)
    again.load_last_entries()
    assert names_to_sync(again) == [".log"]
    more = batch(2, timestamp=NOW_MS + 10, base_offset=102)
    again.append(more, 102, (check_batch(more),))
    again.finish_indexes()
    assert names_to_sync(again) == [".log", ".timeindex"]


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: bytes(len(data))], ids=["empty", "zeros"])
def test_an_index_of_one_entry_is_rebuilt_after_a_power_loss(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    segment = created(tmp_path)
    fill(segment, 1)
    segment.finish_indexes()
    path = Path(segment.path + ".timeindex")
    path.write_bytes(damage(path.read_bytes()))
    again = opened(tmp_path)
    again.load_last_entries()
    assert (again.indexes.max_timestamp, again.indexes.offset_of_max_timestamp) == (NOW_MS, 101)


def test_an_index_of_one_entry_is_fsynced_since_its_loss_would_not_be_noticed(tmp_path: Path) -> None:
    segment = created(tmp_path)
    timeless, timed = batch(1, timestamp=-1, base_offset=100), batch(1, base_offset=101)
    segment.append(timeless, 100, (check_batch(timeless),))
    segment.append(timed, 101, (check_batch(timed),))
    segment.finish_indexes()
    assert names_to_sync(segment) == [".log", ".timeindex"]


@pytest.mark.parametrize("batches", [0, 1])
def test_a_truncated_index_is_fsynced(tmp_path: Path, batches: int) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    segment.truncate(batches * len(batch(2)), 100 + 2 * batches)
    segment.finish_indexes()
    assert names_to_sync(segment) == [".log", ".index", ".timeindex"]


def test_indexes_rebuilt_over_old_files_are_fsynced(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment, 1)
    segment.finish_indexes()
    segment.clear_indexes_to_rebuild()
    segment.add_batch_to_indexes(0, 101, NOW_MS)
    segment.finish_indexes()
    assert names_to_sync(segment) == [".log", ".index", ".timeindex"]


@pytest.mark.parametrize("offset", [0, 99, 103, 100 + (1 << 31), 1 << 60])
def test_indexes_are_not_rebuilt_from_batches_with_impossible_offsets(tmp_path: Path, offset: int) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.file.write(2 * len(batch(2)), offset.to_bytes(8, "big"))
    again = opened(tmp_path)
    with pytest.raises(CorruptBatch, match="the one before it ends at 104"):
        again.load_last_entries()


def test_an_index_that_extends_beyond_the_log_is_rebuilt(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    with open(segment.path + ".index", "ab") as file:
        file.write(struct.pack(">ii", 1000, segment.size_bytes))
    again = opened(tmp_path)
    again.load_last_entries()
    assert again.indexes.offsets.list_entries() == segment.indexes.offsets.list_entries()


def test_rebuilt_indexes_are_written_when_the_segment_is_finished(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    before = Path(segment.path + ".index").read_bytes(), Path(segment.path + ".timeindex").read_bytes()
    Path(segment.path + ".index").write_bytes(b"nonsense nonsense")
    again = opened(tmp_path)
    again.load_last_entries()
    again.finish_indexes()
    assert (Path(segment.path + ".index").read_bytes(), Path(segment.path + ".timeindex").read_bytes()) == before


def test_finishing_a_segment_that_was_not_loaded_writes_no_index(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    Path(segment.path + ".index").unlink()
    again = opened(tmp_path)
    again.finish_indexes()
    assert not Path(segment.path + ".index").exists()


def test_the_next_offset_of_a_torn_segment_is_an_error(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    segment.file.truncate(segment.size_bytes - 1)
    with pytest.raises(CorruptBatch):
        opened(tmp_path).find_next_offset()


def test_a_truncated_segment_has_the_same_state_as_one_that_was_never_longer(tmp_path: Path) -> None:
    size = len(batch(2))
    for left in range(20):
        (tmp_path / f"{left}").mkdir()
        (tmp_path / f"{left}-short").mkdir()
        segment, short = created(tmp_path / f"{left}"), created(tmp_path / f"{left}-short")
        fill(segment, 20)
        fill(short, left)
        segment.finish_indexes()
        segment.truncate(left * size, 100 + 2 * left)
        assert known(segment) == known(short)


def test_read_positions_are_cached_for_a_bounded_number_of_consumers(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    for offset in range(10 * REMEMBERED_POSITIONS):
        segment.remember_position_of_offset(offset, 0)
    assert len(segment._remembered) <= REMEMBERED_POSITIONS


def test_a_read_that_continues_where_the_last_ended_needs_no_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = created(tmp_path)
    fill(segment)
    end = segment.size_bytes, 140
    region = segment.read(100, 500, end, True)
    monkeypatch.setattr(Segment, "find_position_of_offset", None)
    while region is not None:
        assert check_batch(region.read()).base_offset < region.next_offset
        region = segment.read(region.next_offset, 500, end, True)


def test_a_deleted_segments_files_have_kafkas_suffix(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment)
    segment.finish_indexes()
    assert sorted(segment.rename_files_to_deleted()) == sorted(str(path) for path in tmp_path.iterdir())
    assert {path.suffix for path in tmp_path.iterdir()} == {".deleted"}


def test_a_large_indexed_batch_does_not_hide_the_small_ones_before_it(tmp_path: Path) -> None:
    segment = created(tmp_path)
    fill(segment, count=21)
    small_bytes = segment.size_bytes
    large = batch(1, value=b"x" * 10_000, base_offset=142)
    segment.append(large, 142, (check_batch(large),))
    assert segment.indexes.offsets.list_entries()[-1][1] == small_bytes
    region = segment.read(100, 5000, (segment.size_bytes, 143), minimum_one=True)
    assert region is not None
    assert (region.size_bytes, region.next_offset) == (small_bytes, 142)
