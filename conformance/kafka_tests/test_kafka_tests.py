"""Apache Kafka's own integration tests end as `expected.txt` says, a section of `classes.txt` each."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.kafka_tests import running
from conformance.kafka_tests.running import Section, of_classes, of_methods

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
    outcomes = running.run(tmp_path / "run", of_classes(section.classes), against)
    known = running.expected() if against == "minibroker" else {}
    failed = [test for test in running.unexpected(outcomes, known) if outcomes[test].state == "failed"]
    if failed:  # once more, alone: other programs share the machine, and tests have timers of their own
        outcomes |= running.run(tmp_path / "again", of_methods(failed), against)
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{section.name}-{against}.txt").write_text(running.table(outcomes) + "\n")
    assert running.unexpected(outcomes, known) == {}
