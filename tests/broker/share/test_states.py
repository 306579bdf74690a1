"""States of share partitions: what batches with overlaps come to, beside a model that looks at each offset."""

from __future__ import annotations

import random

from minibroker.broker.share.runs import StateBatch
from minibroker.broker.share.states import ShareKey, combine_state_batches
from tests.cases import for_each


def test_of_overlapping_state_batches_the_one_with_more_deliveries_is_kept() -> None:
    batches = [StateBatch(0, 9, 0, 1), StateBatch(3, 5, 0, 2), StateBatch(5, 6, 2, 1)]
    assert combine_state_batches(batches, 0) == (
        StateBatch(0, 2, 0, 1),
        StateBatch(3, 5, 0, 2),
        StateBatch(6, 6, 2, 1),
        StateBatch(7, 9, 0, 1),
    )
    assert combine_state_batches(batches, 5) == (StateBatch(5, 5, 0, 2), StateBatch(6, 6, 2, 1), StateBatch(7, 9, 0, 1))
    assert combine_state_batches([], 3) == ()


@for_each("seed", range(50))
def test_overlapping_state_batches_are_merged_offset_by_offset(seed: int) -> None:
    source = random.Random(seed)
    batches = [
        StateBatch(first, first + source.randint(0, 9), source.choice([0, 2, 4]), source.randint(1, 4))
        for first in (source.randint(0, 40) for _ in range(source.randint(0, 12)))
    ]
    start = source.randint(0, 30)
    expected: dict[int, tuple[int, int]] = {}
    for offset in range(start, 60):
        found = [(each.deliveries, each.state) for each in batches if each.first <= offset <= each.last]
        if found:
            expected[offset] = max(found)
    result = combine_state_batches(batches, start)
    assert {
        offset: (each.deliveries, each.state) for each in result for offset in range(each.first, each.last + 1)
    } == expected
    for before, after in zip(result, result[1:], strict=False):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]


def test_a_share_state_key_is_formatted_as_in_kafka() -> None:
    assert ShareKey("group:1", bytes(15) + b"\x01", 3).coordinator_key == "group:1:AAAAAAAAAAAAAAAAAAAAAQ:3"
