"""Which batches count as aborted, which markers nobody needs, and what the cleaned index still lists."""

from __future__ import annotations

from minibroker.protocol.messages.control_records import LeaderChangeMessage
from minibroker.protocol.records.batch import BatchHeader, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_control_record, make_transaction_marker
from minibroker.storage.compaction.cleaned_transactions import CleanedTransactions
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from tests.storage.compaction.support import pairs
from tests.storage.support import NOW_MS

PRODUCER, OTHER = 7, 8


def data(offset: int, producer: int = PRODUCER) -> BatchHeader:
    return check_batch(
        pairs(
            ("k", "v"), base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    )


def marker(offset: int, *, committed: bool, producer: int = PRODUCER) -> tuple[BatchHeader, bytes]:
    record = make_transaction_marker(committed=committed, coordinator_epoch=1, timestamp=NOW_MS)
    batch = build_batch(
        [record], base_offset=offset, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )
    return check_batch(batch), bytes(batch)


def aborted(first: int, last: int, producer: int = PRODUCER) -> AbortedTransaction:
    return AbortedTransaction(producer, first, last, first)


def test_records_of_an_aborted_transaction_are_recognized() -> None:
    transactions = CleanedTransactions([aborted(2, 5)], 0)
    assert not transactions.is_data_batch_aborted(data(0, OTHER))
    assert not transactions.is_data_batch_aborted(data(1))
    transactions.is_marker_removable(*marker(1, committed=True))
    assert transactions.is_data_batch_aborted(data(2))
    assert not transactions.is_data_batch_aborted(data(3, OTHER))
    assert transactions.is_data_batch_aborted(data(4))
    transactions.is_marker_removable(*marker(5, committed=False))
    assert not transactions.is_data_batch_aborted(data(6))


def test_a_producer_may_abort_several_transactions() -> None:
    transactions = CleanedTransactions([aborted(10, 12), aborted(0, 3)], 0)
    assert transactions.is_data_batch_aborted(data(0))
    transactions.is_marker_removable(*marker(3, committed=False))
    assert not transactions.is_data_batch_aborted(data(4))
    transactions.is_marker_removable(*marker(5, committed=True))
    assert transactions.is_data_batch_aborted(data(10))


def test_transactions_aborted_before_the_cleaned_range_are_skipped() -> None:
    transactions = CleanedTransactions([aborted(0, 3)], start_offset=4)
    assert not transactions.is_data_batch_aborted(data(4))


def test_a_transaction_that_began_before_the_cleaned_range_can_be_aborted() -> None:
    transactions = CleanedTransactions([aborted(0, 8)], start_offset=4)
    assert transactions.is_data_batch_aborted(data(4))


def test_a_marker_is_kept_while_a_batch_of_its_transaction_remains() -> None:
    transactions = CleanedTransactions([aborted(4, 5)], 0)
    transactions.is_data_batch_aborted(data(0))
    assert not transactions.is_marker_removable(*marker(1, committed=True))
    assert transactions.is_marker_removable(*marker(2, committed=True))
    transactions.is_data_batch_aborted(data(4))
    assert not transactions.is_marker_removable(*marker(5, committed=False))
    assert transactions.is_marker_removable(*marker(6, committed=False))


def test_only_aborted_transactions_with_remaining_batches_stay_in_the_index() -> None:
    first, second = aborted(0, 1), aborted(2, 3)
    transactions = CleanedTransactions([first, second], 0)
    transactions.is_marker_removable(*marker(1, committed=False))
    transactions.is_data_batch_aborted(data(2))
    transactions.is_marker_removable(*marker(3, committed=False))
    assert transactions.still_indexed == [second]


def test_an_emptied_marker_is_removable_and_ends_no_transaction() -> None:
    transactions = CleanedTransactions([], 0)
    transactions.is_data_batch_aborted(data(0))
    header, batch = marker(1, committed=True)
    assert transactions.is_marker_removable(header._replace(record_count=0), batch)
    assert not transactions.is_marker_removable(*marker(2, committed=True))


def test_control_records_of_other_types_are_kept() -> None:
    message = LeaderChangeMessage(version=0, leader_id=1, voters=[], granting_voters=[])
    batch = build_batch([make_control_record(message, timestamp=NOW_MS)], control=True)
    assert not CleanedTransactions([], 0).is_marker_removable(check_batch(batch), bytes(batch))
