"""Kafka's simple assignor: who reads which partitions of a share group's topics."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping

from minibroker.broker.groups.share import share_assignor
from minibroker.protocol.steps import CHUNK_ITEMS, run_all_steps
from tests.cases import for_each

A, B = b"a" * 16, b"b" * 16

Present = Mapping[str, Mapping[bytes, frozenset[int]]]


def assigned(
    members: Mapping[str, frozenset[bytes]], present: Present, indexes: Mapping[bytes, Iterable[int]]
) -> dict[str, Mapping[bytes, frozenset[int]]]:
    """Return the partitions of each member."""
    return run_all_steps(share_assignor.assign_partitions(members, present, indexes))


def test_partitions_are_assigned_evenly_to_share_members() -> None:
    found = assigned({"m1": frozenset({A}), "m2": frozenset({A})}, {}, {A: range(4)})
    assert sorted(len(parts[A]) for parts in found.values()) == [2, 2]
    assert found["m1"][A] | found["m2"][A] == {0, 1, 2, 3}


def test_each_of_more_members_than_partitions_gets_a_partition() -> None:
    found = assigned({f"m{index}": frozenset({A}) for index in range(5)}, {}, {A: range(2)})
    counts = Counter(index for parts in found.values() for index in parts[A])
    assert all(found.values()) and set(counts) == {0, 1}


def test_a_balanced_share_assignment_is_kept() -> None:
    members = {"m1": frozenset({A}), "m2": frozenset({A})}
    present = {"m1": {A: frozenset({1, 3})}, "m2": {A: frozenset({0, 2})}}
    assert assigned(members, present, {A: range(4)}) == present


def test_the_counts_of_assigned_partitions_equal_kafkas() -> None:
    found = assigned({f"m{index}": frozenset({A}) for index in range(5)}, {}, {A: range(7)})
    assert [len(found[f"m{index}"][A]) for index in range(5)] == [2, 1, 2, 1, 1]


def test_a_partition_with_too_many_consumers_is_taken_from_the_most_loaded_member() -> None:
    members = {"m1": frozenset({A}), "m2": frozenset({A})}
    present = {"m1": {A: frozenset({0, 1})}, "m2": {A: frozenset({0})}}
    assert assigned(members, present, {A: range(2)}) == {"m1": {A: frozenset({1})}, "m2": {A: frozenset({0})}}


def test_topics_with_different_subscribers_are_assigned_separately() -> None:
    members = {"m1": frozenset({A}), "m2": frozenset({B}), "m3": frozenset({A, B})}
    found = assigned(members, {}, {A: range(2), B: range(2)})
    assert [(member_id, sorted(parts)) for member_id, parts in found.items()] == [
        ("m1", [A]),
        ("m2", [B]),
        ("m3", [A, B]),
    ]
    assert all(len(each) == 1 for parts in found.values() for each in parts.values())


def test_members_are_assigned_only_topics_they_subscribe_to() -> None:
    found = assigned({"m1": frozenset({A}), "m2": frozenset({A, B})}, {}, {A: range(2), B: range(3)})
    assert B not in found["m1"]
    assert found["m2"][B] == {0, 1, 2}


@for_each("seed", range(30))
def test_every_partition_has_a_consumer_and_every_consumer_a_partition(seed: int) -> None:
    source = random.Random(seed)
    indexes = {topic_id: range(source.randint(1, 6)) for topic_id in (A, B)}
    members = {f"m{index}": frozenset(source.choice([(A,), (B,), (A, B)])) for index in range(source.randint(1, 9))}
    present = assigned(dict(list(members.items())[1:]), {}, indexes)
    found = assigned(members, present, indexes)
    for topic_id, partitions in indexes.items():
        readers = [member_id for member_id, topic_ids in members.items() if topic_id in topic_ids]
        read = {index for parts in found.values() for index in parts.get(topic_id, ())}
        assert read == (set(partitions) if readers else set())
    for member_id, parts in found.items():
        assert set(parts) <= members[member_id]
        assert any(parts.values())


def test_many_partitions_are_assigned_in_many_steps() -> None:
    members = {f"m{index}": frozenset({A, B}) for index in range(3)}
    indexes = {A: range(6000), B: range(4000)}
    portions = 10_000 // CHUNK_ITEMS
    assert sum(1 for _ in share_assignor.assign_partitions(members, {}, indexes)) > 3 * portions
    present = assigned({"m0": frozenset({A, B})}, {}, indexes)
    assert sum(1 for _ in share_assignor.assign_partitions(members, present, indexes)) > 4 * portions
