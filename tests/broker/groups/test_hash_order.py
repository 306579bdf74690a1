"""Groups and members in the order in which Kafka's hash tables have them."""

from __future__ import annotations

from minibroker.broker.groups.hash_order import iterate_in_hash_order


def test_groups_are_listed_in_kafkas_hash_order() -> None:
    names = [f"grp-{number}" for number in range(1, 7)]
    assert list(iterate_in_hash_order({name: name for name in names})) == [
        "grp-2",
        "grp-4",
        "grp-1",
        "grp-6",
        "grp-3",
        "grp-5",
    ]


def test_group_ids_in_one_hash_slot_are_listed_latest_first() -> None:
    assert list(iterate_in_hash_order({"member-1": 1, "member-2": 2})) == [2, 1]


def test_the_hash_order_of_no_groups_is_empty() -> None:
    assert list(iterate_in_hash_order({})) == []
