"""A transactional id: its producer, the state of its transaction, and the allowed transitions between states.

`transitions` decides how a request changes it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from minibroker.protocol.errors import ErrorCode, KafkaError

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 0x7FFF
NEVER_MS: Final = (1 << 31) - 1  # the timeout of a producer in two-phase commits (KIP-939)
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1  # the next epoch is reserved for fencing a producer with this one
OWN_EPOCHS: Final = 2  # the first transaction version (KIP-1022) with an epoch per transaction


class TransactionState(IntEnum):
    """The states, numbered as in `__transaction_state` (Kafka's TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def api_name(self) -> str:
        """Return the state's name in DescribeTransactions and ListTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))


LABELS: Final = {state.api_name: state for state in TransactionState}

# The previous states of each state. PREPARE_EPOCH_FENCE is never written: it is an abort that bumps the epoch.
REACHED_FROM: Final = {
    TransactionState.EMPTY: {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT},
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING},
    TransactionState.PREPARE_ABORT: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_EPOCH_FENCE,
        TransactionState.EMPTY,  # from transaction version 2 on, a transaction without a partition can be aborted
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    },
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
    TransactionState.DEAD: {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT},
    TransactionState.PREPARE_EPOCH_FENCE: {TransactionState.ONGOING},
}
ENDING: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

TopicPartition = tuple[str, int]


class Transaction:
    """The state of a transactional id. All times are in ms since 1970.

    `last_producer_epoch` is the epoch before the last bump, if the producer requested it and may retry.
    `client_version` is the transaction version of the client that began or ended the last transaction. It is not
    changed once others see it: a transition returns a copy, which only the code that makes it changes.
    """

    __slots__ = (
        "client_version",
        "last_producer_epoch",
        "last_update_ms",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        timeout_ms: int,
        last_update_ms: int,
        producer_epoch: int = NO_EPOCH,
        last_producer_epoch: int = NO_EPOCH,
        previous_producer_id: int = NO_PRODUCER_ID,
        next_producer_id: int = NO_PRODUCER_ID,
        state: TransactionState = TransactionState.EMPTY,
        partitions: frozenset[TopicPartition] = frozenset(),
        start_ms: int = NO_TIME,
        client_version: int = 0,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.timeout_ms = timeout_ms
        self.last_update_ms = last_update_ms
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = last_producer_epoch
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.state = state
        self.partitions = partitions
        self.start_ms = start_ms
        self.client_version = client_version

    def copy(self) -> Transaction:
        """Return a copy, to be changed before others see it."""
        return Transaction(
            self.transactional_id,
            self.producer_id,
            self.timeout_ms,
            self.last_update_ms,
            self.producer_epoch,
            self.last_producer_epoch,
            self.previous_producer_id,
            self.next_producer_id,
            self.state,
            self.partitions,
            self.start_ms,
            self.client_version,
        )

    @property
    def has_exhausted_epochs(self) -> bool:
        """Return whether the producer needs a new id, as no epoch is left."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def transition_to(self, state: TransactionState, now_ms: int) -> Transaction:
        """Return a copy in the next state. Raises ValueError for an impossible transition, which is a bug."""
        if self.state not in REACHED_FROM[state]:
            raise ValueError(f"{self.transactional_id} cannot go from {self.state.api_name} to {state.api_name}")
        after = self.copy()
        after.state = state
        after.last_update_ms = now_ms
        return after


def choose_error_code_for_client(error: KafkaError, knows_producer_fenced: bool) -> ErrorCode:
    """Return the error code for a client, which may be older than PRODUCER_FENCED (KIP-588)."""
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_producer_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
