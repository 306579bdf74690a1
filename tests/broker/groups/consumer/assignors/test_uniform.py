"""The assignor `uniform`: valid, balanced, and as few moves as that allows."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.consumer.assignors.specification import MemberSpecification
from minibroker.broker.groups.consumer.assignors.uniform import assign_uniformly
from tests.broker.groups.consumer.assignors.groups import MadeUp, check_valid, groups, loads, owners

A, B = bytes(15) + b"a", bytes(15) + b"b"


def test_nothing_is_assigned_if_there_are_no_members_or_topics() -> None:
    assert assign_uniformly({}, {}) == {}
    assert assign_uniformly({"m": MemberSpecification(frozenset(), {})}, {}) == {"m": {}}


def test_each_topic_is_spread_over_all_members() -> None:
    members = {member_id: MemberSpecification(frozenset({A, B}), {}) for member_id in ("m1", "m2", "m3")}
    assert all(
        len(indexes) == 1 for topics in assign_uniformly(members, {A: 3, B: 3}).values() for indexes in topics.values()
    )


@given(groups(alike=True))
def test_members_with_equal_subscriptions_differ_by_at_most_one_partition(group: MadeUp) -> None:
    assignment = assign_uniformly(group.specifications(), group.counts)
    check_valid(group, assignment)
    sizes = loads(assignment).values()
    assert max(sizes) - min(sizes) <= 1


@given(groups(alike=False))
def test_all_partitions_are_assigned_to_members_with_different_subscriptions(group: MadeUp) -> None:
    check_valid(group, assign_uniformly(group.specifications(), group.counts))


def can_be_more_even(group: MadeUp, sizes: dict[str, int], owned: dict[tuple[bytes, int], str]) -> bool:
    """Whether moves along some chain of members, tried one by one, take from one that has two more than another."""
    passes = {
        (giver, taker)
        for (topic_id, _), giver in owned.items()
        for taker, topic_ids in group.wishes.items()
        if taker != giver and topic_id in topic_ids
    }
    chains = (chain for length in range(2, len(group.wishes) + 1) for chain in permutations(group.wishes, length))
    return any(
        sizes[chain[0]] - sizes[chain[-1]] >= 2 and all(pair in passes for pair in zip(chain, chain[1:], strict=False))
        for chain in chains
    )


@given(groups(alike=False).filter(lambda group: len(group.wishes) <= 5))
def test_partition_counts_are_as_even_as_subscriptions_allow(group: MadeUp) -> None:
    assignment = assign_uniformly(group.specifications(), group.counts)
    assert not can_be_more_even(group, loads(assignment), owners(assignment))


@given(st.one_of(groups(alike=True), groups(alike=False)))
def test_a_balanced_uniform_assignment_is_kept(group: MadeUp) -> None:
    first = assign_uniformly(group.specifications(), group.counts)
    assert assign_uniformly(group.specifications(first), group.counts) == first


@given(groups(alike=True), groups(alike=True))
def test_as_few_partitions_as_possible_move_when_members_join_and_leave(before: MadeUp, after: MadeUp) -> None:
    """A member keeps what it still wants and may still have; only what is above its share goes."""
    after = MadeUp(after.wishes, {**after.counts, **before.counts})
    given = assign_uniformly(before.specifications(), before.counts)
    assignment = assign_uniformly(after.specifications(given), after.counts)
    check_valid(after, assignment)
    may_keep = {
        partition: member_id
        for partition, member_id in owners(given).items()
        if partition[0] in after.wishes.get(member_id, ())
    }
    had = sorted((list(may_keep.values()).count(member_id) for member_id in after.wishes), reverse=True)
    shares = sorted(loads(assignment).values(), reverse=True)
    too_many = sum(max(0, count - share) for count, share in zip(had, shares, strict=True))
    now = owners(assignment)
    assert sum(now[partition] != member_id for partition, member_id in may_keep.items()) == too_many


def test_members_without_a_common_topic_are_balanced_through_a_third_member() -> None:
    """m1 has too much, m3 too little, and they share no topic; m2 shares one with each."""
    ends, middle = frozenset({A}), frozenset({A, B})
    before = {"m1": {A: frozenset({0, 1, 2, 3})}, "m2": {B: frozenset({0, 1})}}
    members = {
        "m1": MemberSpecification(ends, before["m1"]),
        "m2": MemberSpecification(middle, before["m2"]),
        "m3": MemberSpecification(frozenset({B}), {}),
    }
    assert loads(assign_uniformly(members, {A: 4, B: 2})) == {"m1": 2, "m2": 2, "m3": 2}
