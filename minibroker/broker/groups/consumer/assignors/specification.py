"""What an assignor is given, and what it gives back.

Partitions go by topic id (16 raw bytes). How an assignor decides is in the file of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
Assignment = dict[str, Partitions]  # by member id


class MemberSpecification(NamedTuple):
    """What a member is subscribed to, all of which exists, and what the target gave it so far."""

    topic_ids: frozenset[bytes]
    partitions: Partitions


class TopicPartition(NamedTuple):
    """One partition. They are in order of number, then topic: a run of them takes evenly from every topic."""

    partition: int
    topic_id: bytes


def kept(
    members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]
) -> tuple[Assignment, list[TopicPartition]]:
    """(what each member has and may keep, what of that which somebody wants is free, in order).

    It may keep what exists, what it still wants, and what nobody has twice.
    """
    wanted = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
    left = {topic_id: set(range(partition_counts[topic_id])) for topic_id in wanted}
    keeping: Assignment = {}
    for member_id in sorted(members):
        topic_ids, partitions = members[member_id]
        mine = {
            topic_id: has
            for topic_id, indexes in partitions.items()
            if topic_id in topic_ids and (has := indexes & left[topic_id])
        }
        for topic_id, has in mine.items():
            left[topic_id] -= has
        keeping[member_id] = partitions if mine == partitions else mine
    return keeping, sorted(TopicPartition(index, topic_id) for topic_id, rest in left.items() for index in rest)


def size(partitions: Partitions) -> int:
    """How many partitions these are."""
    return sum(map(len, partitions.values()))


def listed(partitions: Partitions) -> list[TopicPartition]:
    """The partitions one by one, in order."""
    return sorted(TopicPartition(index, topic_id) for topic_id, indexes in partitions.items() for index in indexes)


def by_topic(share: Iterable[TopicPartition]) -> Partitions:
    """The partitions by topic and index."""
    topics: dict[bytes, set[int]] = {}
    for index, topic_id in share:
        topics.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
