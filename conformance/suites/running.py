"""Runs the suites that other clients' authors have for a real broker, unchanged, against minibroker or Apache Kafka.

Each comes by name and version from a package registry into `target`. `expected.txt` names the tests that are not
expected to pass, as for Apache Kafka's own (`kafka_tests/running.py`); the tables are in `target/reports`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from conformance.kafka_tests import running
from conformance.kafka_tests.running import Outcome

HERE = Path(__file__).parent
KINDS = ("machine", "design", "kafka", "fault")
GO_RESULT = re.compile(r"\s*--- (?P<state>PASS|FAIL|SKIP): (?P<name>\S+) \((?P<seconds>[\d.]+)s\)")
ENDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}
STATES = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def go_module(name: str, version: str) -> Path:
    """Return a folder with the module's source, which a test run may write to."""
    folder = HERE / "target" / f"{name.rpartition('/')[2]}-{version}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        fetching = ["go", "mod", "download", "-json", f"{name}@v{version}"]
        found = json.loads(subprocess.run(fetching, cwd=folder.parent, capture_output=True, check=True).stdout)
        subprocess.run(["cp", "-r", "--no-preserve=mode", found["Dir"], str(folder)], check=True)
    return folder


def of_go(suite: str, output: str) -> dict[str, Outcome]:
    """Return how the tests ended that `go test -v` printed; the parts of tests are tests of their own."""
    results = filter(None, map(GO_RESULT.match, output.splitlines()))
    return {
        f"{suite}#{result['name']}": Outcome(STATES[result["state"]], "", float(result["seconds"]))
        for result in results
    }


def of_junit(suite: str, report: Path) -> dict[str, Outcome]:
    """Return how the tests of a report ended that pytest wrote."""
    outcomes = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{suite}#{case.get('classname')}.{case.get('name')}"
        ends = [(state, found) for tag, state in ENDS.items() if (found := case.find(tag)) is not None]
        state, why = (ends[0][0], ends[0][1].get("message") or "") if ends else ("passed", "")
        outcomes[name] = Outcome(state, why.partition("\n")[0][:300], float(case.get("time", 0)))
    return outcomes


def finish(run: str, outcomes: Mapping[str, Outcome], against: str) -> None:
    """Write the table, and check that all tests ended as expected. Raises AssertionError."""
    reports = HERE / "target" / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    (reports / f"{run}-{against}.txt").write_text(running.table(outcomes) + "\n")
    known = running.expected(HERE / "expected.txt", KINDS) if against == "minibroker" else {}
    assert outcomes, "no test ran"
    assert running.unexpected(outcomes, known) == {}
