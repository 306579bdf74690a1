"""One transactional id: its producer, the state of its transaction, and which state may follow on which.

What a request makes of it is decided in `transitions`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 0x7FFF
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1  # the one after it is left to fence whoever has this one
OWN_EPOCHS: Final = 2  # the transaction version (KIP-1022) from which on each transaction has an epoch of its own


class State(IntEnum):
    """The states, by the numbers that `__transaction_state` has for them (Kafka's TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that DescribeTransactions and ListTransactions have for it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LABELS: Final = {state.label: state for state in State}

# From which states each can be reached. PREPARE_EPOCH_FENCE is never written: it is an abort that bumps the epoch.
REACHED_FROM: Final = {
    State.EMPTY: {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.ONGOING: {State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: {
        State.ONGOING,
        State.PREPARE_EPOCH_FENCE,
        State.EMPTY,  # from transaction version 2 on, a transaction without a partition can be aborted
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    },
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
    State.DEAD: {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.PREPARE_EPOCH_FENCE: {State.ONGOING},
}
ENDING: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

TopicPartition = tuple[str, int]


class Transaction(NamedTuple):
    """What is known of a transactional id; a change of it is another `Transaction`. All times in ms since 1970.

    `last_producer_epoch` is the epoch before the last bump, if a producer asked for that bump: it may ask again.
    `client_version` is the transaction version of the client that began or ended the last transaction.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    client_version: int = 0

    @property
    def epochs_exhausted(self) -> bool:
        """Whether the producer needs another id, as no epoch is left for it."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def moved(self, state: State, now_ms: int, **changes: object) -> Transaction:
        """The transaction in the state that follows. Raises ValueError for one that cannot follow: a defect of ours."""
        if self.state not in REACHED_FROM[state]:
            raise ValueError(f"{self.transactional_id} cannot go from {self.state.label} to {state.label}")
        return self._replace(state=state, last_update_ms=now_ms, **changes)  # type: ignore[arg-type]
