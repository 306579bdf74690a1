"""Transactions in a log: how far it is stable, and which are aborted, also after crashes, cuts and deletions.

What a marker does to one producer's state is tested in `test_producer_state.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.producers.aborted_transactions import (
    AbortedTransaction,
    decode_aborted_transactions,
)
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.compaction.support import COMPACT, clean
from tests.storage.support import NOW_MS, Aside, FailingDisk, Surroundings, append, batch, open_at

SMALL = LogSettings(segment_bytes=400)


class Writer:
    """A transactional producer of a log."""

    def __init__(self, log: Log, producer_id: int = 7) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0

    def write(self, count: int = 1) -> int:
        data = batch(
            count, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence, transactional=True
        )
        self.sequence += count
        return append(self.log, data)

    def end(self, *, committed: bool) -> int:
        return append(self.log, make_marker_batch(self.producer_id, 0, TransactionMarker(committed, 0), NOW_MS))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_at(tmp_path)


def aborted(log: Log, start: int = 0, end: int = 1 << 40) -> list[AbortedTransaction]:
    return list(log.list_aborted_transactions(start, end))


def test_the_last_stable_offset_is_at_the_oldest_open_transaction(log: Log) -> None:
    append(log, batch(3))
    assert log.last_stable_offset == 3
    first, second = Writer(log, 7), Writer(log, 8)
    first.write(2)
    second.write(2)
    append(log, batch(1))
    assert (log.last_stable_offset, log.high_watermark) == (3, 8)
    first.end(committed=True)
    assert log.last_stable_offset == 5
    second.end(committed=False)
    assert log.last_stable_offset == log.high_watermark == 10


def test_only_aborted_transactions_are_listed_for_consumers(log: Log) -> None:
    first, second = Writer(log, 7), Writer(log, 8)
    first.write()
    second.write()
    first.end(committed=False)
    second.end(committed=True)
    assert aborted(log) == [AbortedTransaction(7, 0, 2, 1)]
    assert aborted(log, 3) == []


def test_a_flush_does_not_require_the_index_of_a_compacted_segment(tmp_path: Path) -> None:
    surroundings, aside = Surroundings(), Aside()
    surroundings.environment = surroundings.environment._replace(run_in_thread=aside.take)
    log = open_at(tmp_path, LogSettings(cleanup_policy=COMPACT), surroundings=surroundings)
    append(log, batch(1))
    log.flush_soon()
    log.roll_segment_if_used()
    writer = Writer(log)
    writer.write()
    writer.end(committed=False)
    log.roll_segment_if_used()
    append(log, batch(1))
    clean(log)
    assert not (tmp_path / f"{1:020d}.txnindex").exists()
    told: list[object] = []
    log.flush_soon(told.append)
    while aside.jobs:
        aside.do()
    assert told == [None]


def test_a_marker_without_a_transaction_aborts_nothing(log: Log) -> None:
    Writer(log).end(committed=False)
    assert aborted(log) == []
    assert not list(Path(log.directory).glob("*.txnindex"))


def test_an_aborted_transaction_is_in_the_index_of_the_segment_with_its_marker(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    writer = Writer(log)
    writer.write()
    log.roll_segment_if_used()
    writer.end(committed=False)
    (file,) = tmp_path.glob("*.txnindex")
    assert file.name == f"{1:020d}.txnindex"
    assert decode_aborted_transactions(file.read_bytes()) == [AbortedTransaction(7, 0, 1, 2)]


def test_an_index_entry_that_failed_to_be_written_is_written_before_the_next_flush(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    log = open_at(tmp_path, surroundings=Surroundings(disk))
    writer = Writer(log)
    writer.write()
    disk.failing, disk.suffix = {"create"}, ".txnindex"
    writer.end(committed=False)
    assert aborted(log) == [AbortedTransaction(7, 0, 1, 2)]
    assert ".txnindex cannot be written to" in caplog.text
    disk.failing.clear()
    log.flush()
    (file,) = tmp_path.glob("*.txnindex")
    assert decode_aborted_transactions(file.read_bytes()) == aborted(log)


def test_the_last_stable_offset_is_at_least_the_log_start_offset(log: Log) -> None:
    Writer(log).write(3)
    assert log.last_stable_offset == 0
    log.delete_records_before(2)
    assert log.last_stable_offset == 2


# What a history of a log consists of: (what, producer or offset)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["write", "commit", "abort"]), st.integers(7, 9)),
    st.tuples(st.sampled_from(["plain", "roll", "crash", "restart"]), st.just(0)),
    st.tuples(st.sampled_from(["truncate", "delete"]), st.integers(0, 30)),
)


class Model:
    """The same history as plain lists: (first offset, next offset, producer, how it ends a transaction) a batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int | None, bool | None]] = []
        self.start = self.end = 0

    def append(self, producer: int | None, ends: bool | None = None) -> None:
        self.batches.append((self.end, self.end + 1, producer, ends))
        self.end += 1

    def truncate(self, offset: int) -> None:
        self.batches = [entry for entry in self.batches if entry[1] <= offset]
        self.end = min(self.end, offset)
        self.start = min(self.start, self.end)

    def open_and_aborted(self) -> tuple[dict[int, int], list[AbortedTransaction]]:
        opened: dict[int, int] = {}
        found = []
        for offset, _, producer, ends in self.batches:
            if producer is None:
                continue
            if ends is None:
                opened.setdefault(producer, offset)
            elif (first := opened.pop(producer, None)) is not None and not ends:
                found.append(AbortedTransaction(producer, first, offset, min(opened.values(), default=offset + 1)))
        return opened, found

    def check(self, log: Log) -> None:
        opened, found = self.open_and_aborted()
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.last_stable_offset == max(min(opened.values(), default=self.end), self.start)
        first = log.segments[0].base_offset
        assert aborted(log, self.start) == [one for one in found if one.last_offset >= max(self.start, first)]


@given(st.lists(STEPS, max_size=40))
def test_random_histories_preserve_the_transactions_of_the_batches(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory(prefix="transactions-") as directory:
        surroundings = Surroundings(FailingDisk())
        log, model = open_at(directory, SMALL, surroundings=surroundings), Model()
        for what, number in steps:
            if what == "write":
                Writer(log, number).write()
                model.append(number)
            elif what in ("commit", "abort"):
                Writer(log, number).end(committed=what == "commit")
                model.append(number, what == "commit")
            elif what == "plain":
                append(log, batch(1))
                model.append(None)
            elif what == "roll":
                log.roll_segment_if_used()
            elif what == "truncate":
                log.truncate_to(max(number, log.segments[0].base_offset))
                model.truncate(max(number, log.segments[0].base_offset))
            elif what == "delete":
                log.delete_records_before(min(number, log.high_watermark))
                model.start = max(model.start, min(number, model.end))
            else:
                start, point = log.log_start_offset, log.recovery_point
                if what == "crash":
                    log.close_without_flush()
                else:
                    log.close()
                clean = what == "restart"
                log = open_at(
                    directory,
                    SMALL,
                    clean=clean,
                    surroundings=surroundings,
                    recovery_point=point,
                    log_start_offset=start,
                )
            model.check(log)
        log.close_without_flush()


# --- damaged transaction indexes -----------------------------------------------------------------


def three_segments(directory: Path) -> list[AbortedTransaction]:
    """A closed log with aborted transactions in each of three segments, one of which began in the one before."""
    log = open_at(directory)
    writer, other = Writer(log), Writer(log, 8)
    for number in range(3):
        writer.write()
        if number == 0:
            other.write()
        writer.end(committed=number == 1)
        if number == 1:
            other.end(committed=False)
        if number < 2:
            log.roll_segment_if_used()
    known = aborted(log)
    log.close()
    assert len(known) == 3 and len(list(directory.glob("*.txnindex"))) == 3
    return known


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("left", [None, b"", bytes(34), b"\0" * 20, "wrong"])
def test_a_changed_transaction_index_is_rebuilt(
    tmp_path: Path, segment: int, left: bytes | str | None, caplog: pytest.LogCaptureFixture
) -> None:
    known = three_segments(tmp_path)
    file = sorted(tmp_path.glob("*.txnindex"))[segment]
    sound = file.read_bytes()
    if left is None:
        file.unlink()
    elif isinstance(left, str):
        file.write_bytes(sound[:17] + bytes([sound[17] ^ 1]) + sound[18:])
    else:
        file.write_bytes(left)
    log = open_at(tmp_path)
    assert aborted(log) == known
    assert file.read_bytes() == sound
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [f"{file} is rebuilt from the log"]


def test_a_transaction_index_before_the_recovery_point_is_rebuilt_after_a_crash(tmp_path: Path) -> None:
    known = three_segments(tmp_path)
    sorted(tmp_path.glob("*.txnindex"))[0].unlink()
    assert aborted(open_at(tmp_path, clean=False, recovery_point=known[2].last_offset)) == known


def test_a_corrupt_checkpoint_of_transaction_counts_is_replaced_by_reading_the_log(tmp_path: Path) -> None:
    known = three_segments(tmp_path)
    counts = tmp_path / "aborted-transactions-checkpoint"
    for text in (b"", b"nonsense", counts.read_bytes().replace(b"\n0 1", b"\n0 2")):
        counts.write_bytes(text)
        log = open_at(tmp_path)
        assert aborted(log) == known
        log.close_without_flush()


def test_a_log_without_aborted_transactions_has_no_checkpoint_of_their_counts(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, batch(3))
    log.roll_segment_if_used()
    log.close()
    assert not (tmp_path / "aborted-transactions-checkpoint").exists()


def test_a_recovery_writes_the_counts_of_aborted_transactions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("numpy")  # the verifier is the pipeline's
    from minibroker.pipeline.verifying.checkpoint_checks import find_wrong_aborted_counts

    settings = LogSettings(cleanup_policy=COMPACT)
    log = open_at(tmp_path, settings)
    writer = Writer(log)
    for _ in range(2):
        writer.write()
        writer.end(committed=False)
    log.roll_segment_if_used()
    append(log, batch(1))
    clean(log)
    log.close_without_flush()
    log = open_at(tmp_path, settings, clean=False)
    assert list(find_wrong_aborted_counts(str(tmp_path), [0, 4])) == []
    append(log, batch(1))
    log.close()
    assert list(find_wrong_aborted_counts(str(tmp_path), [0, 4])) == []
    caplog.clear()
    open_at(tmp_path, settings)
    assert not caplog.records
