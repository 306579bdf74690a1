"""Sequences, epochs and snapshots of producers, compared with the rules of Kafka's ProducerAppendInfo.

That they survive a restart is tested in `test_recovery.py`.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import MAX_SEQUENCE, BatchHeader, read_header
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.producers.aborted_transactions import AbortedTransaction
from minibroker.storage.producers.producer_state import CorruptSnapshot, ProducerStates
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from tests.storage.support import NOW_MS, batch


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, timestamp: int = NOW_MS) -> BatchHeader:
    data = batch(count, timestamp=timestamp, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return read_header(data)


def states_after(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    offset = 100
    for each in headers:
        assert states.check_epoch_and_sequence(each) is None
        states.apply_appended_batch(each, offset)
        offset += each.record_count
    return states


def refusal(states: ProducerStates, each: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        states.check_epoch_and_sequence(each)
    return raised.value.code


def test_consecutive_sequences_are_accepted() -> None:
    states_after(header(0, 3), header(3), header(4, 10), header(14))


def test_producers_are_found_by_their_ids() -> None:
    states = states_after(header(0, producer=9), header(0, producer=7, epoch=3))
    assert list(states.list_producer_ids()) == [9, 7]
    entries = [states.find_producer_entry(producer) for producer in (7, 8)]
    assert [entry and entry.epoch for entry in entries] == [3, None]


@pytest.mark.parametrize("sequence", [0, 5, MAX_SEQUENCE])
def test_an_unknown_producer_may_start_with_any_sequence(sequence: int) -> None:
    states_after(header(sequence))


@pytest.mark.parametrize("sequence", [4, 6, 5 + MAX_SEQUENCE // 2, 0])
def test_a_sequence_gap_or_step_back_is_out_of_order(sequence: int) -> None:
    states = states_after(header(0, 5))
    assert refusal(states, header(sequence, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_out_of_order_error_has_the_expected_and_the_last_sequence() -> None:
    states = states_after(header(0, 5), header(5), header(6, 6))
    with pytest.raises(KafkaError, match=r"15 \(incoming.* expected 12, last five batches: 0-4, 5-5, 6-11$"):
        states.check_epoch_and_sequence(header(15))
    with pytest.raises(KafkaError, match=r"expected 0, last five batches: 0-4, 5-5, 6-11$"):
        states.check_epoch_and_sequence(header(12, epoch=1))
    bumped = read_header(memoryview(make_marker_batch(7, 1, TransactionMarker(True, 0), NOW_MS)))
    states.end_transaction(bumped, 200, TransactionMarker(True, 0))
    with pytest.raises(KafkaError, match=r"expected 0, last five batches: none$"):
        states.check_epoch_and_sequence(header(12, epoch=1))


def test_the_first_batch_of_a_producer_may_be_required_to_have_sequence_0() -> None:
    states = ProducerStates()
    states.check_first_sequence(header(0))
    with pytest.raises(KafkaError, match="expected 0") as raised:
        states.check_first_sequence(header(1))
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states_after(header(0)).check_first_sequence(header(1))


def test_each_of_the_last_five_batches_is_recognized_as_a_duplicate() -> None:
    headers = [header(sequence, 2, timestamp=NOW_MS + sequence) for sequence in range(0, 12, 2)]
    states = states_after(*headers)
    for number, each in enumerate(headers[1:], 1):
        assert states.check_epoch_and_sequence(each) == (100 + 2 * number, NOW_MS + 2 * number)
    assert refusal(states, headers[0]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_repeats_only_a_part_of_another_is_not_a_duplicate() -> None:
    states = states_after(header(0, 5))
    assert refusal(states, header(0, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_after_the_maximum() -> None:
    states = states_after(header(MAX_SEQUENCE - 1, 2), header(0, 2))
    assert states.check_epoch_and_sequence(header(MAX_SEQUENCE - 1, 2)) == (100, NOW_MS)
    states = states_after(across := header(MAX_SEQUENCE, 3), header(2, 1))
    assert states.check_epoch_and_sequence(across) == (100, NOW_MS)


def test_a_new_producer_epoch_starts_with_sequence_zero() -> None:
    states = states_after(header(0, 5), header(0, 1, epoch=1), header(1, 1, epoch=1))
    assert refusal(states, header(1, 1, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check_epoch_and_sequence(header(0, 1, epoch=3)) is None


def test_an_old_producer_epoch_is_rejected_even_for_a_duplicate() -> None:
    states = states_after(header(0, 5), header(0, 1, epoch=1))
    assert refusal(states, header(0, 5)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(5)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_older_producer_epoch_are_forgotten() -> None:
    states = states_after(header(0, 5), header(0, 5, epoch=1))
    assert states.check_epoch_and_sequence(header(0, 5, epoch=1)) == (105, NOW_MS)


def test_sequences_of_different_producers_are_independent() -> None:
    states = states_after(header(0, 5), header(0, 2, producer=8), header(5, 1), header(2, 1, producer=8))
    assert len(states) == 2


def test_an_inactive_producer_expires() -> None:
    states = states_after(header(0, 1), header(0, 1, producer=8, timestamp=NOW_MS + 10))
    states.remove_expired_producers(NOW_MS + 10, expiration_ms=10)
    assert [producer for producer, _ in states.iterate_entries()] == [8]
    assert states.check_epoch_and_sequence(header(77)) is None


def end(
    states: ProducerStates, offset: int, *, epoch: int = 0, committed: bool = True, coordinator_epoch: int = 3
) -> AbortedTransaction | None:
    marker = TransactionMarker(committed, coordinator_epoch)
    return states.end_transaction(read_header(make_marker_batch(7, epoch, marker, NOW_MS)), offset, marker)


def transactional(sequence: int, count: int = 1, *, producer: int = 7) -> BatchHeader:
    data = batch(count, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
    return read_header(data)


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    states = states_after(transactional(0, 5), transactional(5, 1))
    ((_, entry),) = states.iterate_entries()
    assert entry.transaction_first_offset == 100
    states.remove_expired_producers(NOW_MS * 2, expiration_ms=1)
    assert len(states) == 1
    assert end(states, 106) is None
    assert (entry.transaction_first_offset, entry.coordinator_epoch) == (-1, 3)
    assert states.check_epoch_and_sequence(transactional(6)) is None


def test_sequences_restart_after_a_marker_with_a_new_epoch() -> None:
    states = states_after(transactional(0, 5))
    end(states, 105, epoch=1)
    assert refusal(states, header(5, 1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check_epoch_and_sequence(header(0, 1, epoch=1)) is None


def test_the_last_stable_offset_is_the_start_of_the_oldest_open_transaction() -> None:
    states = ProducerStates()
    assert states.find_first_unstable_offset(9) == 9
    states.apply_appended_batch(transactional(0, 5), 100)
    states.apply_appended_batch(transactional(0, 2, producer=8), 105)
    states.apply_appended_batch(transactional(5, 1), 107)
    assert states.find_first_unstable_offset(108) == 100
    assert end(states, 108, committed=False) == AbortedTransaction(7, 100, 108, 105)
    assert states.find_first_unstable_offset(109) == 105


def test_the_log_is_stable_after_the_marker_of_its_only_transaction() -> None:
    states = states_after(transactional(0, 5))
    assert end(states, 105, committed=False) == AbortedTransaction(7, 100, 105, 106)
    assert end(states, 106, committed=False) is None  # there was nothing to abort


def test_a_marker_emptied_by_compaction_has_no_coordinator_epoch() -> None:
    states = states_after(transactional(0, 5))
    end(states, 105)
    emptied = read_header(make_marker_batch(7, 0, TransactionMarker(False, 9), NOW_MS))
    assert states.end_transaction(emptied, 106, None) is None
    ((_, entry),) = states.iterate_entries()
    assert entry.coordinator_epoch == 3


def test_non_transactional_batches_are_rejected_during_a_transaction() -> None:
    states = states_after(transactional(0, 5))
    assert refusal(states, header(5)) == ErrorCode.INVALID_TXN_STATE
    end(states, 105)
    assert states.check_epoch_and_sequence(header(5)) is None


def marker_refusal(states: ProducerStates, epoch: int, coordinator_epoch: int, version: int) -> ErrorCode | None:
    marker = TransactionMarker(True, coordinator_epoch)
    try:
        states.check_marker_may_end_transaction(
            read_header(make_marker_batch(7, epoch, marker, NOW_MS)), marker, version
        )
    except KafkaError as error:
        return error.code
    return None


def test_a_marker_of_an_old_producer_or_coordinator_epoch_ends_nothing() -> None:
    states = states_after(header(0, epoch=4))
    end(states, 101, epoch=5)
    assert marker_refusal(states, 4, 3, version=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker_refusal(states, 5, 2, version=0) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marker_refusal(states, 5, 3, version=0) is None
    assert marker_refusal(ProducerStates(), 0, 0, version=2) is None


def test_a_late_marker_does_not_end_the_next_transaction_in_transaction_version_2() -> None:
    states = states_after(transactional(0, 5))
    assert marker_refusal(states, 0, 3, version=1) is None
    assert marker_refusal(states, 0, 3, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker_refusal(states, 1, 3, version=2) is None
    end(states, 105, epoch=1)
    assert marker_refusal(states, 1, 3, version=2) is None  # the same once more


def test_a_producer_snapshot_has_kafkas_format() -> None:
    states = states_after(header(0, 5), header(5, 2, timestamp=NOW_MS + 9))
    body = struct.pack(">i qhiqiqiq", 1, 7, 0, 6, 106, 1, NOW_MS + 9, -1, -1)
    assert states.encode_snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_the_state_for_validating_batches() -> None:
    states = states_after(header(0, 5), last := header(5, 2, epoch=0), header(0, 1, producer=9))
    loaded = ProducerStates()
    loaded.load_snapshot(states.encode_snapshot(), 108)
    assert loaded.end_offset == 108
    assert loaded.check_epoch_and_sequence(last) == (105, NOW_MS)
    assert loaded.check_epoch_and_sequence(header(7)) is None
    assert refusal(loaded, header(0, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert loaded.encode_snapshot() == states.encode_snapshot()


def test_a_snapshot_may_contain_no_producer_or_one_without_batches() -> None:
    states = ProducerStates()
    states.load_snapshot(states.encode_snapshot(), 5)
    assert len(states) == 0
    end(states, 5, epoch=4)
    states.load_snapshot(states.encode_snapshot(), 6)
    assert refusal(states, header(0, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH


@given(st.data())
def test_a_corrupt_snapshot_is_rejected_and_changes_nothing(data: st.DataObject) -> None:
    states = states_after(header(0, 5))
    good = states.encode_snapshot()
    bad = bytearray(good)
    if data.draw(st.booleans()):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del bad[data.draw(st.integers(0, len(bad) - 1)) :]
    with pytest.raises(CorruptSnapshot):
        states.load_snapshot(bytes(bad), 1)
    assert states.encode_snapshot() == good


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=20))
def test_duplicate_batches_are_recognized(batches: list[tuple[int, bool]]) -> None:
    states = ProducerStates()
    offset = sequence = 0
    for count, repeated in batches:
        each = header(sequence, count)
        assert states.check_epoch_and_sequence(each) is None
        states.apply_appended_batch(each, offset)
        if repeated:
            assert states.check_epoch_and_sequence(each) == (offset, NOW_MS)
        offset += count
        sequence += count
