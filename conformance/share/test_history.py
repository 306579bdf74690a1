"""The judge of the torture test finds what a broker might do wrong, and nothing else."""

from __future__ import annotations

import pytest

from conformance.share.history import Delivery, End, History, Letter, Life, Written

LOCK_S, LIMIT = 1.0, 2
FIRST, SECOND, KILLED = Life(0), Life(0), Life(1)
DUE = Written({0}, set())
LETTER, OTHER = Letter((0, 0), 1, b"v"), Letter((0, 1), 1, b"v")


def delivered(
    life: Life, count: int, at: float, end: End = End.NONE, end_at: float = 0.0, *, is_sure: bool = True
) -> Delivery:
    made = Delivery(life, count, at, at + 0.1)
    made.end, made.end_at, made.is_sure = end, end_at, is_sure
    return made


def faults(*told: Delivery, written: Written = DUE, unseen: tuple[float, ...] = ()) -> list[str]:
    history = History(LOCK_S, LIMIT)
    history.unseen[0].extend(unseen)
    if told:
        history.deliveries[0, 0].extend(told)
    return [fault.split(": ")[1] for fault in history.faults([written])]


ACCEPTED = delivered(SECOND, 2, 0.6, End.ACCEPTED, 0.7)


@pytest.mark.parametrize(
    "told",
    [
        [delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.2)],
        [delivered(FIRST, 1, 0.0, End.RELEASED, 0.5), ACCEPTED],
        [delivered(FIRST, 1, 0.0), delivered(SECOND, 2, 0.95, End.REJECTED, 1.2)],
        [delivered(FIRST, 1, 0.0), delivered(SECOND, 2, 1.0)],
        [delivered(FIRST, 1, 0.0), delivered(KILLED, 1, 0.2, End.ACCEPTED, 0.3)],
        [delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1, is_sure=False), delivered(KILLED, 1, 0.2, End.ACCEPTED, 0.3)],
    ],
    ids=["accepted", "released", "lock ended", "limit", "killed", "killed before the answer"],
)
def test_the_history_checker_accepts_allowed_deliveries(told: list[Delivery]) -> None:
    assert faults(*told) == []


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ([], "never delivered"),
        ([delivered(FIRST, 2, 0.0, End.ACCEPTED, 0.1)], "first delivered as number 2"),
        ([delivered(FIRST, 1, 0.0, End.RELEASED, 0.1)], "lost"),
        (
            [delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1), delivered(SECOND, 2, 1.5)],
            "delivered although it was accepted",
        ),
        ([delivered(FIRST, 1, 0.0), ACCEPTED], "delivered while another member held it"),
        ([delivered(FIRST, 1, 0.0), delivered(SECOND, 1, 2.0, End.ACCEPTED, 2.1)], "delivery 1 follows 1"),
        (
            [delivered(FIRST, 1, 0.0, End.RELEASED, 0.1), delivered(KILLED, 1, 0.2, End.ACCEPTED, 0.3)],
            "delivery 1 follows 1, of which 1 or more were kept",
        ),
        (
            [delivered(FIRST, 1, 0.0), delivered(FIRST, 2, 1.0), delivered(FIRST, 3, 2.0, End.ACCEPTED, 2.1)],
            "delivered more often than the limit allows",
        ),
    ],
)
def test_the_history_checker_reports_forbidden_deliveries(told: list[Delivery], fault: str) -> None:
    assert faults(*told) == [fault]


def test_the_history_checker_accepts_a_delivery_that_no_client_saw() -> None:
    told = delivered(FIRST, 2, 0.5, End.ACCEPTED, 0.6)
    assert faults(told, unseen=(0.2,)) == []
    assert faults(told, unseen=(0.9,)) == ["first delivered as number 2"]


@pytest.mark.parametrize(
    ("told", "letters", "fault"),
    [
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [LETTER], None),
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [LETTER, LETTER], None),
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [], "record (0, 0) has no dead letter"),
        (delivered(FIRST, 2, 0.0, End.RELEASED, 0.1), [], "record (0, 0) has no dead letter"),
        (delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1), [], None),
        (delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1, is_sure=False), [LETTER], None),
        (delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1), [LETTER], "record (0, 0) has a dead letter"),
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [LETTER._replace(value=b"w")], f"{LETTER._replace(value=b'w')}"),
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [LETTER._replace(count=3)], f"{LETTER._replace(count=3)}"),
        (delivered(FIRST, 1, 0.0, End.REJECTED, 0.1), [LETTER, OTHER], f"{OTHER} is of a record"),
    ],
)
def test_the_history_checker_requires_dead_letters_of_archived_records_only(
    told: Delivery, letters: list[Letter], fault: str | None
) -> None:
    history = History(LOCK_S, LIMIT)
    history.deliveries[0, 0].append(told)
    found = list(history.faults_of_letters(letters, {(0, 0): b"v"}))
    assert [each[: len(fault or "")] for each in found] == ([] if fault is None else [fault])


def test_the_history_checker_reports_a_delivered_aborted_record() -> None:
    aborted = Written(set(), {0})
    assert faults(written=aborted) == []
    told = delivered(FIRST, 1, 0.0, End.ACCEPTED, 0.1)
    assert faults(told, written=aborted) == ["delivered although it was aborted"]
