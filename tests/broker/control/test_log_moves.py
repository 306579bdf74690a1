"""Logs that move between log directories: nothing is lost, repeated or held up, whatever happens on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import parse_uuid
from minibroker.storage.directories.log_copying import TAIL_BYTES
from minibroker.storage.directories.log_directory import LogDirectory
from tests.broker.harness import Harness, batch

LARGE = "x" * (TAIL_BYTES // 2)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Harness]:
    """Two log directories, and the topic t with one partition, in two/. What is done aside waits for `do_aside`."""
    directories = f"{tmp_path}/one,{tmp_path}/two"
    with Harness(tmp_path, settings={"log.dirs": directories, "log.segment.bytes": str(1 << 20)}) as harness:
        harness.create_topic("t")
        harness.clock.holds_aside = True
        yield harness


def place(harness: Harness) -> str:
    """The name of the directory in which the log of t-0 lies."""
    return Path(harness.logs.find_directory_of_log(harness.partition("t").log).path).name


def other(harness: Harness) -> LogDirectory:
    """The directory in which it does not lie."""
    lies = harness.logs.find_directory_of_log(harness.partition("t").log)
    return next(directory for directory in harness.logs.directories if directory is not lies)


def begin(harness: Harness) -> LogDirectory:
    target = other(harness)
    harness.cluster.moves.start_log_move(harness.partition("t"), target)
    return target


def work(harness: Harness) -> None:
    """Do all that is to be done aside, and what that brings up."""
    while harness.clock.do_aside():
        harness.clock.advance(5)


def contents(partition: Partition) -> bytes:
    """All batches from the log's start on."""
    log, found = partition.log, b""
    offset = log.log_start_offset
    while (region := log.read(offset, 1 << 24)) is not None:
        found += region.read()
        offset = region.next_offset
    return found


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir() and path.name.startswith("t-0"))


def test_a_log_moves_with_all_its_files(two: Harness) -> None:
    for number in range(8):
        two.produce("t", LARGE, str(number))
    before, log = contents(two.partition("t")), two.partition("t").log
    epoch, target = log.find_end_offset_of_epoch(0), begin(two)
    work(two)
    moved = two.partition("t").log
    assert moved is not log and two.logs.find_directory_of_log(moved) is target
    assert contents(two.partition("t")) == before
    assert (moved.log_start_offset, moved.log_end_offset, moved.high_watermark) == (0, 16, 16)
    assert moved.find_end_offset_of_epoch(0) == epoch
    assert len(moved.segments) >= 8
    assert moved.topic_id == two.partition("t").topic.topic_id
    assert two.produce("t", "after") == 16
    found = {name for directory in two.logs.directories for name in names(Path(directory.path))}
    assert [name for name in found if not name.endswith("-delete")] == ["t-0"]
    assert not (Path(moved.directory) / "moved").exists()


def test_the_metadata_records_the_directory_of_the_log(two: Harness) -> None:
    target = begin(two)
    work(two)
    assert two.partition("t").directories == [parse_uuid(target.directory_id)]
    two.restart(crash=True)
    assert two.partition("t").directories == [parse_uuid(target.directory_id)]


def test_records_appended_during_a_move_are_kept_in_order(two: Harness) -> None:
    expected = 6
    for _ in range(expected):
        two.produce("t", LARGE)
    begin(two)
    while two.clock.do_aside():
        assert two.produce("t", LARGE if expected % 3 else "small") == expected
        expected += 1
        two.clock.advance(5)
    assert expected > 12
    assert two.partition("t").log.log_end_offset == expected
    assert place(two) == "one"
    two.restart(crash=True)
    assert two.partition("t").log.log_end_offset == expected
    assert two.produce("t", "v") == expected


def test_a_producers_sequence_continues_after_the_move(two: Harness) -> None:
    numbers = {"producer_id": 7, "producer_epoch": 0}
    for sequence in range(3):
        assert two.produce("t", "v", base_sequence=sequence, **numbers) == sequence
    begin(two)
    work(two)
    assert two.produce("t", "v", base_sequence=2, **numbers) == 2, "a repetition"
    assert two.produce("t", "v", base_sequence=3, **numbers) == 3
    refused = two.produce_batch("t", batch("v", base_sequence=9, **numbers))
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_flushed_record_is_never_moved_to_an_unflushed_copy(two: Harness) -> None:
    begin(two)
    told: list[object] = []
    log = two.partition("t").log
    while two.partition("t").log is log:
        two.produce("t", "v")
        two.partition("t").log.flush_soon(told.append)
        two.clock.do_aside()
        two.clock.advance(5)
    moved = two.partition("t").log
    assert log.recovery_point <= moved.log_end_offset
    work(two)
    assert (set(told), moved.recovery_point) == ({None}, moved.log_end_offset)
    assert len(told) == moved.log_end_offset


def test_deleted_records_stay_deleted_after_a_move(two: Harness) -> None:
    for _ in range(6):
        two.produce("t", LARGE)
    begin(two)
    two.clock.do_aside()
    two.partition("t").log.delete_records_before(3)
    work(two)
    log = two.partition("t").log
    assert (place(two), log.log_start_offset, log.log_end_offset) == ("one", 3, 6)
    assert log.segments[0].base_offset > 0
    kept = {path.name for path in Path(log.directory).iterdir() if path.suffix == ".log"}
    assert kept == {f"{segment.base_offset:020d}.log" for segment in log.segments}


def test_a_compaction_during_the_move_is_in_the_copy(tmp_path: Path) -> None:
    settings = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two", "log.segment.bytes": str(1 << 20)}
    with Harness(tmp_path, settings=settings) as harness:
        harness.create_topic("t")
        for _ in range(6):
            harness.produce("t", LARGE)
        harness.clock.holds_aside = True
        begin(harness)
        harness.clock.do_aside()
        log = harness.partition("t").log
        first, second, *_ = log.segments
        _replace(harness, first, second)
        work(harness)
        assert place(harness) == "one"
        moved = harness.partition("t").log
        assert [segment.base_offset for segment in moved.segments] == [segment.base_offset for segment in log.segments]
        assert moved.segments[0].size_bytes == second.size_bytes
        assert moved.log_end_offset == 6


def _replace(harness: Harness, first: object, second: object) -> None:
    """Do what the cleaner does when only the records of the second of two segments are left."""
    from minibroker.storage.names import CLEANED_SUFFIX
    from minibroker.storage.segment import Segment

    assert isinstance(first, Segment) and isinstance(second, Segment)
    log = harness.partition("t").log
    path = first.path + ".log" + CLEANED_SUFFIX
    file = harness.disk.open(path, create=True)
    file.write(0, second.file.read(0, second.size_bytes))
    new = Segment.open_with_file(harness.disk, log.directory, first.base_offset, log.settings, 0, file)
    log.replace_segments([first, second], new)


def test_a_move_back_cancels_the_move_in_progress(two: Harness) -> None:
    two.produce("t", LARGE)
    source = two.logs.find_directory_of_log(two.partition("t").log)
    target = begin(two)
    assert [move.partition for move in two.cluster.moves.list_moves_to(target)] == [two.partition("t")]
    two.cluster.moves.start_log_move(two.partition("t"), source)
    assert two.cluster.moves.list_moves_to(target) == []
    work(two)
    assert place(two) == "two"
    two.clock.advance(1)
    work(two)
    assert names(two.directory / "one") == []


def test_a_topic_deleted_during_a_move_leaves_no_files(two: Harness) -> None:
    two.produce("t", LARGE)
    begin(two)
    two.cluster.controller.delete_topic(two.cluster.image.topics["t"])
    work(two)
    two.clock.advance(1)
    work(two)
    assert names(two.directory / "one") == []
    two.clock.holds_aside = False
    two.create_topic("t")
    assert two.produce("t", "new") == 0


def test_log_moves_run_one_after_the_other(two: Harness) -> None:
    two.clock.holds_aside = False
    two.create_topic("u")
    two.create_topic("v")
    two.clock.holds_aside = True
    partitions = [two.partition(name) for name in ("t", "u", "v")]
    targets = []
    for partition in partitions:
        lies = two.logs.find_directory_of_log(partition.log)
        targets.append(next(directory for directory in two.logs.directories if directory is not lies))
        two.cluster.moves.start_log_move(partition, targets[-1])
    work(two)
    assert [two.logs.find_directory_of_log(partition.log) for partition in partitions] == targets


def test_a_move_interrupted_by_a_crash_restarts_with_the_broker(two: Harness) -> None:
    for _ in range(3):
        two.produce("t", LARGE)
    before = contents(two.partition("t"))
    begin(two)
    two.clock.do_aside()
    assert names(two.directory / "one") != []
    two.restart(crash=True)  # the clock of the new start holds nothing
    assert (place(two), contents(two.partition("t"))) == ("one", before)
    assert names(two.directory / "one") == ["t-0"]


def test_a_crash_between_the_two_renames_keeps_the_newer_log(two: Harness) -> None:
    two.produce("t", "a")
    old = Path(two.partition("t").log.directory)
    begin(two)
    work(two)
    new = Path(two.partition("t").log.directory)
    two.produce("t", "b")
    two.stop(crash=True)
    (deleted,) = old.parent.glob("t-0.*-delete")
    deleted.rename(old)
    (new / "moved").write_text(str(old))
    two.start()
    assert (place(two), two.partition("t").log.log_end_offset) == ("one", 2)
    assert (old.exists(), (new / "moved").exists()) == (False, False)


def test_a_failed_move_leaves_the_log_in_place(two: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    two.produce("t", "a")
    begin(two)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(two.disk, "write_whole", fail)
        work(two)
    assert place(two) == "two"
    assert two.cluster.moves.list_moves_to(other(two)) == []
    told: list[object] = []
    two.produce("t", "b")
    two.partition("t").log.flush_soon(told.append)
    work(two)
    assert told == [None], "flushes go on"
    begin(two)
    work(two)
    assert (place(two), two.produce("t", "c")) == ("one", 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_moved_log_equals_the_original_after_random_operations(two: Harness, seed: int) -> None:
    chance = random.Random(seed)
    partition = two.partition("t")
    for _ in range(4):
        begin(two)
        for _ in range(chance.randrange(1, 30)):
            action = chance.randrange(6)
            if action < 3:
                two.produce("t", LARGE if chance.random() < 0.4 else "small")
            elif action == 3:
                log = partition.log
                log.delete_records_before(chance.randint(log.log_start_offset, log.log_end_offset))
            elif action == 4:
                partition.log.flush_soon()
            two.clock.do_aside()
            two.clock.advance(chance.randrange(5))
        expected = contents(partition), partition.log.log_start_offset, partition.log.log_end_offset
        work(two)
        assert (contents(partition), partition.log.log_start_offset, partition.log.log_end_offset) == expected
        if chance.random() < 0.3:
            two.restart(crash=chance.random() < 0.5)
            two.clock.holds_aside = True
            partition = two.partition("t")
            assert partition.log.log_end_offset == expected[2]
