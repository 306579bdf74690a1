"""The limit for log lines that clients cause: floods are counted, and what is rare is written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from minibroker.broker.monitoring.line_limit import LINES, limit_log_lines
from tests.broker.manual_clock import ManualClock

log = logging.getLogger("minibroker.produce")


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> Iterator[ManualClock]:
    made = ManualClock()
    with caplog.at_level(logging.INFO), limit_log_lines(made):
        yield made


def refuse(count: int, code: str = "CORRUPT_MESSAGE") -> None:
    for number in range(count):
        log.info("Produce from %s refused: %s", number, code, extra={"code": code})


def test_log_lines_up_to_the_limit_per_second_are_logged_and_the_others_counted(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(LINES + 100_000)
    assert len(caplog.records) == LINES
    clock.advance(1000)
    assert len(caplog.records) == LINES + 1
    last = caplog.records[-1]
    assert last.message == (
        "lines left out within a second: 100000 of the kind 'Produce from ... refused: ...' for CORRUPT_MESSAGE"
    )
    assert (last.levelno, last.name, last.left_out) == (logging.INFO, "minibroker.produce", 100_000)  # type: ignore[attr-defined]


def test_no_number_of_suppressed_lines_is_logged_below_the_limit(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(LINES)
    clock.advance(10_000)
    assert len(caplog.records) == LINES


def test_each_second_has_its_own_limit_of_log_lines_even_without_a_timer(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(LINES + 5)
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1000.0)  # as at a start, which is one turn of the loop
    refuse(LINES + 7)
    lines = [record.message for record in caplog.records]
    assert len(lines) == 2 * LINES + 1
    assert lines[LINES].startswith("lines left out within a second: 5 of the kind")


def test_other_log_lines_are_not_limited_during_a_flood_of_one_kind(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(1000)
    refuse(1, "UNKNOWN_TOPIC_OR_PARTITION")
    log.warning("something else")
    logging.getLogger("minibroker.groups").info("Produce from %s refused: %s", 1, "CORRUPT_MESSAGE")
    assert len(caplog.records) == LINES + 3


def test_critical_log_lines_and_those_of_the_storage_are_not_limited(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        log.critical("the groups are not served")
        logging.getLogger("minibroker.storage").info("a file is damaged")
    assert len(caplog.records) == 200


def test_log_lines_of_other_threads_are_not_limited(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(target=refuse, args=(100,))
    thread.start()
    thread.join()
    assert len(caplog.records) == 100


def test_the_number_of_suppressed_lines_is_logged_when_the_limit_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with limit_log_lines(ManualClock()):
            refuse(LINES + 3)
        assert "lines left out within a second: 3 of" in caplog.records[-1].message
        refuse(100)
    assert len(caplog.records) == LINES + 101
