"""What compaction would take is what it then takes."""

from __future__ import annotations

from pathlib import Path

from minibroker.storage.compaction.cleaning import make_cleaning_plan
from minibroker.storage.compaction.dirtiness import measure_dirtiness
from minibroker.storage.compaction.predicted_removals import PredictedRemovals, predict_removed_records
from minibroker.storage.log import Log
from tests.storage.compaction.support import LIMITS, SETTINGS, clean, contents, fill, pairs
from tests.storage.support import NOW_MS, open_at


def predicted_removals_of(log: Log, segment: int = 0, most_offsets: int = 100) -> list[PredictedRemovals]:
    plan = make_cleaning_plan(log, measure_dirtiness(log, NOW_MS), LIMITS, NOW_MS)
    return list(predict_removed_records(plan, log.segments[segment].path, most_offsets))


def test_the_predicted_removals_equal_those_of_a_cleaning(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs((f"k{index % 3}", f"v{index}"), (f"k{index % 2}", None)) for index in range(6)])
    before = {offset for offset, _, _ in contents(log)}
    size_bytes = log.size_bytes
    offsets = [offset for at in range(6) for each in predicted_removals_of(log, at) for offset in each.offsets]
    found = predicted_removals_of(log)
    assert {offset for offset, _, _ in contents(log)} == before  # it has changed nothing
    clean(log)
    assert before - set(offsets) == {offset for offset, _, _ in contents(log)}
    assert sum(each.taken_records for each in found) == len(offsets) == len(set(offsets)) > 0
    assert sum(each.taken_bytes for each in found) == size_bytes - log.size_bytes


def test_no_removals_are_predicted_for_a_clean_log(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs(("k", "old")), pairs(("k", "new"))])
    clean(log)
    assert predicted_removals_of(log) == []


def test_at_most_the_requested_number_of_removed_offsets_is_listed(tmp_path: Path) -> None:
    log = open_at(tmp_path, SETTINGS)
    fill(log, [pairs(*[("k", "v")] * 5), pairs(("k", "new"))])
    assert predicted_removals_of(log, most_offsets=3)[0].offsets == [0, 1, 2]
