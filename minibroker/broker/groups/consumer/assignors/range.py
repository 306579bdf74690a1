"""The assignor `range`: each topic is cut into runs of partitions, and equal topics are cut alike.

Topics with as many partitions and the same subscribers go together: the member with partition 3 of one gets partition 3
of all, as joins need it. A member keeps what it has as far as its share goes.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Mapping, Sequence

from minibroker.broker.groups.consumer.assignors.specification import Assignment, MemberSpecification


def assign_ranges(members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Return each member's partitions; `partition_counts` go by topic id. Only unwanted partitions are left."""
    assignment: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for (count, subscribers), topic_ids in _group_equal_topics(members, partition_counts).items():
        cut = _divide_indexes_into_ranges(count, subscribers, _find_owned_indexes(topic_ids, subscribers, members))
        for member_id, indexes in cut.items():
            if indexes:
                for topic_id in topic_ids:
                    assignment[member_id][topic_id] = frozenset(indexes)
    return {member_id: topics for member_id, topics in assignment.items()}


def _group_equal_topics(
    members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]
) -> dict[tuple[int, tuple[str, ...]], list[bytes]]:
    """Return the ids of topics by (number of partitions, subscribed members), in both of which they are equal."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    equal: dict[tuple[int, tuple[str, ...]], list[bytes]] = {}
    for topic_id in sorted(subscribers):
        equal.setdefault((partition_counts[topic_id], tuple(subscribers[topic_id])), []).append(topic_id)
    return equal


def _find_owned_indexes(
    topic_ids: Sequence[bytes], subscribers: Sequence[str], members: Mapping[str, MemberSpecification]
) -> dict[str, list[int]]:
    """Return the partition indexes that each member owns in more of the topics than any other member, in order."""
    claims: dict[int, Counter[str]] = {}
    for member_id in subscribers:
        partitions = members[member_id].partitions
        for topic_id in topic_ids:
            for index in partitions.get(topic_id, ()):
                claims.setdefault(index, Counter())[member_id] += 1
    owned: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    for index in sorted(claims):
        owned[claims[index].most_common(1)[0][0]].append(index)
    return owned


def _divide_indexes_into_ranges(
    count: int, subscribers: Sequence[str], owned_indexes: Mapping[str, list[int]]
) -> dict[str, list[int]]:
    """Return each member's indexes below `count`: shares differ by one at most, and new ones are consecutive."""
    least, more = divmod(count, len(subscribers))
    having_most = sorted(subscribers, key=lambda member_id: -len(owned_indexes[member_id]))
    quotas = {member_id: least + (place < more) for place, member_id in enumerate(having_most)}
    cut = {
        member_id: [index for index in owned_indexes[member_id] if index < count][: quotas[member_id]]
        for member_id in subscribers
    }
    taken = {index for indexes in cut.values() for index in indexes}
    free = [index for index in builtins.range(count) if index not in taken]
    for member_id, indexes in cut.items():
        missing = quotas[member_id] - len(indexes)
        indexes += free[:missing]
        del free[:missing]
    return cut
