"""Runs the suites that other clients' authors have for a real broker, unchanged, against minibroker or Apache Kafka.

Each comes by name and version from a package registry into `target`. `expected.txt` names the tests that are not
expected to pass, as for Apache Kafka's own (`kafka_tests/running.py`); the tables are in `target/reports`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from conformance.kafka_tests import running
from conformance.kafka_tests.running import Outcome

HERE = Path(__file__).parent
KINDS = ("machine", "design", "kafka", "fault")
GO_RESULT = re.compile(r"\s*--- (?P<state>PASS|FAIL|SKIP): (?P<name>\S+) \((?P<seconds>[\d.]+)s\)")
STATES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def of_go(suite: str, output: str) -> dict[str, Outcome]:
    """Return how the tests ended that `go test -v` printed; the parts of tests are tests of their own."""
    results = filter(None, map(GO_RESULT.match, output.splitlines()))
    return {
        f"{suite}#{result['name']}": Outcome(STATES[result["state"]], "", float(result["seconds"]))
        for result in results
    }


def finish(run: str, outcomes: Mapping[str, Outcome], against: str) -> None:
    """Write the table, and check that all tests ended as expected. Raises AssertionError."""
    reports = HERE / "target" / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"{run}-{against}.txt").write_text(running.table(outcomes) + "\n")
    known = running.expected(HERE / "expected.txt", KINDS) if against == "minibroker" else {}
    assert outcomes, "no test ran"
    assert running.unexpected(outcomes, known) == {}
