"""The `.index` file and its look-ups.

When entries are made is tested in `test_segment.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.files import Disk
from minibroker.storage.segment_indexes import CorruptIndex, OffsetIndex
from tests.cases import for_each

BASE = 1000
ENTRIES = [(1009, 4200), (1019, 8400), (1050, 12600)]


def index_at(directory: Path) -> OffsetIndex:
    return OffsetIndex(Disk(), f"{directory}/{BASE:020d}.index", BASE)


def index_of(directory: Path, entries: list[tuple[int, int]]) -> OffsetIndex:
    index = index_at(directory)
    for offset, position in entries:
        index.append_entry(offset, position)
    return index


def reopened(directory: Path) -> OffsetIndex:
    index = index_at(directory)
    index.open_file()
    return index


def test_an_offset_index_file_has_kafkas_format(tmp_path: Path) -> None:
    index = index_of(tmp_path, ENTRIES)
    index.write_file()
    assert Path(index.path).read_bytes() == struct.pack(">6i", 9, 4200, 19, 8400, 50, 12600)


def test_an_empty_offset_index_has_an_empty_file(tmp_path: Path) -> None:
    index = index_at(tmp_path)
    index.write_file()
    assert Path(index.path).read_bytes() == b""
    assert reopened(tmp_path).list_entries() == []


def test_opening_reads_only_the_last_entry_and_loading_reads_all(tmp_path: Path) -> None:
    index_of(tmp_path, ENTRIES).write_file()
    index = reopened(tmp_path)
    assert (index.count, index.last_position) == (3, 12600)
    index.append_entry(1060, 20000)
    index.load_entries()
    assert index.list_entries() == [*ENTRIES, (1060, 20000)]


def test_only_new_entries_of_an_offset_index_are_written(tmp_path: Path) -> None:
    index = index_of(tmp_path, ENTRIES[:2])
    index.write_file()
    index = reopened(tmp_path)
    index.append_entry(*ENTRIES[2])
    index.write_file()
    index.write_file(sync=True)
    index = reopened(tmp_path)
    index.load_entries()
    assert index.list_entries() == ENTRIES


def test_a_rebuilt_index_replaces_a_longer_one(tmp_path: Path) -> None:
    index_of(tmp_path, ENTRIES).write_file()
    index_of(tmp_path, ENTRIES[:1]).write_file()
    assert reopened(tmp_path).count == 1
    index_of(tmp_path, []).write_file()
    assert reopened(tmp_path).count == 0


@for_each(
    ("offset", "position"),
    [(1000, 0), (1008, 0), (1009, 4200), (1018, 4200), (1019, 8400), (1049, 8400), (1050, 12600), (9999, 12600)],
)
def test_an_offset_search_starts_at_the_last_batch_that_ends_at_or_before_it(
    tmp_path: Path, offset: int, position: int
) -> None:
    assert index_of(tmp_path, ENTRIES).find_position_at_or_before_offset(offset) == position


@pytest.mark.parametrize(("position", "floor"), [(0, 0), (4199, 0), (4200, 4200), (8399, 4200), (99999, 12600)])
def test_the_last_indexed_batch_at_or_before_a_position_is_found(tmp_path: Path, position: int, floor: int) -> None:
    assert index_of(tmp_path, ENTRIES).find_batch_start_at_or_before_position(position) == floor


@pytest.mark.parametrize(("position", "left"), [(0, 0), (4200, 0), (4201, 1), (8400, 1), (12600, 2), (12601, 3)])
def test_truncating_an_offset_index_removes_the_batches_from_a_position_on(
    tmp_path: Path, position: int, left: int
) -> None:
    for index in (index_of(tmp_path, ENTRIES), written := index_of(tmp_path, ENTRIES)):
        if index is written:
            index.write_file()
        index.truncate(position)
        assert index.list_entries() == ENTRIES[:left]
        assert index.count == left
        assert index.last_position == (ENTRIES[left - 1][1] if left else 0)
    written.append_entry(1060, 20000)
    written.write_file()
    again = reopened(tmp_path)
    again.load_entries()
    assert again.list_entries() == [*ENTRIES[:left], (1060, 20000)]


@for_each(
    "content",
    [
        b"\0" * 7,
        b"\0" * 16,  # what Kafka's preallocated index has after a crash
        struct.pack(">4i", 5, 100, 5, 200),
        struct.pack(">4i", 5, 100, 4, 200),
        struct.pack(">4i", 5, 200, 6, 200),
        struct.pack(">4i", -5, 100, 6, 200),
        struct.pack(">2i", 5, -1),
        struct.pack(">2i", -1, 5),
    ],
)
def test_an_inconsistent_offset_index_is_rejected(tmp_path: Path, content: bytes) -> None:
    Path(index_at(tmp_path).path).write_bytes(content)
    with pytest.raises(CorruptIndex):
        reopened(tmp_path).load_entries()


def test_an_index_that_shrinks_after_opening_is_rejected(tmp_path: Path) -> None:
    index_of(tmp_path, ENTRIES).write_file()
    index = reopened(tmp_path)
    Path(index.path).write_bytes(b"")
    with pytest.raises(CorruptIndex, match="shorter"):
        index.load_entries()


@given(st.sets(st.integers(BASE, BASE + 10_000), max_size=50), st.integers(BASE - 10, BASE + 10_010))
def test_an_offset_index_search_agrees_with_a_linear_search(offsets: set[int], target: int) -> None:
    index = OffsetIndex(Disk(), "unused", BASE)
    entries = [(offset, number * 100) for number, offset in enumerate(sorted(offsets), 1)]
    for entry in entries:
        index.append_entry(*entry)
    assert index.find_position_at_or_before_offset(target) == max(
        (position for offset, position in entries if offset <= target), default=0
    )
