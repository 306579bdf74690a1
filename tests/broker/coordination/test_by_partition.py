"""Values by key and by the key's partition, in several small dictionaries."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.coordination.runtime import PARTS, ValuesByPartition


@pytest.fixture
def values() -> ValuesByPartition[int]:
    return ValuesByPartition(lambda key: len(key) % 3)


def test_values_by_partition_behave_like_a_dict(values: ValuesByPartition[int]) -> None:
    expected: dict[str, int] = {}
    for number in range(1000):
        values[str(number)] = expected[str(number)] = number
    values["7"] = expected["7"] = -7
    del values["8"], expected["8"]
    assert dict(values) == expected
    assert (len(values), values["7"], "8" in values, values.get("8")) == (999, -7, False, None)
    assert (values.get("7"), values.get("8", 8)) == (-7, 8)
    with pytest.raises(KeyError):
        del values["8"]


def test_taking_the_values_of_a_partition_removes_them(values: ValuesByPartition[int]) -> None:
    for key in ("a", "b", "cc", "ddd"):
        values[key] = len(key)
    assert values.list_values_of_partition(1) == [1, 1]
    assert values.remove_values_of_partition(1) == [1, 1] and values.remove_values_of_partition(1) == []
    assert sorted(values) == ["cc", "ddd"]


def test_values_are_spread_over_small_dictionaries(values: ValuesByPartition[int]) -> None:
    for number in range(100 * PARTS):
        values[f"group-{number}"] = number
    parts: list[dict[str, Any]] = values._parts
    assert max(map(len, parts)) < 200
