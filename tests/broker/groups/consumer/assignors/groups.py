"""Made-up groups for the tests of the assignors, and the rules that every assignment keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import strategies as st

from minibroker.broker.groups.consumer.assignors.specification import Assignment, MemberSpecification, Partitions


class MadeUp(NamedTuple):
    """A made-up group: what each member wants, and how many partitions each topic has."""

    wishes: dict[str, frozenset[bytes]]
    counts: dict[bytes, int]

    def specifications(self, before: Mapping[str, Partitions] | None = None) -> dict[str, MemberSpecification]:
        """The members, with what they were given `before`."""
        return {
            member_id: MemberSpecification(topic_ids, (before or {}).get(member_id, {}))
            for member_id, topic_ids in self.wishes.items()
        }


TOPICS = [bytes(15) + bytes([number]) for number in range(1, 6)]
MEMBERS = [f"m{number}" for number in range(8)]
COUNTS = st.lists(st.integers(1, 12), min_size=len(TOPICS), max_size=len(TOPICS)).map(
    lambda counts: dict(zip(TOPICS, counts, strict=True))
)


def groups(*, alike: bool) -> st.SearchStrategy[MadeUp]:
    """Groups whose members all want the same topics, or each its own."""
    topic_ids = st.frozensets(st.sampled_from(TOPICS))
    members = st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1)
    if alike:
        wishes = st.tuples(members, topic_ids).map(lambda pair: dict.fromkeys(*pair))
    else:
        wishes = st.dictionaries(st.sampled_from(MEMBERS), topic_ids, min_size=1)
    return st.builds(MadeUp, wishes, COUNTS)


def owners(assignment: Mapping[str, Partitions]) -> dict[tuple[bytes, int], str]:
    """Return the member that has each partition; check that nobody else has it."""
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, partitions in assignment.items():
        for topic_id, indexes in partitions.items():
            for index in indexes:
                assert (topic_id, index) not in owners
                owners[topic_id, index] = member_id
    return owners


def loads(assignment: Mapping[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assignment.items()}


def check_valid(group: MadeUp, assignment: Assignment) -> None:
    """Everybody has an entry, has only what it wants, and everything that is wanted is had by exactly one."""
    assert assignment.keys() == group.wishes.keys()
    owned = owners(assignment)
    for (topic_id, _), member_id in owned.items():
        assert topic_id in group.wishes[member_id]
    wanted = frozenset[bytes]().union(*group.wishes.values())
    assert owned.keys() == {(topic_id, index) for topic_id in wanted for index in range(group.counts[topic_id])}
    assert all(indexes for partitions in assignment.values() for indexes in partitions.values())
