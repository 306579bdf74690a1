"""Kafka's simple assignor: each partition gets about as many members as any other, and each member as many partitions.

With more members than partitions, several members share a partition. What a member has stays where that is possible.
If members subscribe to different topics, each topic is shared out by itself, as in Kafka.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge

from minibroker.broker.groups.consumer.assignors.specification import (
    Partitions,
    TopicPartition,
    group_partitions_by_topic,
    list_partitions,
)
from minibroker.protocol.steps import CHUNK_ITEMS, Steps, split_into_portions


def assign_partitions(
    members: Mapping[str, frozenset[bytes]], current: Mapping[str, Partitions], indexes: Mapping[bytes, Iterable[int]]
) -> Steps[dict[str, Partitions]]:
    """Return each member's new partitions; `current` has its old ones, `indexes` those of each topic id.

    `members` has the topic ids that each subscribes to, `current` what it has, `indexes` the partitions of each topic.
    """
    shares: dict[str, list[set[TopicPartition]]] = {member_id: [] for member_id in members}
    subscriptions = set(members.values())
    together = subscriptions if len(subscriptions) == 1 else [{topic_id} for topic_id in set().union(*subscriptions)]
    for topic_ids in together:
        wanted: list[TopicPartition] = []
        for one in merge(*(_iterate_partitions(topic_id, indexes.get(topic_id, ())) for topic_id in topic_ids)):
            wanted.append(one)
            if len(wanted) % CHUNK_ITEMS == 0:
                yield
        readers = sorted(member_id for member_id, subscribed in members.items() if topic_ids <= subscribed)
        if wanted:
            for member_id, share in (yield from _distribute_evenly(readers, wanted, current)).items():
                shares[member_id].append(share)
        yield
    target = {}
    for member_id, given in shares.items():
        target[member_id] = group_partitions_by_topic(one for share in given for one in share)
        yield
    return target


def _iterate_partitions(topic_id: bytes, indexes: Iterable[int]) -> Iterator[TopicPartition]:
    return (TopicPartition(index, topic_id) for index in sorted(indexes))


def _distribute_evenly(
    members: list[str], partitions: Collection[TopicPartition], current: Mapping[str, Partitions]
) -> Steps[dict[str, set[TopicPartition]]]:
    """Return the partitions of each member, where each member subscribes to all of these partitions."""
    sharing = -(-len(members) // len(partitions))  # the members of each partition
    quotas = _compute_partition_quotas(members, sharing * len(partitions))
    readers: dict[TopicPartition, set[str]] = {}
    for portion in split_into_portions(list(partitions)):
        readers.update((one, set()) for one in portion)
        yield
    shares: dict[str, set[TopicPartition]] = {}
    for member_id in members:
        share = shares[member_id] = set()
        for portion in split_into_portions(list(list_partitions(current.get(member_id, {})))):
            for one in portion:
                if one in readers:
                    share.add(one)
                    readers[one].add(member_id)
            yield
    yield from _revoke_partitions_above_quota(readers, shares, quotas, sharing)
    unfilled = deque(member_id for member_id in members if len(shares[member_id]) < quotas[member_id])
    for portion in split_into_portions(list(partitions)):
        for one in portion:
            _assign_partition_to_members(one, readers[one], sharing, unfilled, shares, quotas)
        yield
    return shares


def _assign_partition_to_members(
    partition: TopicPartition,
    readers: set[str],
    members_per_partition: int,
    unfilled_members: deque[str],
    shares: Mapping[str, set[TopicPartition]],
    quotas: Mapping[str, int],
) -> None:
    """Assign a partition to members below their quota, in turn, until `members_per_partition` have it."""
    passed = 0
    while len(readers) < members_per_partition and passed < len(unfilled_members):
        member_id = unfilled_members.popleft()
        if member_id in readers:
            passed += 1
        else:
            readers.add(member_id)
            shares[member_id].add(partition)
        if len(shares[member_id]) < quotas[member_id]:
            unfilled_members.append(member_id)


def _compute_partition_quotas(members: Iterable[str], total: int) -> dict[str, int]:
    """Return how many partitions each member gets: `total` divided evenly."""
    listed_members = list(members)
    ends = [-(-total * position // len(listed_members)) for position in range(len(listed_members) + 1)]
    return {member_id: ends[place + 1] - ends[place] for place, member_id in enumerate(listed_members)}


def _revoke_partitions_above_quota(
    readers: Mapping[TopicPartition, set[str]],
    shares: Mapping[str, set[TopicPartition]],
    quotas: Mapping[str, int],
    members_per_partition: int,
) -> Steps[None]:
    """Take partitions from members: first those that too many members have, then those above a quota."""
    overfilled = {member_id for member_id, share in shares.items() if len(share) > quotas[member_id]}
    for portion in split_into_portions(list(readers.items())):
        for one, sharers in portion:
            surplus = len(sharers) - members_per_partition
            if surplus > 0:
                for member_id in sorted(sharers, key=lambda each: (each not in overfilled, each))[:surplus]:
                    sharers.discard(member_id)
                    shares[member_id].discard(one)
        yield
    for member_id in overfilled:
        for some in split_into_portions(sorted(shares[member_id])[quotas[member_id] :]):
            for one in some:
                readers[one].discard(member_id)
                shares[member_id].discard(one)
            yield
