"""Groups and members in the order in which Kafka's hash tables have them."""

from __future__ import annotations

from minibroker.broker.groups.hash_order import in_hash_order


def test_the_order_is_that_of_kafka() -> None:
    names = [f"grp-{number}" for number in range(1, 7)]
    assert list(in_hash_order({name: name for name in names})) == ["grp-2", "grp-4", "grp-1", "grp-6", "grp-3", "grp-5"]


def test_of_one_slot_the_last_comes_first() -> None:
    assert list(in_hash_order({"member-1": 1, "member-2": 2})) == [2, 1]


def test_nothing_has_an_order_too() -> None:
    assert list(in_hash_order({})) == []
