"""The states of a classic group, and which may follow which, as a table.

             first member joins          all have joined, or time is up     the leader has synced
    Empty ------------------> PreparingRebalance ----------> CompletingRebalance -----------> Stable
      ^                          |       ^                          |                           |
      +--- nobody has joined ----+       +--- a member joins, leaves, or its session expires ---+

A group is Dead once the coordinator has given it up. What changes the state is in `rebalance`.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The states, by their names in DescribeGroups and ListGroups."""

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
