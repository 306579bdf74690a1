"""Kafka's simple assignor: who reads which partitions of a share group's topics."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from minibroker.broker.groups.share.assignor import assigned

A, B = b"a" * 16, b"b" * 16


def test_partitions_are_shared_out_evenly() -> None:
    found = assigned({"m1": frozenset({A}), "m2": frozenset({A})}, {}, {A: range(4)})
    assert sorted(len(parts[A]) for parts in found.values()) == [2, 2]
    assert found["m1"][A] | found["m2"][A] == {0, 1, 2, 3}


def test_more_members_than_partitions_share_them() -> None:
    found = assigned({f"m{index}": frozenset({A}) for index in range(5)}, {}, {A: range(2)})
    counts = Counter(index for parts in found.values() for index in parts[A])
    assert all(found.values()) and set(counts) == {0, 1}


def test_what_a_member_has_stays() -> None:
    members = {"m1": frozenset({A}), "m2": frozenset({A})}
    present = {"m1": {A: frozenset({1, 3})}, "m2": {A: frozenset({0, 2})}}
    assert assigned(members, present, {A: range(4)}) == present


def test_members_read_only_what_they_subscribe_to() -> None:
    found = assigned({"m1": frozenset({A}), "m2": frozenset({A, B})}, {}, {A: range(2), B: range(3)})
    assert B not in found["m1"]
    assert found["m2"][B] == {0, 1, 2}


@pytest.mark.parametrize("seed", range(30))
def test_every_partition_has_a_reader_and_every_reader_a_partition(seed: int) -> None:
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
