"""A directory read from one end to the other: every format and codec, with compaction, torn ends and without indexes.

How splits are cut is tested in `test_splitting.py`, what damage does in `test_split_reading.py`.
"""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from minibroker.pipeline.directory import segment_files
from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.log_source import Bounds, DataLoss, OffsetRange, OptionError, ReadRequest, TopicPartition
from minibroker.protocol.records.compression import Compression
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
)
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.directory.support import (
    BATCHES,
    ORDERS,
    SMALL,
    Row,
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
from tests.storage.support import files_in

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in range(5) if magic == 2 or codec != Compression.ZSTD]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_every_format_and_codec_is_read(tmp_path: Path, magic: int, codec: int) -> None:
    directory = filled(tmp_path, magic=magic, codec=codec)
    source = source_of(tmp_path)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 120)}
    assert len(list(directory.glob("*.log"))) > 2
    assert [row.offset for row in records(source)] == list(range(120))
    assert records(source) == written(directory)
    assert records(source, source.make_splits([whole(source)], 50)) == written(directory)


def test_all_formats_may_be_mixed_in_one_log(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    for magic, codec in FORMATS:
        fill(log, 3, magic=magic, codec=codec)
    directory = finish(log)
    source = source_of(tmp_path)
    assert records(source) == written(directory)
    for start in range(0, 110, 5):
        some = source.make_splits([OffsetRange(ORDERS, start, start + 7)])
        assert [row.offset for row in records(source, some)] == list(range(start, start + 7))


def test_batches_are_read_as_a_separate_table(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    source = source_of(tmp_path)
    found = rows(source, source.make_splits([whole(source)], 7), BATCHES)
    assert [row["baseOffset"] for row in found] == list(range(0, 120, 3))
    sizes = {path.name: len(list(batches_in(path.read_bytes()))) for path in sorted(directory.glob("*.log"))}
    assert {name: sum(row["segment"] == name for row in found) for name in sizes} == sizes


def test_topic_names_may_have_dots_and_dashes_and_other_directories_are_ignored(tmp_path: Path) -> None:
    wanted = [TopicPartition("a.b-c", 10), TopicPartition("a.b-c", 9), TopicPartition("orders-0", 1)]
    for partition in (*wanted, TopicPartition("__consumer_offsets", 0), TopicPartition("__cluster_metadata", 0)):
        filled(tmp_path, 1, partition=partition)
    unique = "0123456789abcdef" * 2
    for name in (f"gone-0.{unique}-delete", f"moved-0.{unique}-future", f"strange-0.{unique}-stray", "lost+found"):
        shutil.copytree(tmp_path / "orders-0-1", tmp_path / name)
    (tmp_path / "file-0").write_bytes(b"no directory")
    assert source_of(tmp_path).list_partitions() == sorted(wanted)
    assert source_of(tmp_path, "__consumer_offsets").list_partitions() == [("__consumer_offsets", 0)]
    with pytest.raises(OptionError, match="there is no gone"):
        source_of(tmp_path, "gone").list_partitions()


def test_temporary_and_deleted_files_are_not_read(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    first = min(directory.glob("*.log"))
    for suffix in (".deleted", ".cleaned", ".swap"):
        shutil.copy(first, f"{first}{suffix}")
    source = source_of(tmp_path)
    assert records(source) == written(directory)


def test_a_path_may_be_directories_a_partition_or_a_uri(tmp_path: Path) -> None:
    for name, partition in (("one", ORDERS), ("two", TopicPartition("others", 3))):
        filled(tmp_path / name, 2, partition=partition)
    both = DirectorySource(f"{tmp_path / 'one'}, {tmp_path / 'two'}")
    assert both.list_partitions() == [ORDERS, ("others", 3)]
    one = DirectorySource(str(tmp_path / "two" / "others-3"))
    assert one.list_partitions() == [("others", 3)]
    assert len(records(one, one.make_splits([whole(one, TopicPartition("others", 3))]))) == 6
    assert DirectorySource(f"file://{tmp_path}/one").list_partitions() == [ORDERS]


def test_an_explicitly_named_internal_topic_is_read(tmp_path: Path) -> None:
    partition = TopicPartition("__consumer_offsets", 7)
    filled(tmp_path, 2, partition=partition)
    assert DirectorySource(str(tmp_path / "__consumer_offsets-7")).list_partitions() == [partition]


def test_an_invalid_path_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nowhere: No such file or directory"):
        DirectorySource(str(tmp_path / "nowhere")).list_partitions()
    with pytest.raises(OptionError, match="it has no directory"):
        DirectorySource(" ")
    for name in ("one", "two"):
        finish(log_in(tmp_path / name))
    with pytest.raises(OptionError, match="both the log of one partition"):
        DirectorySource(f"{tmp_path / 'one'},{tmp_path / 'two'}").list_partitions()
    (tmp_path / "one" / "orders-0").rename(tmp_path / "orders")
    with pytest.raises(OptionError, match="not named <topic>-<partition>"):
        DirectorySource(str(tmp_path / "orders")).list_partitions()
    (tmp_path / "two" / LOG_START_OFFSET_CHECKPOINT).write_text("1\n")
    with pytest.raises(OptionError, match="is malformed"):
        source_of(tmp_path / "two").find_bounds([ORDERS])


def test_a_directory_is_read_from_the_checkpointed_log_start_offset(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / LOG_START_OFFSET_CHECKPOINT).write_bytes(format_offset_checkpoint({ORDERS: 50}))
    source = source_of(tmp_path)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(50, 120)}
    assert [row.offset for row in records(source)] == list(range(50, 120))
    with pytest.raises(DataLoss, match="orders-0: offsets 49 to 49 are gone"):
        source.make_splits([OffsetRange(ORDERS, 49, 120)])
    careless = source_of(tmp_path, fail_on_data_loss=False)
    assert len(records(careless, careless.make_splits([OffsetRange(ORDERS, 0, 120)]))) == 70


def test_a_log_without_checkpoint_starts_with_its_first_segment(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    for path in sorted(directory.glob("*.log"))[:2]:
        path.unlink()
    source = source_of(tmp_path)
    first = written(directory)[0].offset
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(first, 120)}
    assert records(source) == written(directory)


def test_an_end_offset_beyond_the_log_is_a_data_loss(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(DataLoss, match="orders-0 ends at offset 120 now"):
        source_of(tmp_path).make_splits([OffsetRange(ORDERS, 10, 121)])


@pytest.mark.parametrize("tail", [b"\0" * 5, b"\0" * 100, b"\0" * 5000, b"torn", b"\x00\x00\x00\x00\x00\x00\x00\x78"])
def test_bytes_after_the_last_complete_batch_are_ignored(tmp_path: Path, tail: bytes) -> None:
    directory = filled(tmp_path)
    expected = written(directory)
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(tail)
    source = source_of(tmp_path)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 120)}
    assert records(source) == expected


def test_a_batch_truncated_at_any_byte_ends_the_log(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, settings=LogSettings()) / "00000000000000000000.log"
    data = path.read_bytes()
    size = len(data) // 3
    for kept in range(2 * size, 3 * size):
        path.write_bytes(data[:kept])
        assert source_of(tmp_path).find_bounds([ORDERS]) == {ORDERS: Bounds(0, 6)}, kept


def test_a_partial_batch_in_a_preallocated_file_ends_the_log(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, settings=LogSettings()) / "00000000000000000000.log"
    data = path.read_bytes()
    size = len(data) // 3
    source = source_of(tmp_path)
    for kept in range(2 * size, 3 * size - 3):  # the last three bytes are zeros or nearly so
        path.write_bytes(data[:kept].ljust(5000, b"\0"))
        assert source_of(tmp_path).find_bounds([ORDERS]) == {ORDERS: Bounds(0, 6)}, kept
        assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 6)}, kept
    path.write_bytes(data.ljust(5000, b"\0"))
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 9)}


def test_an_empty_log_has_no_rows(tmp_path: Path) -> None:
    finish(log_in(tmp_path))
    source = source_of(tmp_path, "orders")
    assert source.find_bounds(source.list_partitions()) == {ORDERS: Bounds(0, 0)}
    assert source.make_splits([whole(source)], 5) == []
    (tmp_path / "orders-0" / "00000000000000000000.log").unlink()
    assert source_of(tmp_path, "orders").find_bounds([ORDERS]) == {ORDERS: Bounds(0, 0)}


def test_gaps_of_a_compacted_log_are_not_a_data_loss(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=SMALL._replace(cleanup_policy=COMPACT, file_delete_delay_ms=0))
    fill(log, 100)
    log.roll_segment_if_used()
    append(log, batch_of(log.log_end_offset, 3))
    clean(log)
    directory = finish(log)
    expected = written(directory)
    assert len(expected) < 20
    source = source_of(tmp_path)
    for splits in (1, 5, 100):
        assert records(source, source.make_splits([whole(source)], splits)) == expected
    for start, end in ((10, 200), (0, 297), (290, 299), (296, 301)):
        within = source.make_splits([OffsetRange(ORDERS, start, end)])
        assert records(source, within) == [row for row in expected if start <= row.offset < end]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_log_is_read_without_indexes(tmp_path: Path, suffix: str) -> None:
    directory = filled(tmp_path, 200)
    expected = written(directory)
    for path in directory.glob(f"*{suffix}"):
        path.unlink()
    source = source_of(tmp_path)
    assert records(source, source.make_splits([whole(source)], 30)) == expected
    assert source.find_offsets_at({ORDERS: 0}) == {ORDERS: 0}


def test_wrong_indexes_do_not_affect_the_rows(tmp_path: Path) -> None:
    directory = filled(tmp_path, 200)
    expected = written(directory)
    sound = {path: path.read_bytes() for path in directory.glob("*.index")}
    wrong = (
        lambda data: data[:-3],
        lambda data: bytes(reversed(data)),
        lambda data: data[:4] + b"\0\0\0\x07" + data[8:],
    )
    for change in (*wrong, lambda data: data + b"\x7f" * 8, lambda data: data + bytes(800), lambda data: b"\xff" * 16):
        for path, data in sound.items():
            path.write_bytes(change(data))
        source = source_of(tmp_path)
        assert records(source, source.make_splits([whole(source)], 30)) == expected
        some = source.make_splits([OffsetRange(ORDERS, 100, 200)])
        assert [row.offset for row in records(source, some)] == list(range(100, 200))


def test_source_and_splits_can_be_pickled(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    source = source_of(tmp_path, "orders", isolation_level="read_committed")
    splits = source.make_splits([whole(source)], 5)
    copy, copies = pickle.loads(pickle.dumps((source, splits)))
    assert copies == splits
    assert records(copy, copies) == written(directory)
    assert copy.find_bounds(copy.list_partitions()) == source.find_bounds([ORDERS])
    assert len(pickle.dumps(splits[0])) < 1000


def test_a_refreshed_source_sees_appended_records(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    fill(log, 2)
    source = source_of(tmp_path, isolation_level="read_committed")
    for count in (1, 1, 30, 1):
        end = log.log_end_offset
        assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, end)}
        fill(log, count)
        added = source.make_splits([OffsetRange(ORDERS, end, log.log_end_offset)])
        assert [row.offset for row in records(source, added)] == list(range(end, log.log_end_offset))


def test_a_refreshed_source_sees_a_rewritten_log(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    fill(log)
    source = source_of(tmp_path, isolation_level="read_committed")
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 120)}
    log.truncate_to(50)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, log.log_end_offset)}
    fill(log, 1, size=33)
    fill(log, 60)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, log.log_end_offset)}
    assert [row.offset for row in records(source)] == list(range(log.log_end_offset))


def test_a_missing_partition_is_a_data_loss(tmp_path: Path) -> None:
    finish(log_in(tmp_path))
    missing = TopicPartition("orders", 1)
    with pytest.raises(DataLoss, match="orders-1 is gone from"):
        source_of(tmp_path).find_bounds([missing])
    careless = source_of(tmp_path, fail_on_data_loss=False)
    assert careless.find_bounds([missing]) == {}
    assert careless.make_splits([OffsetRange(missing, 0, 5)]) == []


def test_reading_changes_no_file(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    for path in (*directory.glob("*.index"), *directory.glob("*.snapshot")):
        path.unlink()
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(b"torn")
    before = files_in(directory), files_in(tmp_path)
    source = source_of(tmp_path, isolation_level="read_committed")
    assert len(records(source, source.make_splits([whole(source)], 9))) == 120
    assert source.find_offsets_at({ORDERS: 0}) == {ORDERS: 0}
    assert (files_in(directory), files_in(tmp_path)) == before


def test_only_requested_columns_are_returned(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    source = source_of(tmp_path)
    (split,) = source.make_splits([whole(source)])
    (found,) = source.read_split(split, ReadRequest("records", ("timestampType", "offset")))
    assert found.schema.names == ["timestampType", "offset"]
    assert found.num_rows == 3
    source.close()


def compact_but_die(tmp_path: Path, *, keep: str) -> tuple[Path, list[Row]]:
    """A log whose compaction stopped when the new files had not yet, or only some of the old ones, been replaced."""
    log = log_in(tmp_path, settings=SMALL._replace(cleanup_policy=COMPACT, file_delete_delay_ms=1 << 40))
    fill(log, 100)
    log.roll_segment_if_used()
    before = files_in(Path(log.directory))
    clean(log)
    directory = finish(log)
    after = files_in(directory)
    expected = written(directory)
    replaced = [name for name, data in before.items() if after.get(name) != data and name.endswith(".log")]
    for name in replaced:
        for path in directory.glob(f"{name[:20]}.*"):
            path.unlink()
        if name in after:
            for suffix in (".log", ".index", ".timeindex"):
                (directory / f"{name[:20]}{suffix}.swap").write_bytes(after[name[:20] + suffix])
        if keep == "all originals" or (keep == "some originals" and name != replaced[0]):
            (directory / name).write_bytes(before[name])
    return directory, expected


@pytest.mark.parametrize("keep", ["no originals", "some originals", "all originals"])
def test_an_interrupted_compaction_is_read_as_at_a_brokers_next_start(tmp_path: Path, keep: str) -> None:
    directory, expected = compact_but_die(tmp_path, keep=keep)
    assert list(directory.glob("*.log.swap"))
    source = source_of(tmp_path)
    assert records(source) == expected
    assert records(source, source.make_splits([whole(source)], 10)) == expected


def test_a_file_that_disappears_during_listing_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = filled(tmp_path)
    source = source_of(tmp_path)
    ranges = [whole(source)]
    gone: list[str] = []
    original = segment_files.OpenSegment.__init__

    def going(opened: segment_files.OpenSegment, *arguments: Any) -> None:
        segment = arguments[0]
        if len(gone) < 3 and segment.path not in gone:
            gone.append(segment.path)
            raise FileNotFoundError(2, "No such file or directory", segment.path)
        original(opened, *arguments)

    monkeypatch.setattr(segment_files.OpenSegment, "__init__", going)
    assert records(source, source.make_splits(ranges)) == written(directory)
    assert len(gone) == 3
    monkeypatch.setattr(
        segment_files.OpenSegment, "__init__", lambda *_: DISK.open_to_read(str(directory / "nothing.log"))
    )
    with pytest.raises(DataLoss, match="nothing.log is gone"):
        source.make_splits(ranges)
