"""The arguments of an assignor, and its result. Partitions go by topic id (16 raw bytes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
Assignment = dict[str, Partitions]  # by member id


class MemberSpecification(NamedTuple):
    """The existing topics that a member subscribes to, and its present target."""

    topic_ids: frozenset[bytes]
    partitions: Partitions


class TopicPartition(NamedTuple):
    """One partition. They are in order of number, then topic: a run of them takes evenly from every topic."""

    partition: int
    topic_id: bytes


def split_partitions_into_kept_and_free(
    members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]
) -> tuple[Assignment, list[TopicPartition]]:
    """Return what each member keeps of its partitions, and the subscribed partitions that nobody has, in order.

    A member may keep a partition that exists, that it still wants, and that no other member has.
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


def count_partitions(partitions: Partitions) -> int:
    """Return the number of partitions."""
    return sum(map(len, partitions.values()))


def list_partitions(partitions: Partitions) -> list[TopicPartition]:
    """Return the partitions one by one, in order."""
    return sorted(TopicPartition(index, topic_id) for topic_id, indexes in partitions.items() for index in indexes)


def group_partitions_by_topic(partitions: Iterable[TopicPartition]) -> Partitions:
    """Return the partitions by topic and index."""
    topics: dict[bytes, set[int]] = {}
    for index, topic_id in partitions:
        topics.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
