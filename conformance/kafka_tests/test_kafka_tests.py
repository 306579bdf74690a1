"""Apache Kafka's own integration tests end as `expected.txt` says, a section of `classes.txt` each."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.kafka_tests import running
from conformance.kafka_tests.running import Expected, Outcome, Section, selectors, unexpected

REPORTS = running.HERE / "target" / "reports"


@pytest.mark.timeout(running.RUN_TIMEOUT_S)
@pytest.mark.parametrize(
    "section",
    [
        pytest.param(section, id=section.name, marks=() if section.is_for_ci else pytest.mark.thorough)
        for section in running.sections()
    ],
)
def test_apache_kafkas_own_tests_end_as_expected(section: Section, against: str, tmp_path: Path) -> None:
    outcomes = running.run(tmp_path / "run", selectors(section.tests), against)
    known = running.expected() if against == "minibroker" else {}
    failed = [test for test in unexpected(outcomes, known) if outcomes[test].state == "failed"]
    if failed:  # once more, alone: other programs share the machine, and tests have timers of their own
        outcomes |= running.run(tmp_path / "again", selectors(failed), against)
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{section.name}-{against}.txt").write_text(running.table(outcomes) + "\n")
    assert unexpected(outcomes, known) == {}


PASSED, FAILED, SKIPPED = Outcome("passed", "", 0), Outcome("failed", "5 is not 6", 0), Outcome("skipped", "needs x", 0)
INSIDE = Expected("inside", "a meter")


@pytest.mark.parametrize("outcome", [FAILED, SKIPPED])
def test_each_failing_test_of_kafka_has_a_row_with_its_reason(outcome: Outcome) -> None:
    assert unexpected({"a.B#c()": outcome}, {}) == {"a.B#c()": outcome.why}
    assert unexpected({"a.B#c()": outcome}, {"a.B#c()": INSIDE}) == {}


def test_a_reason_row_with_a_star_matches_all_tests_with_its_prefix() -> None:
    assert unexpected({"a.B#c()[1]": FAILED, "a.B#c()[2]": SKIPPED}, {"a.B#c()*": INSIDE}) == {}
    assert unexpected({"a.B#c()[1]": FAILED, "a.B#d()": PASSED}, {"a.B#*": INSIDE}).keys() == {"a.B#d()"}


def test_a_reason_row_for_a_passing_or_unknown_test_is_reported() -> None:
    assert unexpected({"a.B#c()": PASSED}, {"a.B#c()": INSIDE}).keys() == {"a.B#c()"}
    assert unexpected({"a.B#c()": PASSED}, {"a.B#d()*": INSIDE, "a.C#c()": INSIDE}).keys() == {"a.B#d()*"}


def test_tests_are_selected_by_class_or_method_prefix() -> None:
    classes = ["--select-class=a.B", "--select-class=a.C"]
    assert selectors(["a.B", "a.C"]) == classes
    assert selectors(["a.B", "a.C#d*"]) == [r"--include-methodname=^(a\.B\#.*|a\.C\#d.*)$", *classes]
    assert selectors(["a.C#d()[2]", "a.C#d()[1]"]) == [r"--include-methodname=^(a\.C\#d)$", classes[1]]
