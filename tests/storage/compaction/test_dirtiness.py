"""How much of a log may be cleaned, and when it is enough: ages, ratios, what is stable, where the last one ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.storage.compaction.dirtiness import LogDirtiness, is_cleaning_due, measure_dirtiness
from minibroker.storage.log import Log
from tests.storage.compaction.support import SETTINGS, clean, fill, pairs
from tests.storage.support import NOW_MS, append, open_at

LAG_MS = 1000


def log_of(directory: Path, batches: int = 4, **settings: float) -> Log:
    """A log of segments of one batch of ten records each, a second apart, the last one now, and an empty active one."""
    log = open_at(directory, SETTINGS._replace(**settings))
    fill(
        log,
        [
            pairs(*[("k", str(index))] * 10, timestamp=NOW_MS - 1000 * (batches - 1 - index) - 9)
            for index in range(batches)
        ],
    )
    return log


def dirt(clean_bytes: int, cleanable_bytes: int, *, is_overdue: bool = False) -> LogDirtiness:
    return LogDirtiness(0, 0, clean_bytes, cleanable_bytes, is_overdue)


def test_all_segments_but_the_active_one_are_cleanable(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, pairs(("k", "active")))
    size = sum(segment.size_bytes for segment in log.segments[:-1])
    assert measure_dirtiness(log, NOW_MS) == LogDirtiness(0, 40, 0, size, False)


def test_a_log_of_one_segment_has_nothing_to_clean(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    append(log, pairs(("k", "v")))
    found = measure_dirtiness(log, NOW_MS)
    assert (found.end_offset, found.cleanable_bytes) == (0, 0)
    assert not is_cleaning_due(log, found)


def test_only_segments_after_the_last_cleaning_count_as_cleanable(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    clean(log)
    assert log.clean_offset == 40
    assert measure_dirtiness(log, NOW_MS).cleanable_bytes == 0
    fill(log, [pairs(("k", "more"))])
    found = measure_dirtiness(log, NOW_MS)
    sizes = [segment.size_bytes for segment in log.segments]
    assert (found.first_dirty_offset, found.end_offset) == (40, 41)
    assert (found.clean_bytes, found.cleanable_bytes) == (sum(sizes[:-2]), sizes[-2])


def test_records_above_the_last_stable_offset_or_high_watermark_are_not_cleaned(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.last_stable_offset = 29
    assert measure_dirtiness(log, NOW_MS).end_offset == 20
    log.last_stable_offset = 30
    assert measure_dirtiness(log, NOW_MS).end_offset == 30
    log.high_watermark = 10
    assert measure_dirtiness(log, NOW_MS).end_offset == 10


@pytest.mark.parametrize(("now_ms", "end_offset"), [(NOW_MS, 20), (NOW_MS + 999, 30), (NOW_MS + 1000, 40)])
def test_segments_with_records_below_the_minimum_lag_are_not_cleaned(
    tmp_path: Path, now_ms: int, end_offset: int
) -> None:
    log = log_of(tmp_path, min_compaction_lag_ms=1001 if now_ms == NOW_MS else 1000)
    assert measure_dirtiness(log, now_ms).end_offset == end_offset


def test_segments_after_one_below_the_minimum_lag_are_not_cleanable(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(min_compaction_lag_ms=LAG_MS))
    fill(log, [pairs(("a", "old"), timestamp=NOW_MS - 5000), pairs(("a", "young")), pairs(("a", "o"), timestamp=1000)])
    assert measure_dirtiness(log, NOW_MS).end_offset == 1


def test_the_age_of_records_without_a_timestamp_is_that_of_the_file(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(min_compaction_lag_ms=LAG_MS))
    fill(log, [pairs(("a", "1"), timestamp=-1)])
    log.environment.disk.set_modified_ms(log.segments[0].path + ".log", NOW_MS - 500)
    assert measure_dirtiness(log, NOW_MS).end_offset == 0
    assert measure_dirtiness(log, NOW_MS + 500).end_offset == 1


def test_a_log_is_overdue_for_cleaning_when_a_dirty_segment_exceeds_the_maximum_lag(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_compaction_lag_ms=3000)
    assert not measure_dirtiness(log, NOW_MS).is_overdue
    assert measure_dirtiness(log, NOW_MS + 1).is_overdue
    clean(log)
    assert not measure_dirtiness(log, NOW_MS + 1).is_overdue


def test_deleted_records_are_not_dirty(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.delete_records_before(25)
    found = measure_dirtiness(log, NOW_MS)
    assert found.first_dirty_offset == 25
    assert found.cleanable_bytes == sum(segment.size_bytes for segment in log.segments[:-1])


def test_a_log_is_due_for_cleaning_above_the_minimum_dirty_ratio(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(min_cleanable_dirty_ratio=0.5))
    assert not is_cleaning_due(log, dirt(100, 100))
    assert is_cleaning_due(log, dirt(100, 101))
    assert dirt(300, 100).ratio == 0.25


def test_a_log_beyond_the_maximum_lag_is_due_if_there_is_anything_to_clean(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    assert is_cleaning_due(log, dirt(1000, 1, is_overdue=True))
    assert not is_cleaning_due(log, dirt(1000, 0, is_overdue=True))
    assert dirt(0, 0).ratio == 0


def test_a_log_is_never_due_for_cleaning_by_a_minimum_dirty_ratio_of_one(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(min_cleanable_dirty_ratio=1.0))
    assert not is_cleaning_due(log, dirt(0, 100))


def test_a_compacted_log_rolls_its_segments_within_the_maximum_lag(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS._replace(max_compaction_lag_ms=LAG_MS))
    append(log, pairs(("k", "1")))
    append(log, pairs(("k", "2"), timestamp=NOW_MS + LAG_MS))
    assert len(log.segments) == 1
    append(log, pairs(("k", "3"), timestamp=NOW_MS + LAG_MS + 1))
    assert len(log.segments) == 2
