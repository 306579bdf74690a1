"""Indexes against the log: entries as brokers of all times have written them, and those that cannot be."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest

from minibroker.pipeline.verifying.index_checks import OffsetIndexCheck, TimeIndexCheck
from minibroker.pipeline.verifying.log_blocks import LogBlock
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.pipeline.verifying.support import block_of

ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")
BASE = 100
COUNT = 10
TIMES = (5, 9, 7, 20, 20, 1, 30, 2, 3, 40)  # of each batch; batches have two records


def block() -> LogBlock:
    batches = [
        bytes(build_batch([Record(timestamp=time)] * 2, base_offset=BASE + 2 * number))
        for number, time in enumerate(TIMES)
    ]
    return block_of(b"".join(batches))


BLOCK = block()
POSITIONS = BLOCK.positions.tolist()
END = len(BLOCK.data)


def found(tmp_path: Path, *entries: tuple[int, int], tail: bytes = b"") -> list[str]:
    file = tmp_path / "a.index"
    file.write_bytes(b"".join(ENTRY.pack(offset, POSITIONS[batch]) for offset, batch in entries) + tail)
    check = OffsetIndexCheck(str(file), BASE)
    check.compare_with_block(BLOCK)
    return [problem.kind for problem in check.iterate_problems(END, damaged=False)]


def found_times(tmp_path: Path, *entries: tuple[int, int], tail: bytes = b"", closed: bool = False) -> list[str]:
    file = tmp_path / "a.timeindex"
    file.write_bytes(b"".join(TIME_ENTRY.pack(*entry) for entry in entries) + tail)
    check = TimeIndexCheck(str(file), BASE)
    check.compare_with_block(BLOCK)
    return [problem.kind for problem in check.iterate_problems(BASE + 2 * COUNT - 1, closed=closed, damaged=False)]


def test_index_entries_must_be_the_last_offsets_of_batches(tmp_path: Path) -> None:
    assert found(tmp_path, (3, 1), (9, 4), (19, 9)) == []
    assert found(tmp_path) == []


def test_an_index_entry_may_cover_batches_appended_together(tmp_path: Path) -> None:
    assert found(tmp_path, (7, 1), (19, 6)) == []
    assert found(tmp_path, (7, 1), (9, 2)) == ["index-offset"]  # the batch of the first lies behind the second


@pytest.mark.parametrize("offset", [2, 1, 4])
def test_an_index_entry_with_a_wrong_offset_is_found(offset: int, tmp_path: Path) -> None:
    assert found(tmp_path, (offset, 1)) == ["index-offset"]


def test_zeros_after_the_index_entries_are_not_a_finding(tmp_path: Path) -> None:
    assert found(tmp_path, (3, 1), (9, 4), tail=bytes(800)) == []
    assert found(tmp_path, tail=bytes(800)) == []
    assert found(tmp_path, (3, 1), tail=bytes(16) + ENTRY.pack(9, POSITIONS[4])) == ["index-order"] * 2
    assert found_times(tmp_path, (5, 1), tail=bytes(1200)) == []


def test_index_entries_beyond_the_end_or_between_batches_are_found(tmp_path: Path) -> None:
    assert found(tmp_path, (3, 1), tail=ENTRY.pack(900, END)) == ["index-beyond-log"]
    assert found(tmp_path, (3, 1), tail=ENTRY.pack(9, POSITIONS[4] + 5)) == ["index-position"]


def test_time_index_entries_must_be_the_largest_so_far(tmp_path: Path) -> None:
    assert found_times(tmp_path, (5, 1), (9, 3), (20, 7), (40, 19), closed=True) == []
    assert found_times(tmp_path, (9, 2)) == []  # the offset of the record itself, as some brokers had it
    assert found_times(tmp_path, (20, 9)) == []  # of two batches with the time, the later
    assert found_times(tmp_path, (7, 5)) == ["timeindex-late"]
    assert found_times(tmp_path, (8, 3)) == ["timeindex-timestamp"]
    assert found_times(tmp_path, (9, 90)) == ["timeindex-offset"]
    assert found_times(tmp_path, (30, 13), closed=True) == ["timeindex-incomplete"]
    assert found_times(tmp_path, (30, 13)) == []  # it is being written to
