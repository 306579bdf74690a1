"""The assignor `uniform`: every member gets as many partitions as any other, give or take one, and moves are few.

Where members want different topics, `balancing` evens out what can be evened out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from minibroker.broker.groups.consumer.assignors.balancing import balance
from minibroker.broker.groups.consumer.assignors.specification import (
    Assignment,
    MemberSpecification,
    TopicPartition,
    as_assignment,
    kept,
)


def assign(members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Who gets what; `partition_counts` go by topic id. Every partition that somebody wants goes to one who does."""
    shares = kept(members, partition_counts)
    wanted = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
    taken = {partition for share in shares.values() for partition in share}
    free = sorted(
        partition
        for topic_id in wanted
        for index in range(partition_counts[topic_id])
        if (partition := TopicPartition(index, topic_id)) not in taken
    )
    if all(member.topic_ids == wanted for member in members.values()):
        _share_equally(shares, free)
    else:
        _share_by_wish(shares, free, {member_id: member.topic_ids for member_id, member in members.items()})
    return as_assignment(shares)


def _share_equally(shares: dict[str, list[TopicPartition]], free: list[TopicPartition]) -> None:
    """All want the same. Whoever has most already is among those with one more, so that as few as can be move."""
    if not shares:
        return
    total = len(free) + sum(map(len, shares.values()))
    least, more = divmod(total, len(shares))
    quotas = {}
    for place, member_id in enumerate(sorted(shares, key=lambda each: (-len(shares[each]), each))):
        quotas[member_id] = least + (place < more)
    for member_id, share in shares.items():
        free += share[quotas[member_id] :]
        del share[quotas[member_id] :]
    free.sort()
    unfilled = [(len(share), member_id) for member_id, share in shares.items() if len(share) < quotas[member_id]]
    heapq.heapify(unfilled)
    for partition in free:
        size, member_id = unfilled[0]
        shares[member_id].append(partition)
        if size + 1 < quotas[member_id]:
            heapq.heapreplace(unfilled, (size + 1, member_id))
        else:
            heapq.heappop(unfilled)


def _share_by_wish(
    shares: dict[str, list[TopicPartition]], free: Iterable[TopicPartition], wishes: Mapping[str, frozenset[bytes]]
) -> None:
    """Each free partition goes to whoever has least of those that want it; then loads are evened out."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(wishes):
        for topic_id in wishes[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    # What few want goes first: what many want can still fill the gaps.
    for partition in sorted(free, key=lambda each: (len(subscribers[each.topic_id]), each)):
        candidates = subscribers[partition.topic_id]
        shares[min(candidates, key=lambda member_id: len(shares[member_id]))].append(partition)
    balance(shares, subscribers)
