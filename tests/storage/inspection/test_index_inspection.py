"""Reading indexes and snapshots that may be damaged: all entries are shown, and the one that is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.records.batch import read_header
from minibroker.storage.files import Disk, File
from minibroker.storage.inspection import index_inspection
from minibroker.storage.inspection.index_inspection import (
    TRANSACTION_ENTRY,
    OffsetEntry,
    ProducerStateEntry,
    TimeEntry,
    TransactionEntry,
    iterate_offset_entries,
    iterate_snapshot_entries,
    iterate_time_entries,
    iterate_transaction_entries,
    iterate_undamaged_entries,
)
from minibroker.storage.inspection.log_inspection import DamagedBytes, InspectionNote
from minibroker.storage.producers.producer_state import ProducerStates
from minibroker.storage.segment_indexes import OffsetIndex, TimeIndex
from tests.cases import for_each
from tests.storage.support import NOW_MS, batch


def file_of(directory: Path, data: bytes) -> File:
    (directory / "file").write_bytes(data)
    return Disk().open_to_read(str(directory / "file"))


def offsets_of(*entries: tuple[int, int]) -> bytes:
    return b"".join(OffsetIndex.ENTRY.pack(*entry) for entry in entries)


def times_of(*entries: tuple[int, int]) -> bytes:
    return b"".join(TimeIndex.ENTRY.pack(*entry) for entry in entries)


def aborted(*entries: tuple[int, int, int], version: int = 0) -> bytes:
    """(producer id, first offset, last offset) each."""
    return b"".join(TRANSACTION_ENTRY.pack(version, *entry, entry[1]) for entry in entries)


def snapshot() -> bytes:
    states = ProducerStates()
    data = batch(3, producer_id=7, producer_epoch=1, base_sequence=4)
    states.apply_appended_batch(read_header(data), 10)
    return states.encode_snapshot()


def damages_in(found: Iterator[Any]) -> list[DamagedBytes]:
    return [each for each in found if isinstance(each, DamagedBytes)]


def test_index_entries_are_shown_with_their_positions(tmp_path: Path) -> None:
    file = file_of(tmp_path, offsets_of((5, 100), (9, 250)))
    assert list(iterate_offset_entries(file, 1000)) == [OffsetEntry(0, 1005, 100), OffsetEntry(8, 1009, 250)]
    file = file_of(tmp_path, times_of((NOW_MS, 5), (NOW_MS + 1, 5)))
    assert list(iterate_time_entries(file, 1000)) == [TimeEntry(0, NOW_MS, 1005), TimeEntry(12, NOW_MS + 1, 1005)]
    file = file_of(tmp_path, aborted((7, 3, 9)))
    assert list(iterate_transaction_entries(file)) == [TransactionEntry(0, 0, 7, 3, 9, 3)]
    file = file_of(tmp_path, snapshot())
    assert list(iterate_snapshot_entries(file)) == [ProducerStateEntry(10, 7, 1, 6, 12, 2, NOW_MS, -1, -1)]


@pytest.mark.parametrize("wrong", [(4, 110), (70000, 110), (6, 90), (6, 1 << 30), (-1, 110)])
def test_only_the_offset_index_entry_out_of_order_is_reported(tmp_path: Path, wrong: tuple[int, int]) -> None:
    file = file_of(tmp_path, offsets_of((5, 100), wrong, (9, 250), (12, 300)))
    (damage,) = damages_in(iterate_offset_entries(file, 0))
    assert (damage.position, damage.offset) == (8, wrong[0])
    assert damage.expected == "an offset above 5 and a position above 100"
    assert damage.found == f"offset {wrong[0]} at position {wrong[1]}"
    sound = [
        (entry.offset, entry.log_position)
        for entry in iterate_undamaged_entries(iterate_offset_entries(file, 0), OffsetEntry)
    ]
    assert sound == [(5, 100), (9, 250), (12, 300)]


@pytest.mark.parametrize("wrong", [(NOW_MS, 6), (NOW_MS << 8, 6), (NOW_MS + 1, 2), (NOW_MS + 1, 1 << 20), (-5, 6)])
def test_only_the_time_index_entry_out_of_order_is_reported(tmp_path: Path, wrong: tuple[int, int]) -> None:
    file = file_of(tmp_path, times_of((NOW_MS, 5), wrong, (NOW_MS + 2, 7), (NOW_MS + 3, 9)))
    (damage,) = damages_in(iterate_time_entries(file, 0))
    assert (damage.position, damage.offset) == (12, wrong[1])
    assert damage.found == f"timestamp {wrong[0]} with offset {wrong[1]}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (aborted((7, 3, 9), version=1), "version 0"),
        (aborted((-1, 3, 9)), "a producer id"),
        (aborted((7, 9, 9)), "a first offset below the last"),
        (aborted((7, -4, 9)), "a first offset below the last"),
    ],
)
def test_an_invalid_aborted_transaction_is_reported(tmp_path: Path, data: bytes, expected: str) -> None:
    (damage,) = damages_in(iterate_transaction_entries(file_of(tmp_path, data)))
    assert (damage.position, damage.expected) == (0, expected)


def test_aborted_transactions_must_be_in_the_order_of_their_ends(tmp_path: Path) -> None:
    data = aborted((7, 3, 9), (8, 2, 8), (7, 10, 12))
    (damage,) = damages_in(iterate_transaction_entries(file_of(tmp_path, data)))
    assert (damage.position, damage.expected, damage.found) == (34, "a last offset above 9", "8")


@pytest.mark.parametrize("zeros", [8, 80, 5000])
def test_preallocated_space_of_an_index_is_only_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zeros: int
) -> None:
    monkeypatch.setattr(index_inspection, "BLOCK_BYTES", 64)
    file = file_of(tmp_path, offsets_of((5, 100), (0x600, 0x10000)) + bytes(zeros))
    *entries, note = iterate_offset_entries(file, 0)
    assert entries == [OffsetEntry(0, 5, 100), OffsetEntry(8, 0x600, 0x10000)]
    text = f"{zeros} bytes of zeros, which a broker leaves while it runs and after an unclean stop"
    assert note == InspectionNote(file.path, 16, None, text)


def test_an_index_of_only_zeros_has_no_entries(tmp_path: Path) -> None:
    (note,) = iterate_offset_entries(file_of(tmp_path, bytes(800)), 0)
    assert isinstance(note, InspectionNote) and note.position == 0


def test_an_incomplete_index_entry_at_the_end_is_reported(tmp_path: Path) -> None:
    file = file_of(tmp_path, offsets_of((5, 100)) + b"abc")
    assert damages_in(iterate_offset_entries(file, 0)) == [
        DamagedBytes(file.path, 8, 3, None, "a multiple of 8 bytes", "11")
    ]


def test_any_flipped_bit_of_a_snapshot_is_reported_and_its_entries_are_shown(tmp_path: Path) -> None:
    good = snapshot()
    for position in range(len(good)):
        data = bytearray(good)
        data[position] ^= 0x10
        found = list(iterate_snapshot_entries(file_of(tmp_path, bytes(data))))
        assert damages_in(iter(found)), position
        assert sum(isinstance(each, ProducerStateEntry) for each in found) == 1


@for_each("cut", range(0, 56))
def test_a_truncated_snapshot_is_reported(tmp_path: Path, cut: int) -> None:
    assert damages_in(iterate_snapshot_entries(file_of(tmp_path, snapshot()[:cut])))


@pytest.mark.parametrize("entries", [iterate_offset_entries, iterate_time_entries])
def test_an_empty_index_has_no_entries(tmp_path: Path, entries: Any) -> None:
    assert list(entries(file_of(tmp_path, b""), 0)) == []
