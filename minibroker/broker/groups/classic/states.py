"""The states of a classic group, and which may follow which, as a table.

What brings a change about is in `rebalance` and the files of the requests.

             first member joins          all have joined, or time is up     the leader has synced
    Empty ------------------> PreparingRebalance ----------> CompletingRebalance -----------> Stable
      ^                          |       ^                          |                           |
      +--- nobody has joined ----+       +--- somebody joins, leaves, or falls silent ---<------+

Dead is what a group is once the coordinator has let go of it, for whoever still holds it.
"""

from __future__ import annotations

from enum import StrEnum

from minibroker.protocol.errors import ErrorCode, KafkaError


class State(StrEnum):
    """By the names that DescribeGroups and ListGroups have for them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


FOLLOWING: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset({State.DEAD}),
}
CAN_REBALANCE = frozenset(state for state, following in FOLLOWING.items() if State.PREPARING_REBALANCE in following)


def wrong_generation(told: int, present: int) -> KafkaError:
    """What a member is told that is not in the present generation."""
    return KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {told}, and the group's is {present}")


def rebalancing(state: State) -> KafkaError:
    """What a member is told while the group is about to have another generation."""
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"the group is {state}")
