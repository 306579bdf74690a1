"""A cleaning from end to end: what it leaves, what makes it void, what it does with a damage, who reads meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction.cleaning import CleaningAborted, LogCleaning
from minibroker.storage.compaction.rewriting import CleaningLimits
from minibroker.storage.log import Log
from minibroker.storage.producers.aborted_transactions import AbortedTransaction, decode_aborted_transactions
from tests.storage.compaction.support import (
    COMPACT,
    LIMITS,
    SETTINGS,
    begin,
    clean,
    contents,
    fill,
    log_headers,
    pairs,
)
from tests.storage.support import (
    NOW_MS,
    FailingDisk,
    Surroundings,
    append,
    files_in,
    offset_for_timestamp,
    open_at,
    read_batches,
)


def two_rounds(directory: Path, surroundings: Surroundings | None = None) -> Log:
    """A log in whose segments every key is written twice."""
    log = open_at(directory, SETTINGS, surroundings=surroundings)
    fill(log, [pairs((f"k{index % 3}", f"v{index}"), (f"k{index % 3}", f"w{index}")) for index in range(6)])
    return log


AFTER_TWO_ROUNDS = [(7, "k0", "w3"), (9, "k1", "w4"), (11, "k2", "w5")]


def test_the_latest_value_of_each_key_is_kept_at_its_offset(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    append(log, pairs(("k0", "active")))
    clean(log)
    assert contents(log) == [*AFTER_TWO_ROUNDS, (12, "k0", "active")]
    assert (log.log_start_offset, log.log_end_offset, log.clean_offset) == (0, 13, 12)


def test_a_second_cleaning_without_new_records_changes_nothing(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    clean(log)
    before = read_batches(log)
    clean(log)
    assert read_batches(log) == before


def test_records_that_share_an_offset_keep_the_latest_of_each_key(tmp_path: Path) -> None:
    """Producers may send them, and they are stored so, as in Kafka."""
    log = open_at(tmp_path, SETTINGS)
    shared = [Record(offset, NOW_MS, key, b"v") for offset, key in ((1, b"a"), (1, b"b"), (0, b"c"), (3, b"d"))]
    fill(log, [build_batch(shared, keep_offsets=True), pairs(("a", "w"), ("b", "w")), pairs(("active", "x"))])
    clean(log)
    assert contents(log) == [(0, "c", "v"), (3, "d", "v"), (4, "a", "w"), (5, "b", "w"), (6, "active", "x")]


def test_the_last_batch_of_each_producer_is_kept_without_its_records(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    first, last = (
        pairs(("k", value), producer_id=7, producer_epoch=0, base_sequence=sequence)
        for sequence, value in enumerate("ab")
    )
    fill(log, [first, last, pairs(("k", "of nobody"))])
    clean(log)
    assert contents(log) == [(2, "k", "of nobody")]
    assert [(header.producer_id, header.base_offset, header.record_count) for header in log_headers(log)] == [
        (7, 1, 0),
        (-1, 2, 1),
    ]


def test_small_segments_are_merged(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    cleaning = clean(log)
    assert (cleaning.segments, cleaning.replacements) == (6, 2)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 12]


def test_the_original_segments_are_deleted_after_the_delay(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = two_rounds(tmp_path, surroundings)
    clean(log)
    assert sum(name.endswith(".log.deleted") for name in files_in(tmp_path)) == 6
    surroundings.run_scheduled()
    assert not any(name.endswith(".deleted") for name in files_in(tmp_path))
    assert not any(name.endswith((".cleaned", ".swap")) for name in files_in(tmp_path))


def test_a_cleaned_log_is_unchanged_by_a_restart(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    clean(log)
    before = read_batches(log)
    log.close()
    for is_clean in (True, False):
        log = open_at(tmp_path, SETTINGS, clean=is_clean)
        assert read_batches(log) == before
        log.close()


def test_keys_that_exceed_the_offset_map_wait_for_the_next_cleaning(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs(("a", "1"), ("b", "1"), ("c", "1")), pairs(("a", "2"), ("b", "2"), ("c", "2"))])
    cleaning = clean(log, limits=CleaningLimits(72, 0.7, 4096))
    assert cleaning.rewriter is not None
    assert cleaning.rewriter.keys.capacity == 2
    assert log.clean_offset == 2
    assert contents(log)[0] == (0, "a", "1")
    while log.clean_offset < 6:
        clean(log, limits=CleaningLimits(72, 0.7, 4096))
    assert contents(log) == [(3, "a", "2"), (4, "b", "2"), (5, "c", "2")]


def test_a_read_at_a_removed_offset_continues_at_the_next_record(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    clean(log)
    firsts = {offset: min(found for found, _, _ in AFTER_TWO_ROUNDS if found >= offset) for offset in range(12)}
    for offset, first in firsts.items():
        region = log.read(offset, 1)
        assert region is not None
        assert check_batch(region.read()).last_offset == first


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="open files cannot be removed there")
def test_a_region_of_a_segment_replaced_by_a_cleaning_can_still_be_read(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = two_rounds(tmp_path, surroundings)
    region = log.read(0, 1 << 20)
    assert region is not None
    expected = region.read()
    clean(log)
    surroundings.run_scheduled()
    assert region.read() == expected
    following = log.read(region.next_offset, 1 << 20)
    assert following is not None


# --- what makes a cleaning void ---------------------------------------------------------------------------------------


def step(cleaning: LogCleaning, after_work: bool) -> None:
    """Bring a cleaning to where it has written something, or has swapped something in."""
    assert cleaning.clean_next_segment()
    if not after_work:
        cleaning.replace_cleaned_segments()


def finish(cleaning: LogCleaning, after_work: bool) -> None:
    if after_work:
        cleaning.replace_cleaned_segments()
    while cleaning.clean_next_segment():
        cleaning.replace_cleaned_segments()
    cleaning.set_clean_offset()


@pytest.mark.parametrize("after_work", [True, False])
@pytest.mark.parametrize("change", ["truncate", "settings", "close", "cancel"])
def test_segments_of_a_log_that_changes_during_its_cleaning_are_not_replaced(
    tmp_path: Path, change: str, after_work: bool
) -> None:
    log = two_rounds(tmp_path)
    cleaning = begin(log)
    step(cleaning, after_work)
    if change == "truncate":
        log.truncate_to(11)
    elif change == "settings":
        log.update_settings(SETTINGS._replace(cleanup_policy=frozenset({"delete"})))
    elif change == "close":
        log.close()
    else:
        cleaning.cancel()
    before = files_in(tmp_path)
    with pytest.raises(CleaningAborted):
        finish(cleaning, after_work)
    after = files_in(tmp_path)
    assert after == {name: content for name, content in before.items() if not name.endswith(".cleaned")}
    assert log.clean_offset == 0


def test_updating_to_equal_settings_does_not_abort_a_cleaning(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    cleaning = begin(log)
    step(cleaning, after_work=True)
    log.update_settings(SETTINGS._replace(segment_bytes=SETTINGS.segment_bytes))
    finish(cleaning, after_work=True)
    assert contents(log) == AFTER_TWO_ROUNDS


def test_segments_deleted_during_a_cleaning_stay_deleted(tmp_path: Path) -> None:
    surroundings = Surroundings()
    log = two_rounds(tmp_path, surroundings)
    cleaning = begin(log)
    assert cleaning.clean_next_segment()
    log.delete_records_before(6)
    with pytest.raises(CleaningAborted):
        cleaning.replace_cleaned_segments()
    surroundings.run_scheduled()
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in files_in(tmp_path))
    assert [offset for offset, _, _ in contents(log)] == [6, 7, 8, 9, 10, 11]
    clean(log)
    assert contents(log) == AFTER_TWO_ROUNDS


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="open files cannot be renamed there")
def test_deleting_a_log_during_its_cleaning_is_not_an_error(tmp_path: Path) -> None:
    log = two_rounds(tmp_path / "log")
    cleaning = begin(log)
    (tmp_path / "log").rename(tmp_path / "gone")
    log.close_without_flush()
    with pytest.raises(CleaningAborted):
        cleaning.clean_next_segment()


def test_appends_and_rolls_during_a_cleaning_are_kept(tmp_path: Path) -> None:
    log = two_rounds(tmp_path)
    cleaning = begin(log)
    assert cleaning.clean_next_segment()
    fill(log, [pairs(("k0", "meanwhile"))])
    cleaning.replace_cleaned_segments()
    assert cleaning.clean_next_segment()
    append(log, pairs(("k1", "late")))
    cleaning.replace_cleaned_segments()
    finish(cleaning, after_work=False)
    assert contents(log) == [*AFTER_TWO_ROUNDS, (12, "k0", "meanwhile"), (13, "k1", "late")]
    assert log.clean_offset == 12


def test_a_thread_cleans_while_another_appends_reads_rolls_and_flushes(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(segment_bytes=2000))
    known: dict[str, tuple[int, str]] = {}
    cleaning, asked, answered = None, threading.Event(), threading.Event()
    has_more, failures = False, list[BaseException]()

    def work() -> None:
        nonlocal has_more
        while asked.wait() and cleaning is not None:
            asked.clear()
            try:
                has_more = cleaning.clean_next_segment()
            except BaseException as error:
                failures.append(error)
            answered.set()

    thread = threading.Thread(target=work)
    thread.start()
    cleanings = 0
    for index in range(3000):
        key = f"k{index % 7}"
        known[key] = (append(log, pairs((key, str(index)))), str(index))
        if index % 50 == 0:
            log.flush()
            assert offset_for_timestamp(log, NOW_MS) is not None
        if cleaning is not None and index % 20 == 0:
            answered.wait()  # the other thread keeps up, however little it gets of a busy machine
        if cleaning is None and len(log.segments) > 4:
            cleaning = begin(log)
            asked.set()
        elif cleaning is not None and answered.is_set():
            answered.clear()
            assert not failures
            if has_more:
                cleaning.replace_cleaned_segments()
                asked.set()
            else:
                cleaning.set_clean_offset()
                cleanings += 1
                cleaning = begin(log)
                asked.set()
    answered.wait()
    cleaning = None
    asked.set()
    thread.join()
    assert not failures
    assert cleanings > 2
    latest = {key: (offset, value) for offset, key, value in contents(log)}
    assert latest == known
    assert len(contents(log)) < 1000


# --- transactions -----------------------------------------------------------------------------------------------------


def test_an_aborted_transaction_is_completely_removed_by_three_cleanings(tmp_path: Path) -> None:
    """First its records, then, after its horizon, its marker; the index lists it as long as readers need it."""
    log = open_at(tmp_path, SETTINGS._replace(delete_retention_ms=1000))
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    record = make_transaction_marker(committed=False, coordinator_epoch=1, timestamp=NOW_MS)
    fill(
        log,
        [
            pairs(("a", "committed")),
            pairs(("a", "aborted"), base_sequence=0, **options),
            build_batch([record], control=True, **options),  # type: ignore[arg-type]
            pairs(("b", "1"), producer_id=7, producer_epoch=0, base_sequence=1),
        ],
    )
    transaction = AbortedTransaction(7, 1, 2, 3)
    assert log.list_aborted_transactions(0, 4) == [transaction]
    clean(log)
    assert [(offset, key) for offset, key, _ in contents(log) if key in ("a", "b")] == [(0, "a"), (3, "b")]
    assert [header.is_control for header in log_headers(log)] == [False, True, False]
    (kept,) = tmp_path.glob("*.txnindex")
    assert decode_aborted_transactions(kept.read_bytes()) == [transaction]
    assert log.list_aborted_transactions(0, 4) == [transaction]
    fill(log, [pairs(("c", "1"))])
    clean(log)
    assert [header.delete_horizon_ms for header in log_headers(log)] == [None, NOW_MS + 1000, None, None]
    assert not list(tmp_path.glob("*.txnindex"))
    assert not log.list_aborted_transactions(0, 4)  # or readers would wait for the marker, and skip what is committed
    fill(log, [pairs(("d", "1"))])
    clean(log, now_ms=NOW_MS + 1000)
    assert contents(log) == [(0, "a", "committed"), (3, "b", "1"), (4, "c", "1"), (5, "d", "1")]


def test_an_aborted_transaction_without_an_index_entry_is_not_treated_as_committed(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_at(tmp_path, SETTINGS, surroundings=Surroundings(disk))
    options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    record = make_transaction_marker(committed=False, coordinator_epoch=1, timestamp=NOW_MS)
    fill(log, [pairs(("a", "committed")), pairs(("a", "aborted"), base_sequence=0, **options)])
    disk.failing, disk.suffix = {"create", "open"}, ".txnindex"
    append(log, build_batch([record], control=True, **options))  # type: ignore[arg-type]
    disk.failing = set()
    assert not list(tmp_path.glob("*.txnindex"))
    clean(log)
    assert [(offset, key, value) for offset, key, value in contents(log) if key == "a"] == [(0, "a", "committed")]


def test_only_records_with_keys_remain_if_compaction_is_enabled_later(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(cleanup_policy=frozenset({"delete"})))
    fill(log, [pairs((None, "x"), ("a", "1")), pairs((None, "y"), (None, "z")), pairs(("b", "1"))])
    log.update_settings(log.settings._replace(cleanup_policy=COMPACT))
    cleaning = clean(log)
    assert contents(log) == [(1, "a", "1"), (4, "b", "1")]
    assert cleaning.rewriter is not None
    assert cleaning.rewriter.counts.keyless_records == 3


def test_the_memory_of_a_cleanings_offset_map_is_limited(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs(*[(f"key-{index}", "v") for index in range(1000)])])
    cleaning = clean(log, limits=LIMITS._replace(keys_bytes=2400))
    assert cleaning.rewriter is not None
    assert cleaning.rewriter.keys.size_bytes <= 2400
    assert log.clean_offset == cleaning.rewriter.keys.capacity <= 90
