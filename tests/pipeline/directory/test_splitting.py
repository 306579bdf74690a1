"""However a log is cut into splits, together they give it whole: each record once, in order.

What is in a record is tested in `test_directory_source.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.directory import segment_files
from minibroker.pipeline.directory.splitting import SplitStretches
from minibroker.pipeline.log_source import OffsetRange, Split, TopicPartition
from minibroker.protocol.records.batch import HEADER_BYTES
from minibroker.storage.batch_scanning import SCAN_BLOCK_BYTES
from minibroker.storage.files import File
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.directory.support import (
    BATCHES,
    ORDERS,
    append,
    batch_of,
    batches_in,
    fill,
    filled,
    finish,
    log_in,
    records,
    rows,
    source_of,
    whole,
    written,
)
from tests.storage.compaction.support import COMPACT, clean

CODECS = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3, 4))  # by format
BATCH = st.integers(0, 2).flatmap(
    lambda magic: st.tuples(st.just(magic), st.sampled_from(CODECS[magic]), st.integers(1, 8), st.integers(1, 60))
)


@given(
    batches=st.lists(BATCH, max_size=30),
    segment_bytes=st.integers(300, 5000),
    index_interval_bytes=st.integers(0, 600),
    inner=st.lists(st.floats(0, 1), max_size=4),
    min_splits=st.integers(0, 40),
    split_bytes=st.integers(1, 4000),
    block_bytes=st.integers(1, 3000),
    compacted=st.booleans(),
    unindexed=st.booleans(),
    walk_mark_bytes=st.integers(1, 1000),
)
def test_splits_of_any_size_return_each_record_once(
    batches: list[tuple[int, int, int, int]],
    segment_bytes: int,
    index_interval_bytes: int,
    inner: list[float],
    min_splits: int,
    split_bytes: int,
    block_bytes: int,
    compacted: bool,
    unindexed: bool,
    walk_mark_bytes: int,
) -> None:
    settings = LogSettings(
        segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes, file_delete_delay_ms=0
    )
    with tempfile.TemporaryDirectory() as name, mock.patch.object(segment_files, "WALK_MARK_BYTES", walk_mark_bytes):
        log = log_in(Path(name), settings=settings._replace(cleanup_policy=COMPACT) if compacted else settings)
        for magic, codec, count, size in batches:
            append(log, batch_of(log.log_end_offset, count, magic=magic, codec=codec, size=size))
        if compacted:
            log.roll_segment_if_used()
            clean(log)
        directory = finish(log)
        for index in directory.glob("*.index") if unindexed else ():
            index.unlink()
        source = source_of(name, split_bytes=split_bytes, block_bytes=block_bytes)
        _, start, end = whole(source)
        cuts = sorted({start, *(round(start + part * (end - start)) for part in inner), end})
        splits = source.make_splits([OffsetRange(ORDERS, *pair) for pair in pairwise(cuts)], min_splits)
        expected = written(directory)
        assert records(source, splits) == expected
        found = rows(source, splits, BATCHES)
        there = [
            (path.name, len(data)) for path in sorted(directory.glob("*.log")) for data in batches_in(path.read_bytes())
        ]
        assert [row["segment"] for row in found] == [segment for segment, _ in there]
        assert all(split.offsets.start < split.offsets.end for split in splits)
        assert all(one.offsets.end <= other.offsets.start for one, other in pairwise(splits))


@pytest.mark.parametrize("wanted", [2, 3, 7, 20])
def test_a_log_is_divided_into_about_the_requested_number_of_splits(tmp_path: Path, wanted: int) -> None:
    filled(tmp_path, 200, settings=LogSettings(index_interval_bytes=300))
    source = source_of(tmp_path)
    splits = source.make_splits([whole(source)], wanted)
    assert wanted <= len(splits) <= wanted + 1
    sizes = [sum(stretch.length_bytes for stretch in stretches_in(split)) for split in splits]
    assert max(sizes) < 2 * min(sizes)
    assert [split.offsets.start for split in splits[1:]] == [split.offsets.end for split in splits[:-1]]


def test_a_log_with_an_outdated_index_is_scanned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = filled(tmp_path, 100, settings=LogSettings(), size=10_000)
    for index in directory.glob("*.index"):
        index.unlink()
    reads: list[int] = []
    read = File.read
    monkeypatch.setattr(File, "read", lambda self, *where: reads.append(where[1]) or read(self, *where))
    source = source_of(tmp_path)
    everything = whole(source)
    assert reads == [SCAN_BLOCK_BYTES] + 99 * [HEADER_BYTES]
    reads.clear()
    assert len(source.make_splits([everything], 10)) == 10
    assert len(reads) < 60
    assert records(source, source.make_splits([everything], 10)) == written(directory)


def test_a_cached_scan_of_a_segment_is_not_used_for_another_file_of_its_name(tmp_path: Path) -> None:
    with mock.patch.object(segment_files, "WALK_MARK_BYTES", 1):
        for size in (10, 50, 10, 30):
            directory = filled(tmp_path, 50, settings=LogSettings(), size=size)
            (directory / "00000000000000000000.index").unlink()
            source = source_of(tmp_path)
            assert records(source, source.make_splits([whole(source)], 7)) == written(directory)
            shutil.rmtree(directory)


def test_splits_of_several_partitions_are_distributed_by_size(tmp_path: Path) -> None:
    large, small = TopicPartition("orders", 0), TopicPartition("orders", 1)
    for partition, count in ((large, 180), (small, 20)):
        filled(tmp_path, count, partition, LogSettings(index_interval_bytes=300))
    source = source_of(tmp_path)
    splits = source.make_splits([whole(source, each) for each in (large, small)], 10)
    counts = [sum(split.offsets.partition == each for split in splits) for each in (large, small)]
    assert counts[0] in (9, 10)
    assert counts[1] == 1


def test_a_split_has_its_maximum_size_even_over_small_segments(tmp_path: Path) -> None:
    directory = filled(tmp_path, 100, settings=LogSettings(segment_bytes=500))
    assert len(list(directory.glob("*.log"))) > 20
    source = source_of(tmp_path)
    (split,) = source.make_splits([whole(source)])
    assert len(stretches_in(split)) > 20
    some = source_of(tmp_path, split_bytes=3000)
    assert all(
        sum(stretch.length_bytes for stretch in stretches_in(split)) <= 3000
        for split in some.make_splits([whole(some)])
    )


def test_a_batch_larger_than_a_split_is_one_split(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=LogSettings())
    fill(log, 5)
    append(log, batch_of(15, 50, size=500))
    fill(log, 5)
    directory = finish(log)
    source = source_of(tmp_path, split_bytes=600, block_bytes=100)
    splits = source.make_splits([whole(source)])
    assert len(splits) > 3
    assert records(source, splits) == written(directory)


def test_a_range_within_one_batch_returns_only_its_offsets(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=LogSettings())
    for magic in (0, 1, 2):
        append(log, batch_of(log.log_end_offset, 100, magic=magic, codec=1))
    finish(log)
    source = source_of(tmp_path)
    for start in (0, 100, 200):
        splits = source.make_splits([OffsetRange(ORDERS, start + 40, start + 43)], 5)
        assert [row.offset for row in records(source, splits)] == [start + 40, start + 41, start + 42]


def test_empty_offset_ranges_give_no_splits(tmp_path: Path) -> None:
    filled(tmp_path, 5)
    source = source_of(tmp_path)
    assert source.make_splits([], 10) == []
    assert source.make_splits([OffsetRange(ORDERS, 3, 3), OffsetRange(ORDERS, 15, 15)], 10) == []


def stretches_in(split: Split):  # type: ignore[no-untyped-def]
    assert isinstance(split.place, SplitStretches)
    return split.place.stretches
