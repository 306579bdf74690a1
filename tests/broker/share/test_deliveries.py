"""Delivery states: single steps, and random histories beside a model that keeps each offset by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.share.deliveries import Deliveries
from minibroker.broker.share.runs import (
    AcknowledgeType,
    AcquiredRecords,
    DeliveryRun,
    DeliveryState,
    RangeAcknowledgement,
    ShareLimits,
    StateBatch,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

LIMITS = ShareLimits(deliveries=5, record_locks=200, lock_ms=1000)
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)
AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def acquire(
    deliveries: Deliveries, last: int, member_id: str = "m", now_ms: int = 0, max_records: int = 500, **more: Any
) -> list[AcquiredRecords]:
    """Acquire from batches of ten records, up to an offset."""
    first = deliveries.find_next_offset() // 10 * 10
    bounds = [(base, min(base + 9, last)) for base in range(first, last + 1, 10)]
    limits = more.pop("limits", LIMITS)
    return deliveries.acquire_records(
        member_id, bounds, limits, now_ms, max_records, more.pop("batch_size", 500), **more
    )


def acknowledge(
    deliveries: Deliveries, first: int, last: int, *types: int, member_id: str = "m", limits: ShareLimits = LIMITS
) -> list[StateBatch]:
    changed = deliveries.acknowledge_records(member_id, [RangeAcknowledgement(first, last, types)], limits, 0)
    deliveries.drop_final_records()
    return changed


def held_by(member_id: str) -> Callable[[DeliveryRun], bool]:
    return lambda run: run.member_id == member_id


def test_whole_batches_are_acquired_up_to_about_the_requested_number() -> None:
    deliveries = Deliveries(0)
    assert acquire(deliveries, 99, max_records=15) == [AcquiredRecords(0, 19, 1)]
    assert (deliveries.find_next_offset(), deliveries.in_flight_count) == (20, 20)
    assert acquire(deliveries, 99, max_records=15, strict=True) == [AcquiredRecords(20, 34, 1)]
    assert deliveries.find_next_offset() == 35


def test_the_number_of_acquired_offsets_is_bounded() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 29)
    assert deliveries.find_last_offset_to_acquire(5) == 34
    acknowledge(deliveries, 10, 19, RELEASE)
    assert [deliveries.find_last_offset_to_acquire(count) for count in (1, 10, 11, 20)] == [29, 29, 30, 39]


def test_new_records_are_acquired_in_ranges_cut_between_batches() -> None:
    assert acquire(Deliveries(0), 59, batch_size=25) == [AcquiredRecords(0, 29, 1), AcquiredRecords(30, 59, 1)]


def test_the_start_offset_advances_over_contiguous_acknowledged_offsets() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 29)
    assert acknowledge(deliveries, 10, 19, ACCEPT) == [StateBatch(10, 19, ACKNOWLEDGED, 1)]
    assert (deliveries.start_offset, deliveries.final_count) == (0, 10)
    acknowledge(deliveries, 0, 9, REJECT)
    assert (deliveries.start_offset, deliveries.final_count) == (20, 0)
    acknowledge(deliveries, 20, 29, ACCEPT)
    assert (deliveries.start_offset, deliveries.in_flight_count, deliveries.find_next_offset()) == (30, 0, 30)


def test_released_records_are_redelivered_with_a_higher_delivery_count() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 9)
    assert acknowledge(deliveries, 4, 6, RELEASE, ACCEPT, RELEASE) == [
        StateBatch(4, 4, AVAILABLE, 1),
        StateBatch(5, 5, ACKNOWLEDGED, 1),
        StateBatch(6, 6, AVAILABLE, 1),
    ]
    assert deliveries.find_next_offset() == 4
    assert acquire(deliveries, 9, "other") == [AcquiredRecords(4, 4, 2), AcquiredRecords(6, 6, 2)]


def test_records_acquired_together_are_redelivered_together_unless_strict() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 29)
    acknowledge(deliveries, 0, 29, RELEASE)
    assert acquire(deliveries, 99, max_records=3) == [AcquiredRecords(0, 29, 2)]
    acknowledge(deliveries, 0, 29, RELEASE)
    assert acquire(deliveries, 99, max_records=3, strict=True) == [AcquiredRecords(0, 2, 3)]


def test_offsets_that_are_not_in_flight_cannot_be_acknowledged() -> None:
    deliveries = Deliveries(5)
    with pytest.raises(KafkaError) as raised:
        acknowledge(deliveries, 5, 5, ACCEPT)
    assert raised.value.code == ErrorCode.INVALID_RECORD_STATE
    acquire(deliveries, 9)
    with pytest.raises(KafkaError) as raised:
        acknowledge(deliveries, 10, 10, ACCEPT)
    assert raised.value.code == ErrorCode.INVALID_REQUEST


def test_a_record_is_archived_at_the_delivery_limit() -> None:
    deliveries = Deliveries(0)
    limits = LIMITS._replace(deliveries=2)
    for count in (1, 2):
        assert acquire(deliveries, 0, limits=limits) == [AcquiredRecords(0, 0, count)]
        acknowledge(deliveries, 0, 0, RELEASE, limits=limits)
    assert (deliveries.start_offset, deliveries.in_flight_count) == (1, 0)


def test_records_with_many_deliveries_are_acquired_in_ever_smaller_batches() -> None:
    deliveries = Deliveries(0)
    for count, size in ((1, 10), (2, 10), (3, 10), (4, 5), (5, 1)):
        found = acquire(deliveries, 9)
        assert found == [AcquiredRecords(0, size - 1, count)]
        acknowledge(deliveries, 0, size - 1, RELEASE)
    assert deliveries.start_offset == 1


def test_an_acknowledged_record_is_not_redelivered_with_its_split_batch() -> None:
    deliveries, limits = Deliveries(0), LIMITS._replace(deliveries=4)
    deliveries.acquire_records("m", [(0, 5), (6, 9)], limits, 0, 500, 1)
    said = [
        RangeAcknowledgement(0, 5, [RELEASE, ACCEPT, RELEASE, RELEASE, ACCEPT, RELEASE]),
        RangeAcknowledgement(6, 9, [2]),
    ]
    found: list[list[AcquiredRecords]] = []
    for _ in range(4):
        deliveries.acknowledge_records("m", said, limits, 0)
        deliveries.drop_final_records()
        found.append(deliveries.acquire_records("m", [(0, 5), (6, 9)], limits, 0, 500, 500))
        said = [RangeAcknowledgement(first, last, [RELEASE]) for first, last, _ in found[-1]]
    assert found == [[(0, 0, 2), (2, 3, 2), (5, 5, 2), (6, 9, 2)], [(0, 0, 3), (2, 3, 3)], [(0, 0, 4)], [(2, 2, 4)]]


def test_a_closed_session_releases_its_records() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 9)
    assert deliveries.release_acquired_runs(LIMITS, held_by("other")) == []
    assert deliveries.release_acquired_runs(LIMITS, held_by("m")) == [StateBatch(0, 9, AVAILABLE, 1)]
    assert acquire(deliveries, 9, "other") == [AcquiredRecords(0, 9, 2)]


def test_acquisition_locks_expire_unless_renewed() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 9)
    deliveries.acknowledge_records("m", [RangeAcknowledgement(0, 4, [RENEW])], LIMITS, 600)
    assert deliveries.find_next_lock_end_ms() == 1000
    assert deliveries.release_acquired_runs(LIMITS, lambda run: run.lock_end_ms <= 999) == []
    assert deliveries.release_acquired_runs(LIMITS, lambda run: run.lock_end_ms <= 1000) == [
        StateBatch(5, 9, AVAILABLE, 1)
    ]
    assert deliveries.find_next_lock_end_ms() == 1600


@pytest.mark.parametrize(
    ("last", "member_id", "code"),
    [(9, "other", ErrorCode.INVALID_RECORD_STATE), (10, "m", ErrorCode.INVALID_REQUEST)],
    ids=["owner", "beyond"],
)
def test_a_member_can_acknowledge_only_what_it_acquired(last: int, member_id: str, code: ErrorCode) -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 9)
    with pytest.raises(KafkaError) as raised:
        acknowledge(deliveries, 0, last, ACCEPT, member_id=member_id)
    assert raised.value.code == code
    assert deliveries.list_runs()[0].state == ACQUIRED


def test_acknowledgements_of_a_request_are_applied_all_or_none() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 29)
    deliveries.acknowledge_records("m", [RangeAcknowledgement(10, 19, [RELEASE])], LIMITS, 0)
    said = [
        RangeAcknowledgement(0, 4, [ACCEPT, RELEASE, ACCEPT, ACCEPT, ACCEPT]),
        RangeAcknowledgement(8, 12, [ACCEPT]),
    ]
    with pytest.raises(KafkaError) as raised:
        deliveries.acknowledge_records("m", said, LIMITS, 0)
    assert raised.value.code == ErrorCode.INVALID_RECORD_STATE
    assert [(run.first, run.last, run.state) for run in deliveries.list_runs()] == [
        (0, 9, ACQUIRED),
        (10, 19, AVAILABLE),
        (20, 29, ACQUIRED),
    ]


def test_acknowledgements_before_the_start_offset_are_ignored() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 9)
    assert deliveries.advance_start_offset(5)
    assert acknowledge(deliveries, 0, 3, ACCEPT) == []
    assert acknowledge(deliveries, 4, 9, REJECT, ACCEPT, REJECT, ACCEPT, ACCEPT, ACCEPT)[0] == (5, 5, ACKNOWLEDGED, 1)
    assert not deliveries.advance_start_offset(5)


def test_offsets_removed_by_compaction_are_archived() -> None:
    deliveries = Deliveries(0)
    acquire(deliveries, 29)
    deliveries.release_acquired_runs(LIMITS, held_by("m"))
    assert deliveries.acquire_records("m", [(20, 29)], LIMITS, 0, 500, 500) == [AcquiredRecords(20, 29, 2)]
    assert deliveries.start_offset == 20


def test_no_new_records_are_acquired_beyond_the_limit_of_locks() -> None:
    limits = LIMITS._replace(record_locks=25)
    deliveries = Deliveries(0)
    assert acquire(deliveries, 99, limits=limits) == [AcquiredRecords(0, 29, 1)]
    assert not deliveries.has_room_for_deliveries(limits)
    assert acquire(deliveries, 99, limits=limits) == []
    acknowledge(deliveries, 12, 12, RELEASE, limits=limits)
    assert deliveries.has_room_for_deliveries(limits)
    assert acquire(deliveries, 99, limits=limits) == [AcquiredRecords(12, 12, 2)]


def test_deliveries_continue_from_a_persisted_share_state() -> None:
    kept = [StateBatch(0, 4, AVAILABLE, 2), StateBatch(8, 9, ACKNOWLEDGED, 1)]
    deliveries = Deliveries(0, kept)
    assert (deliveries.start_offset, deliveries.end_offset, deliveries.final_count) == (0, 10, 2)
    assert acquire(deliveries, 9) == [AcquiredRecords(0, 4, 3), AcquiredRecords(5, 7, 1)]


class Model:
    """Each offset by itself: its state, deliveries, and member."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[DeliveryState, int, str]] = {}

    def check(self, deliveries: Deliveries) -> None:
        flying = {
            offset: (run.state, run.count, run.member_id)
            for run in deliveries.list_runs()
            for offset in range(run.first, run.last + 1)
        }
        assert sorted(flying) == list(range(deliveries.start_offset, deliveries.end_offset))
        for offset, found in flying.items():
            assert found == self.records.get(offset, (AVAILABLE, 0, "")), offset
        for offset, (state, _, _) in self.records.items():
            if offset < deliveries.start_offset:
                assert state.is_final, offset
        assert not flying or not flying[deliveries.start_offset][0].is_final


@for_each("seed", range(30))
def test_random_deliveries_agree_with_a_simple_model(seed: int) -> None:
    source, deliveries, model, kept = random.Random(seed), Deliveries(0), Model(), dict[int, StateBatch]()
    for now_ms in range(0, 60_000, 100):
        member_id, action = source.choice("abc"), source.random()
        if action < 0.4:
            limits = LIMITS._replace(record_locks=source.choice([20, 200]))
            more = {"max_records": source.randint(1, 60), "strict": source.random() < 0.5}
            last = deliveries.find_next_offset() + source.randint(0, 50)
            found = acquire(deliveries, last, member_id, now_ms, limits=limits, **more)
            for first, last, count in found:
                for offset in range(first, last + 1):
                    state, before, _ = model.records.get(offset, (AVAILABLE, 0, ""))
                    assert (state, before) == (AVAILABLE, count - 1)
                    model.records[offset] = ACQUIRED, count, member_id
            continue
        if action < 0.9:
            mine = [run for run in deliveries.list_runs() if run.member_id == member_id]
            if not mine:
                continue
            run = source.choice(mine)
            first = source.randint(run.first, run.last)
            last = source.randint(first, run.last)
            types = [source.choice([0, 1, 2, 3]) for _ in range(first, last + 1)]
            changed = deliveries.acknowledge_records(
                member_id, [RangeAcknowledgement(first, last, types)], LIMITS, now_ms
            )
            for offset, kind in zip(range(first, last + 1), types, strict=True):
                state = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}[kind]
                count = model.records[offset][1]
                if state == AVAILABLE and count == LIMITS.deliveries:
                    state = ARCHIVED
                model.records[offset] = state, count, ""
        elif action < 0.95:
            changed = deliveries.release_acquired_runs(LIMITS, held_by(member_id))
        else:
            changed = deliveries.release_acquired_runs(LIMITS, lambda _: True)
        if action >= 0.9:
            for offset, (state, count, owner) in model.records.items():
                if state == ACQUIRED and (action >= 0.95 or owner == member_id):
                    model.records[offset] = ARCHIVED if count == LIMITS.deliveries else AVAILABLE, count, ""
        for batch in changed:
            for offset in range(batch.first, batch.last + 1):
                assert model.records[offset][:2] == (batch.state, batch.deliveries)
                kept[offset] = StateBatch(offset, offset, batch.state, batch.deliveries)
        deliveries.drop_final_records()
        model.check(deliveries)
    again = Deliveries(deliveries.start_offset, [kept[key] for key in sorted(kept) if key >= deliveries.start_offset])
    for run in again.list_runs():
        for offset in range(run.first, run.last + 1):
            expected = kept.get(offset, StateBatch(offset, offset, AVAILABLE, 0))
            assert (run.state, run.count) == (expected.state, expected.deliveries)
