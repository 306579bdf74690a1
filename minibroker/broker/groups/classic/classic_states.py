"""The states of a classic group, and which may follow which, as a table.

             first member joins          all have joined, or time is up     the leader has synced
    Empty ------------------> PreparingRebalance ----------> CompletingRebalance -----------> Stable
      ^                          |       ^                          |                           |
      +--- nobody has joined ----+       +--- a member joins, leaves, or its session expires ---+

A group is Dead once the coordinator has given it up. What changes the state is in `rebalance`.
"""

from __future__ import annotations

from enum import StrEnum


class ClassicState(StrEnum):
    """The states, by their names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


FOLLOWING: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset({ClassicState.DEAD}),
}
CAN_REBALANCE = frozenset(
    state for state, following in FOLLOWING.items() if ClassicState.PREPARING_REBALANCE in following
)
