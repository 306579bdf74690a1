"""Evens out the loads of members that want different topics, by moves along chains of members.

A member that has two partitions more than another may have no topic in common with it, but one with a third, which has
one with the other: each passes one on. While such a chain exists, the loads can be more even; when there is none, they
are as even as they can be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from minibroker.broker.groups.consumer.assignors.specification import TopicPartition

Shares = dict[str, list[TopicPartition]]


class Step(NamedTuple):
    """How a member on a chain was reached: who passes a partition on to it, and of which topic."""

    giver: str
    topic_id: bytes


def balance(shares: Shares, subscribers: Mapping[bytes, list[str]]) -> None:
    """Move partitions, as few as it takes, until no chain of moves makes the loads more even."""
    moved = True
    while moved:
        moved = False
        settled: set[str] = set()
        for member_id in sorted(shares, key=lambda each: (-len(shares[each]), each)):
            while member_id not in settled:
                reached = _relieve(member_id, shares, subscribers)
                if reached is None:
                    moved = True
                    settled.clear()
                else:
                    # Whoever is reached reaches nobody else, and with no more than this one has, cannot be relieved.
                    settled.update(each for each in reached if len(shares[each]) <= len(shares[member_id]))


def _relieve(
    member_id: str, shares: Shares, subscribers: Mapping[bytes, list[str]]
) -> Mapping[str, Step | None] | None:
    """Pass one partition of the member's on, along the shortest chain to one that has at least two fewer.

    Return all members that chains lead to if there is none.
    """
    limit = len(shares[member_id]) - 2
    reached: dict[str, Step | None] = {member_id: None}
    offered: set[bytes] = set()
    waiting = deque([member_id])
    while waiting:
        giver = waiting.popleft()
        for topic_id in sorted({partition.topic_id for partition in shares[giver]} - offered):
            offered.add(topic_id)  # whoever wants it is reached now, and need not be again
            for taker in subscribers[topic_id]:
                if taker not in reached:
                    reached[taker] = Step(giver, topic_id)
                    waiting.append(taker)
                    if len(shares[taker]) <= limit:
                        _pass_on(taker, shares, reached)
                        return None
    return reached


def _pass_on(taker: str, shares: Shares, reached: Mapping[str, Step | None]) -> None:
    """Move a partition along each step of the chain that ends at `taker`."""
    while (step := reached[taker]) is not None:
        giving = shares[step.giver]
        partition = max(partition for partition in giving if partition.topic_id == step.topic_id)
        giving.remove(partition)
        shares[taker].append(partition)
        taker = step.giver
