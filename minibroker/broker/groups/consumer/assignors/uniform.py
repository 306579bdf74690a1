"""The assignor `uniform`: every member gets as many partitions as any other, give or take one, and moves are few.

Where members want different topics, a member that has two partitions more than another may have no topic in common with
it, but one with a third, which has one with the other: each passes one on. While such a chain exists, the loads can be
more even; when there is none, they are as even as they can be.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.broker.groups.consumer.assignors.specification import (
    Assignment,
    MemberSpecification,
    TopicPartition,
    count_partitions,
    group_partitions_by_topic,
    list_partitions,
    split_partitions_into_kept_and_free,
)

Shares = dict[str, list[TopicPartition]]


def assign_uniformly(members: Mapping[str, MemberSpecification], partition_counts: Mapping[bytes, int]) -> Assignment:
    """Return each member's partitions; `partition_counts` go by topic id. Only unwanted partitions are left."""
    keeping, free = split_partitions_into_kept_and_free(members, partition_counts)
    if len({member.topic_ids for member in members.values()}) <= 1:
        return _distribute_equally(keeping, free)
    shares = {member_id: list_partitions(partitions) for member_id, partitions in keeping.items()}
    _distribute_by_subscription(shares, free, {member_id: member.topic_ids for member_id, member in members.items()})
    return {member_id: group_partitions_by_topic(share) for member_id, share in shares.items()}


def _distribute_equally(kept_shares: Assignment, free_partitions: list[TopicPartition]) -> Assignment:
    """Share partitions that all members want. Those who have most get the larger shares, so that few partitions move.

    Only the shares that change are looked at one by one: of a thousand members, few do when another one joins.
    """
    if not kept_shares:
        return {}
    sizes = {member_id: count_partitions(partitions) for member_id, partitions in kept_shares.items()}
    least, more = divmod(len(free_partitions) + sum(sizes.values()), len(sizes))
    having_most = sorted(sizes, key=lambda member_id: (-sizes[member_id], member_id))
    quotas = {member_id: least + (place < more) for place, member_id in enumerate(having_most)}
    changed = {
        member_id: list_partitions(partitions)
        for member_id, partitions in kept_shares.items()
        if sizes[member_id] != quotas[member_id]
    }
    for member_id, share in changed.items():
        free_partitions += share[quotas[member_id] :]
        del share[quotas[member_id] :]
    free_partitions.sort()
    unfilled = [(len(share), member_id) for member_id, share in changed.items() if len(share) < quotas[member_id]]
    heapq.heapify(unfilled)
    for partition in free_partitions:
        count, member_id = unfilled[0]
        changed[member_id].append(partition)
        if count + 1 < quotas[member_id]:
            heapq.heapreplace(unfilled, (count + 1, member_id))
        else:
            heapq.heappop(unfilled)
    return {**kept_shares, **{member_id: group_partitions_by_topic(share) for member_id, share in changed.items()}}


def _distribute_by_subscription(
    shares: dict[str, list[TopicPartition]],
    free_partitions: Iterable[TopicPartition],
    subscriptions: Mapping[str, frozenset[bytes]],
) -> None:
    """Give each free partition to the subscriber with the fewest, then even out the loads."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(subscriptions):
        for topic_id in subscriptions[member_id]:
            subscribers.setdefault(topic_id, []).append(member_id)
    # What few want goes first: what many want can still fill the gaps.
    for partition in sorted(free_partitions, key=lambda each: (len(subscribers[each.topic_id]), each)):
        candidates = subscribers[partition.topic_id]
        shares[min(candidates, key=lambda member_id: len(shares[member_id]))].append(partition)
    balance_partition_counts(shares, subscribers)


class ChainStep(NamedTuple):
    """How a member on a chain was reached: who passes a partition on to it, and of which topic."""

    giver: str
    topic_id: bytes


def balance_partition_counts(shares: Shares, subscribers: Mapping[bytes, list[str]]) -> None:
    """Move as few partitions as possible until no chain of moves makes the numbers of the members more equal."""
    moved = True
    while moved:
        moved = False
        settled: set[str] = set()
        for member_id in sorted(shares, key=lambda each: (-len(shares[each]), each)):
            while member_id not in settled:
                reached = _move_partition_or_list_reachable_members(member_id, shares, subscribers)
                if reached is None:
                    moved = True
                    settled.clear()
                else:
                    # Whoever is reached reaches nobody else, and with no more than this one has, cannot be relieved.
                    settled.update(each for each in reached if len(shares[each]) <= len(shares[member_id]))


def _move_partition_or_list_reachable_members(
    member_id: str, shares: Shares, subscribers: Mapping[bytes, list[str]]
) -> Mapping[str, ChainStep | None] | None:
    """Move a partition along the shortest chain to a member with two fewer; without one, return the reached members.

    If one was moved, return None.
    """
    limit = len(shares[member_id]) - 2
    reached: dict[str, ChainStep | None] = {member_id: None}
    offered: set[bytes] = set()
    waiting = deque([member_id])
    while waiting:
        giver = waiting.popleft()
        for topic_id in sorted({partition.topic_id for partition in shares[giver]} - offered):
            offered.add(topic_id)  # whoever wants it is reached now, and need not be again
            for taker in subscribers[topic_id]:
                if taker not in reached:
                    reached[taker] = ChainStep(giver, topic_id)
                    waiting.append(taker)
                    if len(shares[taker]) <= limit:
                        _move_partition_along_chain(taker, shares, reached)
                        return None
    return reached


def _move_partition_along_chain(
    last_member_id: str, shares: Shares, reached_members: Mapping[str, ChainStep | None]
) -> None:
    """Move a partition along each step of the chain that ends at `last_member_id`."""
    while (step := reached_members[last_member_id]) is not None:
        giving = shares[step.giver]
        partition = max(partition for partition in giving if partition.topic_id == step.topic_id)
        giving.remove(partition)
        shares[last_member_id].append(partition)
        last_member_id = step.giver
