"""The assignor `range`: runs of partitions, cut alike for equal topics, with few moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.consumer.assignors.range import assign_ranges
from minibroker.broker.groups.consumer.assignors.specification import MemberSpecification
from tests.broker.groups.consumer.assignors.groups import MadeUp, check_valid, groups

A, B = bytes(15) + b"a", bytes(15) + b"b"
ANY_GROUP = st.one_of(groups(alike=True), groups(alike=False))


def test_a_new_group_gets_contiguous_ranges_in_member_order() -> None:
    members = {member_id: MemberSpecification(frozenset({A}), {}) for member_id in ("m1", "m2", "m3")}
    assert assign_ranges(members, {A: 8}) == {
        "m1": {A: frozenset({0, 1, 2})},
        "m2": {A: frozenset({3, 4, 5})},
        "m3": {A: frozenset({6, 7})},
    }


def test_a_joining_member_takes_no_more_than_its_share() -> None:
    had = {"m1": {A: frozenset({0, 1})}, "m2": {A: frozenset({2, 3})}}
    members = {each: MemberSpecification(frozenset({A}), had.get(each, {})) for each in ("m0", "m1", "m2")}
    assert assign_ranges(members, {A: 4}) == {
        "m0": {A: frozenset({3})},
        "m1": {A: frozenset({0, 1})},
        "m2": {A: frozenset({2})},
    }


@given(ANY_GROUP)
def test_each_topic_is_assigned_evenly_to_its_subscribers(group: MadeUp) -> None:
    assignment = assign_ranges(group.specifications(), group.counts)
    check_valid(group, assignment)
    for topic_id in group.counts:
        sizes = [
            len(assignment[member_id].get(topic_id, ()))
            for member_id, topic_ids in group.wishes.items()
            if topic_id in topic_ids
        ]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(groups(alike=True), groups(alike=True))
def test_topics_with_equal_partition_counts_are_split_alike(before: MadeUp, after: MadeUp) -> None:
    after = MadeUp(after.wishes, {**after.counts, **before.counts})
    assignment = assign_ranges(
        after.specifications(assign_ranges(before.specifications(), before.counts)), after.counts
    )
    for topics in assignment.values():
        for topic_id, indexes in topics.items():
            equal = [each for each in topics if after.counts[each] == after.counts[topic_id]]
            assert all(topics[each] == indexes for each in equal)


@given(ANY_GROUP)
def test_a_balanced_range_assignment_is_kept(group: MadeUp) -> None:
    first = assign_ranges(group.specifications(), group.counts)
    assert assign_ranges(group.specifications(first), group.counts) == first


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 6))
def test_a_member_keeps_partitions_within_its_share(count: int, before: int, after: int) -> None:
    def group(size: int) -> MadeUp:
        return MadeUp({f"m{number}": frozenset({A}) for number in range(size)}, {A: count})

    first = assign_ranges(group(before).specifications(), {A: count})
    then = assign_ranges(group(after).specifications(first), {A: count})
    for member_id in first.keys() & then.keys():
        had, has = first[member_id].get(A, frozenset()), then[member_id].get(A, frozenset())
        assert has <= had or had <= has
