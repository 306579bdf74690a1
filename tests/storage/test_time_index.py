"""The `.timeindex` file and its look-ups.

When entries are made is tested in `test_segment.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minibroker.storage.files import Disk
from minibroker.storage.segment_indexes import CorruptIndex, TimeIndex
from tests.cases import for_each

BASE = 1000
T = 1_700_000_000_000
ENTRIES = [(T, 1009), (T + 5, 1019), (T + 90, 1019), (T + 100, 1050)]


def index_at(directory: Path) -> TimeIndex:
    return TimeIndex(Disk(), f"{directory}/{BASE:020d}.timeindex", BASE)


def index_of(directory: Path, entries: list[tuple[int, int]]) -> TimeIndex:
    index = index_at(directory)
    for timestamp, offset in entries:
        index.append_entry(timestamp, offset)
    return index


def reopened(directory: Path) -> TimeIndex:
    index = index_at(directory)
    index.open_file()
    return index


def test_a_time_index_file_has_kafkas_format(tmp_path: Path) -> None:
    index = index_of(tmp_path, ENTRIES[:2])
    index.write_file()
    assert Path(index.path).read_bytes() == struct.pack(">qiqi", T, 9, T + 5, 19)


def test_a_timestamp_that_is_not_larger_adds_no_entry(tmp_path: Path) -> None:
    index = index_of(tmp_path, [(T, 1009), (T, 1019), (T - 1, 1029), (-1, 1039)])
    assert index.list_entries() == [(T, 1009)]


def test_opening_a_time_index_reads_its_last_entry_and_loading_reads_all(tmp_path: Path) -> None:
    index_of(tmp_path, ENTRIES).write_file()
    index = reopened(tmp_path)
    assert (index.count, index.last_timestamp, index.last_offset) == (4, T + 100, 1050)
    index.append_entry(T + 100, 1060)
    index.append_entry(T + 101, 1070)
    index.write_file()
    index.load_entries()
    assert index.list_entries() == [*ENTRIES, (T + 101, 1070)]
    again = reopened(tmp_path)
    again.load_entries()
    assert again.list_entries() == index.list_entries()


def test_an_empty_time_index_has_no_timestamp(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    assert (index.last_timestamp, index.last_offset, index.find_offset_at_or_before_timestamp(T)) == (-1, BASE, BASE)


@for_each(
    ("timestamp", "offset"),
    [(T - 1, BASE), (T, BASE), (T + 1, 1009), (T + 5, 1009), (T + 6, 1019), (T + 100, 1019), (T + 101, 1050)],
)
def test_a_timestamp_search_starts_where_all_earlier_records_are_older(
    tmp_path: Path, timestamp: int, offset: int
) -> None:
    assert index_of(tmp_path, ENTRIES).find_offset_at_or_before_timestamp(timestamp) == offset


@pytest.mark.parametrize(("offset", "left"), [(1000, 0), (1009, 0), (1010, 1), (1019, 1), (1020, 3), (1051, 4)])
def test_truncating_a_time_index_removes_an_offset_and_all_later_ones(tmp_path: Path, offset: int, left: int) -> None:
    index = index_of(tmp_path, ENTRIES)
    index.write_file()
    index.truncate(offset)
    assert index.list_entries() == ENTRIES[:left]
    assert (index.last_timestamp, index.last_offset) == (ENTRIES[left - 1] if left else (-1, BASE))
    again = reopened(tmp_path)
    again.load_entries()
    assert again.list_entries() == ENTRIES[:left]


@for_each(
    "content",
    [
        b"\0" * 11,
        struct.pack(">qi", -1, 3),
        struct.pack(">qi", T, -1),
        struct.pack(">qiqi", T, 3, T, 4),
        struct.pack(">qiqi", T, 3, T + 1, 2),
        struct.pack(">qiqi", -5, 3, T + 1, 4),
    ],
)
def test_an_inconsistent_time_index_is_rejected(tmp_path: Path, content: bytes) -> None:
    Path(index_at(tmp_path).path).write_bytes(content)
    with pytest.raises(CorruptIndex):
        reopened(tmp_path).load_entries()
