"""A cleaned segment in the making: its files, their names, what their indexes say, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.records.batch import check_batch
from minibroker.storage.compaction.segment_writer import SegmentOverflow, SegmentWriter, remove_unfinished_cleaned_files
from minibroker.storage.files import Disk
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.aborted_transactions import AbortedTransaction, encode_aborted_transactions
from minibroker.storage.segment import Segment
from tests.storage.support import NOW_MS, batch, files_in

NAME = "00000000000000000100"
SETTINGS = LogSettings(index_interval_bytes=200, segment_index_bytes=1000)


def writer(directory: Path, settings: LogSettings = SETTINGS, buffer_bytes: int = 500) -> SegmentWriter:
    return SegmentWriter(Disk(), str(directory / NAME), 100, settings, buffer_bytes)


def add(to: SegmentWriter, count: int, base_offset: int = 100, step: int = 10) -> bytes:
    """Add batches of two records; all their bytes."""
    data = b""
    for index in range(count):
        made = batch(2, base_offset=base_offset + step * index, timestamp=NOW_MS + index)
        to.add_batch(check_batch(made), made)
        data += made
    return data


def test_cleaned_files_contain_the_batches_in_order(tmp_path: Path) -> None:
    to = writer(tmp_path)
    data = add(to, 20)
    to.finish_segment_files([], NOW_MS)
    files = files_in(tmp_path)
    assert set(files) == {f"{NAME}{kind}.cleaned" for kind in (".log", ".index", ".timeindex")}
    assert files[f"{NAME}.log.cleaned"] == data
    assert to.size_bytes == len(data)


def test_the_indexes_of_a_cleaned_segment_equal_those_rebuilt_from_its_batches(tmp_path: Path) -> None:
    to = writer(tmp_path)
    data = add(to, 20)
    to.finish_segment_files([], NOW_MS)
    made = files_in(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / f"{NAME}.log").write_bytes(data)
    segment = Segment.open(Disk(), str(other), 100, SETTINGS, NOW_MS)
    segment.load_last_entries()
    segment.finish_indexes()
    assert {name.removesuffix(".cleaned"): content for name, content in made.items()} == files_in(other)


def test_a_cleaned_segment_has_the_modification_time_of_its_originals(tmp_path: Path) -> None:
    to = writer(tmp_path)
    to.finish_segment_files([], NOW_MS - 5000)
    assert Disk().get_modified_ms(str(tmp_path / f"{NAME}.log.cleaned")) == NOW_MS - 5000


def test_a_cleaned_segment_has_its_own_transaction_index(tmp_path: Path) -> None:
    to = writer(tmp_path)
    transaction = AbortedTransaction(7, 100, 110, 105)
    to.finish_segment_files([transaction], NOW_MS)
    assert files_in(tmp_path)[f"{NAME}.txnindex.cleaned"] == encode_aborted_transactions([transaction])


def test_cleaned_files_left_by_an_earlier_cleaning_are_removed(tmp_path: Path) -> None:
    for kind in (".log", ".index", ".timeindex", ".txnindex"):
        (tmp_path / f"{NAME}{kind}.cleaned").write_bytes(b"left" * 1000)
    to = writer(tmp_path)
    data = add(to, 1)
    to.finish_segment_files([], NOW_MS)
    files = files_in(tmp_path)
    assert files[f"{NAME}.log.cleaned"] == data
    assert f"{NAME}.txnindex.cleaned" not in files


def test_a_full_index_accepts_no_more_entries_but_tracks_the_largest_timestamp(tmp_path: Path) -> None:
    settings = LogSettings(index_interval_bytes=0, segment_index_bytes=60)
    to = writer(tmp_path, settings)
    add(to, 50)
    to.finish_segment_files([], NOW_MS)
    files = files_in(tmp_path)
    assert len(files[f"{NAME}.index.cleaned"]) <= 60
    assert len(files[f"{NAME}.timeindex.cleaned"]) <= 60
    assert int.from_bytes(files[f"{NAME}.timeindex.cleaned"][-12:-4], "big") == NOW_MS + 49


def test_offsets_beyond_the_index_range_overflow_the_segment(tmp_path: Path) -> None:
    to = writer(tmp_path)
    add(to, 1, base_offset=100 + 0x7FFFFFFE)
    with pytest.raises(SegmentOverflow):
        add(to, 1, base_offset=100 + 0x7FFFFFFF)


def test_all_files_of_a_cleaned_segment_can_be_discarded(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.log").write_bytes(b"original")
    to = writer(tmp_path)
    add(to, 10)
    to.finish_segment_files([AbortedTransaction(7, 100, 110, 105)], NOW_MS)
    remove_unfinished_cleaned_files(Disk(), to.path)
    assert files_in(tmp_path) == {f"{NAME}.log": b"original"}
