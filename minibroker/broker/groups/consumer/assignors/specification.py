"""What an assignor is given, and what it gives back.

Partitions go by topic id (16 raw bytes). How an assignor decides is in the file of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
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
) -> dict[str, list[TopicPartition]]:
    """What each member has and may keep, in order: it exists, the member still wants it, and nobody has it twice."""
    taken: set[TopicPartition] = set()
    keeping: dict[str, list[TopicPartition]] = {}
    for member_id in sorted(members):
        mine = keeping[member_id] = []
        topic_ids, partitions = members[member_id]
        for topic_id, indexes in partitions.items():
            if topic_id in topic_ids:
                count = partition_counts.get(topic_id, 0)
                mine += (TopicPartition(index, topic_id) for index in indexes if index < count)
        mine[:] = sorted(partition for partition in mine if partition not in taken)
        taken.update(mine)
    return keeping


def as_assignment(shares: Mapping[str, list[TopicPartition]]) -> Assignment:
    """The shares by member, topic and index."""
    assignment: Assignment = {}
    for member_id, share in shares.items():
        topics: dict[bytes, set[int]] = {}
        for index, topic_id in share:
            topics.setdefault(topic_id, set()).add(index)
        assignment[member_id] = {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
    return assignment
