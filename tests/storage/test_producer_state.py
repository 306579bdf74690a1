"""Sequences, epochs and snapshots of producers, compared with the rules of Kafka's ProducerAppendInfo.

That they survive a restart is tested in `test_recovery.py`.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, read_header
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import end_transaction_marker
from minibroker.protocol.records.crc import crc32c
from minibroker.storage.producer_state import MAX_SEQUENCE, CorruptSnapshot, ProducerStates, marker_epoch
from tests.storage.support import NOW_MS, batch


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, timestamp: int = NOW_MS) -> BatchHeader:
    data = batch(count, timestamp=timestamp, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return read_header(data)


def states_after(*headers: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    offset = 100
    for each in headers:
        assert states.check(each) is None
        states.update(each, offset)
        offset += each.record_count
    return states


def refusal(states: ProducerStates, each: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        states.check(each)
    return raised.value.code


def test_sequences_that_follow_are_taken() -> None:
    states_after(header(0, 3), header(3), header(4, 10), header(14))


@pytest.mark.parametrize("sequence", [0, 5, MAX_SEQUENCE])
def test_an_unknown_producer_may_begin_with_any_sequence(sequence: int) -> None:
    states_after(header(sequence))


@pytest.mark.parametrize("sequence", [4, 6, 5 + MAX_SEQUENCE // 2, 0])
def test_a_gap_or_a_step_back_is_out_of_order(sequence: int) -> None:
    states = states_after(header(0, 5))
    assert refusal(states, header(sequence, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_again() -> None:
    headers = [header(sequence, 2, timestamp=NOW_MS + sequence) for sequence in range(0, 12, 2)]
    states = states_after(*headers)
    for number, each in enumerate(headers[1:], 1):
        assert states.check(each) == (100 + 2 * number, NOW_MS + 2 * number)
    assert refusal(states, headers[0]) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_repeats_only_a_part_is_no_repetition() -> None:
    states = states_after(header(0, 5))
    assert refusal(states, header(0, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    states = states_after(header(MAX_SEQUENCE - 1, 2), header(0, 2))
    assert states.check(header(MAX_SEQUENCE - 1, 2)) == (100, NOW_MS)
    states = states_after(across := header(MAX_SEQUENCE, 3), header(2, 1))
    assert states.check(across) == (100, NOW_MS)


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    states = states_after(header(0, 5), header(0, 1, epoch=1), header(1, 1, epoch=1))
    assert refusal(states, header(1, 1, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, 1, epoch=3)) is None


def test_an_epoch_that_has_passed_is_refused_even_for_a_batch_that_was_written() -> None:
    states = states_after(header(0, 5), header(0, 1, epoch=1))
    assert refusal(states, header(0, 5)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(5)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_older_epoch_are_forgotten_with_it() -> None:
    states = states_after(header(0, 5), header(0, 5, epoch=1))
    assert states.check(header(0, 5, epoch=1)) == (105, NOW_MS)


def test_producers_do_not_touch_each_other() -> None:
    states = states_after(header(0, 5), header(0, 2, producer=8), header(5, 1), header(2, 1, producer=8))
    assert len(states) == 2


def test_a_producer_is_forgotten_after_its_time() -> None:
    states = states_after(header(0, 1), header(0, 1, producer=8, timestamp=NOW_MS + 10))
    states.remove_expired(NOW_MS + 10, after_ms=10)
    assert [producer for producer, _ in states.entries()] == [8]
    assert states.check(header(77)) is None


def marker(*, epoch: int = 0, committed: bool = True, coordinator_epoch: int = 3) -> bytearray:
    record = end_transaction_marker(committed=committed, coordinator_epoch=coordinator_epoch, timestamp=NOW_MS)
    return build_batch([record], producer_id=7, producer_epoch=epoch, transactional=True, control=True)


def transactional(sequence: int, count: int = 1) -> BatchHeader:
    return read_header(batch(count, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True))


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    states = states_after(transactional(0, 5), transactional(5, 1))
    ((_, entry),) = states.entries()
    assert entry.transaction_first_offset == 100
    states.remove_expired(NOW_MS * 2, after_ms=1)
    assert len(states) == 1
    end = marker()
    states.update(read_header(end), 106, marker_epoch(end))
    assert (entry.transaction_first_offset, entry.coordinator_epoch) == (-1, 3)
    assert states.check(transactional(6)) is None


def test_a_marker_with_a_new_epoch_begins_sequences_anew() -> None:
    states = states_after(transactional(0, 5))
    end = marker(epoch=1)
    states.update(read_header(end), 105, marker_epoch(end))
    assert refusal(states, header(5, 1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, 1, epoch=1)) is None


def test_a_control_batch_without_a_marker_tells_no_epoch() -> None:
    assert marker_epoch(marker(coordinator_epoch=9)) == 9
    assert marker_epoch(batch(1, producer_id=7)) == -1


def test_a_snapshot_is_kafka_s() -> None:
    states = states_after(header(0, 5), header(5, 2, timestamp=NOW_MS + 9))
    body = struct.pack(">i qhiqiqiq", 1, 7, 0, 6, 106, 1, NOW_MS + 9, -1, -1)
    assert states.snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_what_the_next_batch_is_checked_against() -> None:
    states = states_after(header(0, 5), last := header(5, 2, epoch=0), header(0, 1, producer=9))
    loaded = ProducerStates()
    loaded.load(states.snapshot(), 108)
    assert loaded.end_offset == 108
    assert loaded.check(last) == (105, NOW_MS)
    assert loaded.check(header(7)) is None
    assert refusal(loaded, header(0, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert loaded.snapshot() == states.snapshot()


def test_a_snapshot_may_hold_nobody_or_a_producer_without_batches() -> None:
    states = ProducerStates()
    states.load(states.snapshot(), 5)
    assert len(states) == 0
    end = marker(epoch=4)
    states.update(read_header(end), 5, marker_epoch(end))
    states.load(states.snapshot(), 6)
    assert refusal(states, header(0, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH


@given(st.data())
def test_a_damaged_snapshot_is_refused_and_changes_nothing(data: st.DataObject) -> None:
    states = states_after(header(0, 5))
    good = states.snapshot()
    bad = bytearray(good)
    if data.draw(st.booleans()):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del bad[data.draw(st.integers(0, len(bad) - 1)) :]
    with pytest.raises(CorruptSnapshot):
        states.load(bytes(bad), 1)
    assert states.snapshot() == good


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=20))
def test_a_producer_that_repeats_what_it_is_unsure_of_writes_everything_once(batches: list[tuple[int, bool]]) -> None:
    states = ProducerStates()
    offset = sequence = 0
    for count, repeated in batches:
        each = header(sequence, count)
        assert states.check(each) is None
        states.update(each, offset)
        if repeated:
            assert states.check(each) == (offset, NOW_MS)
        offset += count
        sequence += count
