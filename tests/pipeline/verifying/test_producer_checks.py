"""Epochs and sequences of producers: what follows what, what nobody can say, what one segment leaves to the next."""

from __future__ import annotations

from minibroker.pipeline.verifying.producer_checks import (
    EXPIRATION_MS,
    ProducerCheck,
    ProducerEvent,
    ProducerState,
    check_first_events_of_segment,
)
from minibroker.protocol.records.batch import MAX_SEQUENCE
from tests.cases import for_each


def data(
    first: int, count: int = 1, *, epoch: int = 0, offset: int = 0, timestamp: int = 0, missing: int = 0
) -> ProducerEvent:
    last = first + count - 1 & MAX_SEQUENCE
    return ProducerEvent(epoch, first, last, offset, offset + count - 1, timestamp, offset * 100, missing)


def marker(*, epoch: int = 0, offset: int = 0, missing: int = 0) -> ProducerEvent:
    return ProducerEvent(epoch, -1, -1, offset, offset, 0, offset * 100, missing)


def found(*events: ProducerEvent, log_start: int = 0) -> list[str]:
    check = ProducerCheck(log_start)
    problems = (check.apply_and_check_event(7, event) for event in events)
    return [problem.kind for problem in problems if problem is not None]


@for_each(
    "events",
    [
        (data(0, 3), data(3, 2), data(5)),
        (data(MAX_SEQUENCE - 1, 2), data(0)),  # they wrap
        (data(MAX_SEQUENCE, 3), data(2)),
        (data(5), data(6)),  # what was before is not in the log any more
        (data(0, 3), data(0, epoch=1), data(1, epoch=1)),
        (data(0, 3), marker(), data(3)),
        (data(0, 3), marker(epoch=1), data(0, epoch=1)),
        (marker(epoch=4), data(17, epoch=4)),  # the batches of its transaction went with the log's start
        (data(0), data(9, timestamp=EXPIRATION_MS)),  # the broker had forgotten it
        (data(0), data(5, missing=3)),  # compaction took those between
        (data(0), marker(epoch=1, missing=3), data(25, epoch=1, missing=3)),
    ],
)
def test_valid_sequences_of_producers_have_no_findings(events: tuple[ProducerEvent, ...]) -> None:
    assert found(*events) == []


@for_each(
    ("events", "kinds"),
    [
        ((data(0, 3), data(4)), ["sequence-gap"]),
        ((data(0, 3), data(2)), ["sequence-duplicate"]),
        ((data(0, 3), data(0, 3)), ["sequence-duplicate"]),
        ((data(0), data(1, epoch=1)), ["sequence-gap"]),
        ((data(0), marker(epoch=1), data(1, epoch=1)), ["sequence-gap"]),
        ((data(0, epoch=2), data(0, epoch=1)), ["epoch-regression"]),
        ((data(0, epoch=2), marker(epoch=1)), ["epoch-regression"]),
        ((data(0, epoch=2), data(0, epoch=1), data(1, epoch=2)), ["epoch-regression"]),  # a zombie
        ((data(0, epoch=9), data(3, epoch=1), data(4, epoch=1), data(5, epoch=1)), ["epoch-regression"]),
        ((data(0, 3), data(1, missing=3)), ["sequence-duplicate"]),  # compaction changes no order
    ],
)
def test_a_sequence_gap_is_found_once(events: tuple[ProducerEvent, ...], kinds: list[str]) -> None:
    assert found(*events) == kinds


def test_records_before_the_log_start_are_not_verified() -> None:
    assert found(data(0, 3, offset=10), data(9, offset=20), log_start=15) == []
    assert found(data(0, 3, offset=10), data(9, offset=20), log_start=12) == ["sequence-gap"]


def in_segments(*segments: list[ProducerEvent], missing: tuple[int, ...] = ()) -> list[tuple[str, int]]:
    """Return what is found if the events lie in segments, each judged for itself first: kind and offset."""
    states: dict[int, ProducerState] = {}
    problems = set()
    total = 0
    for number, events in enumerate(segments):
        check = ProducerCheck()
        problems |= {check.apply_and_check_event(7, event) for event in events}
        total += missing[number] if missing else 0
        problems |= {*check_first_events_of_segment(states, check, total, 0)}
    return sorted((problem.kind, problem.offset) for problem in problems if problem is not None)


def test_a_sequence_gap_between_segments_is_found() -> None:
    assert in_segments([data(0, 3)], [data(3, offset=3)], [data(4, offset=4)]) == []
    assert in_segments([data(0, 3)], [data(4, offset=3)], [data(5, offset=4)]) == [("sequence-gap", 3)]
    assert in_segments([data(0, 3)], [marker(offset=3)], [data(4, offset=4)]) == [("sequence-gap", 4)]
    assert in_segments([data(0, 3, epoch=1)], [], [data(0, offset=5)]) == [("epoch-regression", 5)]
    assert in_segments([data(0)], [marker(offset=1), marker(offset=2), data(9, offset=3)]) == [("sequence-gap", 3)]


def test_missing_segments_excuse_sequence_gaps() -> None:
    assert in_segments([data(0, 3)], [data(9, offset=9)], missing=(0, 6)) == []
    assert in_segments([data(0, 3)], [data(9, offset=9)], missing=(0, 0)) == [("sequence-gap", 9)]


def test_the_check_keeps_little_state_of_a_segment_with_many_markers() -> None:
    check = ProducerCheck()
    for offset in range(1000):
        check.apply_and_check_event(7, marker(offset=offset))
    assert len(check.heads[7]) == 2
    assert in_segments([data(0)], [marker(offset=n) for n in range(1, 9)], [data(1, offset=9)]) == []
