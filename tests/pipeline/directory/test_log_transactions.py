"""What a reader of committed records sees: up to the last stable offset, without what was aborted.

The truth is the storage engine's own last stable offset and its index of aborted transactions.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.log_source import Bounds, CorruptData, DataLoss, OffsetRange, ReadRequest
from minibroker.protocol.records.formats import iterate_records_in_any_format, read_header_at
from minibroker.storage.checkpoints.checkpoint_texts import RECOVERY_POINT_CHECKPOINT, format_offset_checkpoint
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import CLEAN_SHUTDOWN
from tests.pipeline.directory.support import (
    BATCHES,
    ORDERS,
    SMALL,
    Writer,
    batches_in,
    damaged_marker,
    fill,
    finish,
    log_in,
    records,
    rows,
    source_of,
    whole,
)
from tests.storage.compaction.support import COMPACT, clean

# (producer, what it does)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["write", "commit", "abort", "plain"])), max_size=60)


def committed(path: Path | str) -> DirectorySource:
    return source_of(path, isolation_level="read_committed")


def play(log: Log, steps: list[tuple[int, str]], known: list[Writer] | None = None) -> None:
    writers = known or [Writer(log, producer_id) for producer_id in range(1, 5)]
    for number, what in steps:
        if what == "write":
            writers[number].write(1 + number)
        elif what == "plain":
            fill(log, 1)
        else:
            writers[number].end(committed=what == "commit")


def visible(log: Log, directory: Path) -> list[int]:
    """The offsets of committed records, by what the storage engine says."""
    aborted = log.list_aborted_transactions(0, log.log_end_offset)
    found = []
    for path in sorted(directory.glob("*.log")):
        for data in batches_in(path.read_bytes()):
            header = read_header_at(data)
            is_aborted = header.is_transactional and any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            if not header.is_control and not is_aborted:
                found += [record.offset for record in iterate_records_in_any_format(data)]
    return [offset for offset in found if offset < log.last_stable_offset]


def damage_the_indexes(directory: Path, how: str) -> None:
    for path in directory.glob("*.txnindex"):
        if how == "torn":
            path.write_bytes(path.read_bytes()[:-5])
        elif how in ("gone", "all gone"):
            path.unlink()
    if how in ("gone", "all gone"):
        for path in (*directory.glob("*.index"), *(directory.glob("*.snapshot") if how == "all gone" else ())):
            path.unlink()


@given(STEPS, st.sampled_from(["clean", "killed", "flushed", "torn", "gone", "all gone"]), st.integers(0, 5))
def test_only_committed_records_are_read(steps: list[tuple[int, str]], how: str, splits: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = log_in(Path(name), settings=LogSettings(segment_bytes=700, index_interval_bytes=200))
        play(log, steps)
        stable_offset, directory = log.last_stable_offset, Path(log.directory)
        expected = visible(log, directory)
        log.flush()
        if how == "clean":
            finish(log)
            (Path(name) / CLEAN_SHUTDOWN).touch()
        elif how == "flushed":
            point = {ORDERS: log.segments[-1].base_offset}
            (Path(name) / RECOVERY_POINT_CHECKPOINT).write_bytes(format_offset_checkpoint(point))
        elif how != "killed":
            damage_the_indexes(directory, how)
        source = committed(name)
        assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, stable_offset)}
        found = records(source, source.make_splits([whole(source)], splits))
        assert [row.offset for row in found] == expected


@given(st.lists(STEPS, max_size=5))
def test_a_refreshed_source_sees_ended_transactions(parts: list[list[tuple[int, str]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = log_in(Path(name), settings=LogSettings(segment_bytes=700, index_interval_bytes=200))
        source = committed(name)
        found, end = [], 0
        writers = [Writer(log, producer_id) for producer_id in range(1, 5)]
        for steps in parts:
            play(log, steps, writers)
            start, end = end, source.find_bounds([ORDERS])[ORDERS].latest
            assert end == log.last_stable_offset
            found += [row.offset for row in records(source, source.make_splits([OffsetRange(ORDERS, start, end)]))]
        assert found == visible(log, Path(log.directory))


def test_read_uncommitted_returns_all_records(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    play(log, [(0, "write"), (1, "write"), (0, "abort"), (2, "write"), (1, "commit")])
    finish(log)
    source = source_of(tmp_path)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 8)}
    assert [row.offset for row in records(source)] == [0, 1, 2, 4, 5, 6]


def test_batches_of_aborted_transactions_are_omitted(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    play(log, [(0, "write"), (1, "write"), (0, "abort"), (1, "commit"), (0, "write"), (0, "commit")])
    finish(log)
    source = committed(tmp_path)
    found = rows(source, source.make_splits([whole(source)]), BATCHES)
    assert [row["baseOffset"] for row in found if not row["isControl"]] == [1, 5]
    assert [row["baseOffset"] for row in found if row["isControl"]] == [3, 4, 6]


def test_a_late_abort_omits_its_records_in_every_segment(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=SMALL)
    play(log, [(0, "write")] + [(1, "plain")] * 20 + [(0, "write")] + [(1, "plain")] * 20 + [(0, "abort")])
    directory = finish(log)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert len(list(directory.glob("*.log"))) > 2
    source = committed(tmp_path)
    found = records(source, source.make_splits([whole(source)], 10))
    assert [row.offset for row in found] == [*range(1, 61), *range(62, 122)]
    early = source.make_splits([OffsetRange(ORDERS, 0, 5)])
    assert [row.offset for row in records(source, early)] == [1, 2, 3, 4]


def test_committed_records_are_read_after_transactions_were_compacted(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=SMALL._replace(cleanup_policy=COMPACT, file_delete_delay_ms=0))
    play(log, [(number % 3, ["write", "abort", "write", "commit"][number // 3 % 4]) for number in range(200)])
    log.roll_segment_if_used()
    play(log, [(3, "write"), (3, "commit")])
    clean(log)
    expected = visible(log, Path(log.directory))
    finish(log)
    source = committed(tmp_path)
    assert [row.offset for row in records(source, source.make_splits([whole(source)], 4))] == expected


def test_reading_continues_after_a_log_is_compacted_between_two_refreshes(tmp_path: Path) -> None:
    log = log_in(tmp_path, settings=LogSettings(cleanup_policy=COMPACT, file_delete_delay_ms=0))
    fill(log, 50)
    writer = Writer(log, 7)
    writer.write(3)
    source = committed(tmp_path)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 150)}
    writer.end(committed=True)  # compaction moves the marker to before the place that was reached
    log.roll_segment_if_used()
    fill(log, 1)
    clean(log)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 157)}
    expected = visible(log, Path(log.directory))
    assert [row.offset for row in records(source, source.make_splits([whole(source)], 4))] == expected


def test_an_end_beyond_the_last_stable_offset_cannot_be_read(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    play(log, [(0, "plain"), (0, "write"), (0, "plain")])
    finish(log)
    assert committed(tmp_path).find_bounds([ORDERS]) == {ORDERS: Bounds(0, 3)}
    with pytest.raises(DataLoss, match="orders-0 ends at offset 3 now"):
        committed(tmp_path).make_splits([OffsetRange(ORDERS, 0, 7)])


DAMAGES = ("marker", "id in the marker", "length of the marker")


@pytest.mark.parametrize("how", DAMAGES)
def test_a_transaction_of_unknown_outcome_fails_with_failfast(tmp_path: Path, how: str) -> None:
    path, position = damaged_marker(tmp_path, how)
    with pytest.raises(CorruptData, match=f"{path}: .*{position}.*; it is unknown whether a transaction was committed"):
        committed(tmp_path).find_bounds([ORDERS])
    assert source_of(tmp_path).find_bounds([ORDERS]) == {ORDERS: Bounds(0, 15)}


@pytest.mark.parametrize("splits", [0, 9])
@pytest.mark.parametrize("how", DAMAGES)
def test_a_transaction_of_unknown_outcome_is_one_damage_row(tmp_path: Path, how: str, splits: int) -> None:
    path, position = damaged_marker(tmp_path, how)
    source = source_of(tmp_path, isolation_level="read_committed", fail_on_damage=False)
    assert source.find_bounds([ORDERS]) == {ORDERS: Bounds(0, 15)}
    request = ReadRequest("records", ("offset", "_corrupt"), mode="PERMISSIVE")
    found = rows(source, source.make_splits([whole(source)], splits), request)
    assert [row["offset"] for row in found if row["_corrupt"]] == [7]
    assert [row["_corrupt"] for row in found if row["_corrupt"]][0].startswith(f"{path}: position {position}, offset 7")
    # Whose marker it was is still known where only what it says is damaged; else it may have been either's.
    of_two = [5, 6] if how == "marker" else []
    assert [row["offset"] for row in found if not row["_corrupt"]] == [0, 1, 2, *of_two, 8, 9, 12, 13, 14]
    dropped = rows(source, source.make_splits([whole(source)], splits), replace(request, mode="DROPMALFORMED"))
    assert dropped == [row for row in found if not row["_corrupt"]]


@pytest.mark.parametrize("at", [46, 70], ids=["id", "record"])
def test_a_corrupt_batch_that_seems_to_start_a_transaction_hides_no_committed_records(tmp_path: Path, at: int) -> None:
    log = log_in(tmp_path, settings=LogSettings())
    play(log, [(0, "write"), (0, "write"), (0, "commit"), (0, "plain"), (1, "write"), (1, "write")])
    path = finish(log) / "00000000000000000000.log"
    sizes = [len(data) for data in batches_in(path.read_bytes())]
    position = sum(sizes[:1]) if at == 46 else sum(sizes[:4])
    data = bytearray(path.read_bytes())
    data[position + at] ^= 1
    path.write_bytes(data)
    source = committed(tmp_path)
    for _ in range(2):
        with pytest.raises(
            CorruptData, match=f"{path}: the batch at {position}, .*; it is unknown whether a transaction was "
        ):
            source.find_bounds([ORDERS])
    source = source_of(tmp_path, isolation_level="read_committed", fail_on_damage=False)
    request = ReadRequest("records", ("offset", "_corrupt"), mode="PERMISSIVE")
    found = rows(source, source.make_splits([whole(source)]), request)
    stable_offset, corrupt, sound = (6, [1], [0, 3, 4, 5]) if at == 46 else (10, [6], [0, 1, 3, 4, 5])
    assert source.find_bounds([ORDERS])[ORDERS].latest == stable_offset
    assert [row["offset"] for row in found if row["_corrupt"]] == corrupt
    assert [row["offset"] for row in found if not row["_corrupt"]] == sound
