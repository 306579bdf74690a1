"""What each request makes of a transaction, held against the tables of KIP-98, KIP-360 and KIP-890."""

from __future__ import annotations

import pytest

from minibroker.broker.transactions import transitions
from minibroker.broker.transactions.transaction import (
    LAST_CLIENT_EPOCH,
    REACHED_FROM,
    Transaction,
    TransactionState,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 5
OURS = (7, 3)
NEW_ID = 99
PARTITION = ("t", 0)

Outcome = tuple[TransactionState, int, int] | ErrorCode


def transaction(state: TransactionState = TransactionState.EMPTY, **changes: object) -> Transaction:
    made = Transaction("tx", 7, 60_000, NOW_MS, producer_epoch=3, last_producer_epoch=2, state=state)
    if state in (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
        made.partitions = frozenset({PARTITION})
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def new_id() -> int:
    return NEW_ID


def ended(before: Transaction, producer: tuple[int, int], commit: bool, version: int) -> Outcome:
    try:
        after = transitions.end_transaction(before, producer, commit, version, LATER_MS, new_id)
    except KafkaError as error:
        return error.code
    return after.state, after.producer_id, after.producer_epoch


# --- EndTxn -------------------------------------------------------------------------------------

CONCURRENT, INVALID, FENCED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
COMMIT, ABORT = True, False


@for_each(
    ("state", "commit", "outcome"),
    [
        (TransactionState.ONGOING, COMMIT, (TransactionState.PREPARE_COMMIT, 7, 3)),
        (TransactionState.ONGOING, ABORT, (TransactionState.PREPARE_ABORT, 7, 3)),
        (TransactionState.PREPARE_COMMIT, COMMIT, CONCURRENT),
        (TransactionState.PREPARE_COMMIT, ABORT, INVALID),
        (TransactionState.PREPARE_ABORT, COMMIT, INVALID),
        (TransactionState.PREPARE_ABORT, ABORT, CONCURRENT),
        (TransactionState.COMPLETE_COMMIT, COMMIT, (TransactionState.COMPLETE_COMMIT, 7, 3)),
        (TransactionState.COMPLETE_COMMIT, ABORT, INVALID),
        (TransactionState.COMPLETE_ABORT, COMMIT, INVALID),
        (TransactionState.COMPLETE_ABORT, ABORT, (TransactionState.COMPLETE_ABORT, 7, 3)),
        (TransactionState.EMPTY, COMMIT, INVALID),
        (TransactionState.EMPTY, ABORT, INVALID),
    ],
)
def test_a_classic_transaction_ends_once_and_a_repeated_end_succeeds(
    state: TransactionState, commit: bool, outcome: Outcome
) -> None:
    assert ended(transaction(state), OURS, commit, 0) == outcome
    assert ended(transaction(state), (7, 2), commit, 0) == FENCED
    assert ended(transaction(state), (7, 4), commit, 0) == FENCED
    assert ended(transaction(state), (8, 3), commit, 0) == MAPPING


BUMPED_COMMIT, BUMPED_ABORT = (TransactionState.PREPARE_COMMIT, 7, 4), (TransactionState.PREPARE_ABORT, 7, 4)


@for_each(
    ("state", "commit", "again", "current"),
    [  # KIP-890: `again` has the epoch before the transaction's, `current` its own
        (TransactionState.EMPTY, ABORT, FENCED, BUMPED_ABORT),
        (TransactionState.EMPTY, COMMIT, FENCED, INVALID),
        (TransactionState.COMPLETE_ABORT, ABORT, (TransactionState.COMPLETE_ABORT, 7, 3), BUMPED_ABORT),
        (TransactionState.COMPLETE_ABORT, COMMIT, INVALID, INVALID),
        (TransactionState.COMPLETE_COMMIT, ABORT, INVALID, BUMPED_ABORT),
        (TransactionState.COMPLETE_COMMIT, COMMIT, (TransactionState.COMPLETE_COMMIT, 7, 3), INVALID),
        (TransactionState.ONGOING, ABORT, FENCED, BUMPED_ABORT),
        (TransactionState.ONGOING, COMMIT, FENCED, BUMPED_COMMIT),
        (TransactionState.PREPARE_COMMIT, COMMIT, CONCURRENT, FENCED),
        (TransactionState.PREPARE_COMMIT, ABORT, INVALID, FENCED),
        (TransactionState.PREPARE_ABORT, ABORT, CONCURRENT, FENCED),
        (TransactionState.PREPARE_ABORT, COMMIT, INVALID, FENCED),
    ],
)
def test_a_repeated_end_is_told_from_that_of_the_next_transaction_by_its_producer_epoch(
    state: TransactionState, commit: bool, again: Outcome, current: Outcome
) -> None:
    assert ended(transaction(state), (7, 2), commit, 2) == again
    assert ended(transaction(state), OURS, commit, 2) == current
    assert ended(transaction(state), (7, 4), commit, 2) == FENCED
    assert ended(transaction(state), (8, 3), commit, 2) == MAPPING


def test_a_producer_with_exhausted_epochs_gets_another_producer_id() -> None:
    before = transaction(TransactionState.ONGOING, producer_epoch=LAST_CLIENT_EPOCH)
    prepared = transitions.end_transaction(before, (7, LAST_CLIENT_EPOCH), COMMIT, 2, LATER_MS, new_id)
    assert transitions.choose_next_producer_id_and_epoch(prepared) == (NEW_ID, 0)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, LAST_CLIENT_EPOCH + 1)  # what the markers bear
    assert ended(prepared, (7, LAST_CLIENT_EPOCH), COMMIT, 2) == CONCURRENT
    after = transitions.complete_transaction(prepared, LATER_MS)
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (NEW_ID, 0, 7)
    assert ended(after, (7, LAST_CLIENT_EPOCH), COMMIT, 2) == (TransactionState.COMPLETE_COMMIT, NEW_ID, 0)
    assert ended(after, (NEW_ID, 0), ABORT, 2) == (TransactionState.PREPARE_ABORT, NEW_ID, 1)


@pytest.mark.parametrize("version", [0, 2])
def test_fencing_a_producer_aborts_its_transaction_in_the_next_epoch(version: int) -> None:
    fenced = transitions.transition_to_fenced_abort(transaction(TransactionState.ONGOING), version, LATER_MS, new_id)
    assert (fenced.state, fenced.producer_epoch, fenced.partitions) == (TransactionState.PREPARE_ABORT, 4, {PARTITION})
    assert fenced.last_producer_epoch == (-1 if version == 0 else 3)
    assert transitions.complete_transaction(fenced, LATER_MS).state is TransactionState.COMPLETE_ABORT


def test_a_producer_fenced_in_its_last_epoch_gets_another_producer_id() -> None:
    before = transaction(TransactionState.ONGOING, producer_epoch=LAST_CLIENT_EPOCH)
    after = transitions.complete_transaction(
        transitions.transition_to_fenced_abort(before, 2, LATER_MS, new_id), LATER_MS
    )
    assert (after.producer_id, after.producer_epoch) == (NEW_ID, 0)
    after = transitions.complete_transaction(
        transitions.transition_to_fenced_abort(before, 0, LATER_MS, new_id), LATER_MS
    )
    assert (after.producer_id, after.producer_epoch) == (7, LAST_CLIENT_EPOCH + 1)
    assert initialized(after) == (NEW_ID, 0)


def test_a_completed_transaction_has_no_partitions() -> None:
    assert (
        transitions.complete_transaction(transaction(TransactionState.PREPARE_COMMIT), LATER_MS).partitions
        == frozenset()
    )


# --- InitProducerId -----------------------------------------------------------------------------


def initialized(before: Transaction, expected: tuple[int, int] | None = None) -> tuple[int, int] | ErrorCode:
    try:
        after = transitions.initialize_producer(before, 1000, expected, LATER_MS, new_id)
    except KafkaError as error:
        return error.code
    assert (after.state, after.timeout_ms, after.partitions, after.start_ms) == (
        TransactionState.EMPTY,
        1000,
        frozenset(),
        -1,
    )
    return after.producer_id, after.producer_epoch


AT_REST = [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]


@pytest.mark.parametrize("state", AT_REST)
def test_a_producer_that_initializes_gets_the_next_epoch(state: TransactionState) -> None:
    assert initialized(transaction(state)) == (7, 4)


@for_each("state", AT_REST)
@for_each(
    ("expected", "outcome"),
    [
        ((7, 3), (7, 4)),
        ((7, 2), (7, 3)),  # it asks again
        ((7, 1), FENCED),
        ((7, 4), FENCED),
        ((8, 3), FENCED),
    ],
)
def test_a_producer_that_reinitializes_with_its_id_is_fenced_by_a_newer_one(
    state: TransactionState, expected: tuple[int, int], outcome: tuple[int, int] | ErrorCode
) -> None:
    assert initialized(transaction(state), expected) == outcome


@pytest.mark.parametrize("expected", [None, (5, 5)])
def test_a_new_transactional_id_starts_with_epoch_0(expected: tuple[int, int] | None) -> None:
    assert initialized(Transaction("tx", 7, 60_000, NOW_MS), expected) == (7, 0)


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_a_producer_waits_for_the_markers_of_the_previous_transaction(state: TransactionState) -> None:
    assert initialized(transaction(state)) == CONCURRENT


def test_exhausted_epochs_continue_under_another_producer_id() -> None:
    before = transaction(producer_epoch=LAST_CLIENT_EPOCH)
    assert initialized(before) == (NEW_ID, 0)
    after = transitions.initialize_producer(before, 1000, (7, LAST_CLIENT_EPOCH), LATER_MS, new_id)
    assert (after.previous_producer_id, after.last_producer_epoch) == (7, LAST_CLIENT_EPOCH)
    assert initialized(after, (7, LAST_CLIENT_EPOCH)) == (NEW_ID, 0)  # it asks again


# --- partitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partition_starts_a_transaction(state: TransactionState) -> None:
    after = transitions.add_partitions_to_transaction(transaction(state), OURS, [PARTITION], 2, LATER_MS)
    assert (after.state, after.partitions, after.start_ms) == (TransactionState.ONGOING, {PARTITION}, LATER_MS)


def test_further_partitions_keep_the_transactions_start_time() -> None:
    before = transaction(TransactionState.ONGOING, start_ms=NOW_MS)
    after = transitions.add_partitions_to_transaction(before, OURS, [("t", 1)], 2, LATER_MS)
    assert (after.partitions, after.start_ms) == ({("t", 0), ("t", 1)}, NOW_MS)
    assert transitions.add_partitions_to_transaction(before, OURS, [PARTITION], 2, LATER_MS) is before


@pytest.mark.parametrize(
    ("state", "producer", "code"),
    [
        (TransactionState.ONGOING, (8, 3), MAPPING),
        (TransactionState.ONGOING, (7, 2), FENCED),
        (TransactionState.PREPARE_COMMIT, OURS, CONCURRENT),
        (TransactionState.PREPARE_ABORT, OURS, CONCURRENT),
    ],
)
def test_only_the_current_producer_can_add_partitions_to_its_transaction(
    state: TransactionState, producer: tuple[int, int], code: ErrorCode
) -> None:
    for attempt in (
        lambda: transitions.add_partitions_to_transaction(transaction(state), producer, [PARTITION], 0, LATER_MS),
        lambda: transitions.check_partition_in_transaction(transaction(state), producer, PARTITION),
    ):
        with pytest.raises(KafkaError) as raised:
            attempt()
        assert raised.value.code == code


def test_checking_a_partition_that_is_not_in_the_transaction_raises_an_error() -> None:
    transitions.check_partition_in_transaction(transaction(TransactionState.ONGOING), OURS, PARTITION)
    with pytest.raises(KafkaError) as raised:
        transitions.check_partition_in_transaction(transaction(TransactionState.ONGOING), OURS, ("t", 1))
    assert raised.value.code == ErrorCode.TRANSACTION_ABORTABLE


@for_each("before", TransactionState)
@for_each("after", TransactionState)
def test_only_valid_state_transitions_are_allowed(before: TransactionState, after: TransactionState) -> None:
    if before in REACHED_FROM[after]:
        assert transaction(before).transition_to(after, LATER_MS).state is after
    else:
        with pytest.raises(ValueError, match="cannot go from"):
            transaction(before).transition_to(after, LATER_MS)


def test_a_transition_changes_only_the_state_and_the_time() -> None:
    others = {
        "transactional_id": "tx",
        "producer_id": 7,
        "timeout_ms": 60_000,
        "producer_epoch": 3,
        "last_producer_epoch": 2,
        "previous_producer_id": 5,
        "next_producer_id": 9,
        "partitions": frozenset({PARTITION}),
        "start_ms": NOW_MS - 5,
        "client_version": 2,
    }
    before = Transaction(**others, last_update_ms=NOW_MS, state=TransactionState.ONGOING)  # type: ignore[arg-type]
    after = before.transition_to(TransactionState.PREPARE_COMMIT, LATER_MS)
    assert (after.state, after.last_update_ms) == (TransactionState.PREPARE_COMMIT, LATER_MS)
    assert {name: getattr(after, name) for name in others} == others
    assert (before.state, before.last_update_ms) == (TransactionState.ONGOING, NOW_MS)
