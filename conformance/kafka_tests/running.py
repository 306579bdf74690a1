"""Runs Apache Kafka's own compiled integration tests, unchanged, with minibroker as the broker.

The tests start brokers in their own JVM, by `KafkaClusterTestKit`, `EmbeddedKafkaCluster` or `QuorumTestHarness`. All
three end in three classes: `SharedServer`, `ControllerServer`, `BrokerServer`. A Java agent (`src/harness/Agent.java`)
changes these while they are loaded: what starts, stops or shows the inside of a server goes to `Bridge`, and a cluster
is one process of `minibroker serve` (`Cluster`). What no client can see aborts the test, which says what it wanted
(`Internals`).

`classes.txt` has the classes in sections, each of which is one JVM. `expected.txt` names every test that is not
expected to pass, whether it fails or is skipped. What Kafka itself has disabled is no test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from conformance import builds

HERE = Path(__file__).parent
EMULATED = "4.3"  # the release that the tests are of
TEST_TIMEOUT_S = 120
RUN_TIMEOUT_S = 3600
OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.util.stream", "java.net")
SECTION = re.compile(r"\[(?P<name>.+)\](?P<ci> ci)?")
WANTED = re.compile(r"needs (?P<what>[^;|\n]+)")
KINDS = ("inside", "design", "java plugin", "fault")


class Section(NamedTuple):
    """What runs in one JVM: classes, or some of their methods. `is_for_ci` is whether it does without `--thorough`."""

    name: str
    is_for_ci: bool
    tests: tuple[str, ...]


class Outcome(NamedTuple):
    """How a test ended: passed, failed, skipped by the harness or disabled by Kafka; and the first line of why."""

    state: str
    why: str
    seconds: float


class Expected(NamedTuple):
    """A test that is not expected to pass: one of `KINDS`, and the reason."""

    kind: str
    reason: str


def sections() -> list[Section]:
    """Return the sections of `classes.txt`."""
    found: list[Section] = []
    for line in _lines(HERE / "classes.txt"):
        head = SECTION.fullmatch(line)
        if head is None:
            found[-1] = found[-1]._replace(tests=(*found[-1].tests, line))
        else:
            found.append(Section(head["name"], head["ci"] is not None, ()))
    return found


def expected(file: Path = HERE / "expected.txt", kinds: Sequence[str] = KINDS) -> dict[str, Expected]:
    """Return the rows of `expected.txt`, by class and name. Raises ValueError for a line that is not understood.

    One that ends with `*` is for every test that begins so.
    """
    found: dict[str, Expected] = {}
    for line in _lines(file):
        kind, test, reason = re.split(r"\s{2,}", line, maxsplit=2)
        if kind not in kinds or test in found:
            raise ValueError(f"{file.name}: {line}")
        found[test] = Expected(kind, reason)
    return found


def _lines(file: Path) -> list[str]:
    return [line for line in map(str.strip, file.read_text().splitlines()) if line and not line.startswith("#")]


def run(folder: Path, selectors: Sequence[str], against: str) -> dict[str, Outcome]:
    """Run what JUnit's console launcher is given by `selectors`, and return how each test ended, by class and name.

    `folder` gets the report, the JVM's output, and that of each minibroker. Raises RuntimeError if the JVM ends without
    a report.
    """
    work = folder / "work"
    work.mkdir(parents=True)
    with (folder / "output.txt").open("wb") as output:
        command = _command(folder, against) + ["--reports-dir", str(folder), *selectors]
        subprocess.run(command, cwd=work, stdout=output, stderr=subprocess.STDOUT, timeout=RUN_TIMEOUT_S)
    report = folder / "TEST-junit-jupiter.xml"
    if not report.exists():
        raise RuntimeError(f"JUnit wrote no report:\n{(folder / 'output.txt').read_text(errors='replace')[-4000:]}")
    shutil.rmtree(work, ignore_errors=True)
    cases = ElementTree.parse(report).getroot().iter("testcase")
    outcomes = {f"{case.get('classname')}#{case.get('name')}": _outcome(case) for case in cases}
    return {test: outcome for test, outcome in outcomes.items() if outcome.state != "disabled"}


def selectors(tests: Iterable[str]) -> list[str]:
    """Return the launcher's options that select classes, and methods as `class#method`, which may end with `*`.

    What a report adds to a method, its parameters, is ignored: it runs with all of them.
    """
    wanted = dict.fromkeys(re.sub(r"\(.*", "", test) for test in tests)
    classes = [f"--select-class={name}" for name in dict.fromkeys(map(_class, wanted))]
    if not any("#" in each for each in wanted):
        return classes
    methods = (each if "#" in each else f"{each}#*" for each in wanted)
    names = "|".join(re.escape(method).replace(r"\*", ".*") for method in methods)
    return [f"--include-methodname=^({names})$", *classes]


def _class(test: str) -> str:
    return test.partition("#")[0]


def _outcome(case: ElementTree.Element) -> Outcome:
    seconds = float(case.get("time", 0))
    for state, tags in (("failed", ("failure", "error")), ("skipped", ("skipped",))):
        for tag in tags:
            found = case.find(tag)
            if found is not None:
                text = found.get("message") or found.text or ""
                whole = f"{text}\n{found.text or ''}"
                wanted = WANTED.search(whole) if "TestAbortedException" in whole or state == "skipped" else None
                if wanted is not None:
                    return Outcome("skipped", f"needs {wanted['what']}", seconds)
                ended = "disabled" if state == "skipped" else state
                return Outcome(ended, text.strip().partition("\n")[0][:300], seconds)
    return Outcome("passed", "", seconds)


def _command(folder: Path, against: str) -> list[str]:
    target = builds.kafka_tests()
    (mockito,) = (target / "jars").glob("mockito-core-*.jar")
    harness = target / "harness.jar"
    jars = [*sorted((target / "jars").glob("*.jar")), *sorted((target / "tests").glob("*.jar"))]
    agents = [f"-javaagent:{mockito}"]
    if against == "minibroker":
        agents, jars = [f"-javaagent:{harness}", *agents], [harness, *jars]
    properties = {
        "log4j2.configurationFile": f"file:{HERE / 'resources' / 'harness-log4j2.properties'}",
        "minibroker.python": sys.executable,
        "minibroker.launcher": str(HERE / "launcher.py"),
        "minibroker.logs": str(folder / "brokers"),
        "minibroker.arguments": f"--emulate {EMULATED}",
        "http.keepAlive": "false",
        "kafka.cluster.test.repeat": "1",
    }
    return [
        *builds.JAVA,
        "-Xmx1500m",
        *agents,
        *(f"-D{name}={value}" for name, value in properties.items()),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        "-classpath",
        os.pathsep.join(map(str, jars)),
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--disable-ansi-colors",
        "--details=testfeed",
        "--config=junit.jupiter.extensions.autodetection.enabled=true",
        f"--config=junit.jupiter.execution.timeout.testable.method.default={TEST_TIMEOUT_S} s",
    ]


def unexpected(outcomes: Mapping[str, Outcome], known: Mapping[str, Expected]) -> dict[str, str]:
    """Return what ended otherwise than expected, and rows of these classes that no test is of; with the reason each."""
    rows = {test: row_of(test, known) for test in outcomes}
    wrong = {}
    for test, outcome in outcomes.items():
        row = rows[test]
        if (outcome.state == "passed") == (row is not None):
            wrong[test] = f"passes, but is expected to be '{known[row].kind}'" if row else outcome.why
    ran = set(map(_class, outcomes))
    return wrong | {row: "is not a test" for row in known.keys() - set(rows.values()) if _class(row) in ran}


def row_of(test: str, known: Mapping[str, Expected]) -> str | None:
    """Return the row that a test belongs to, and its own rather than one for several."""
    if test in known:
        return test
    return next((row for row in known if row.endswith("*") and test.startswith(row[:-1])), None)


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return a line for each class: how many tests passed, were skipped and failed, and the seconds they took."""
    classes = dict.fromkeys(map(_class, outcomes))
    lines = []
    for name in classes:
        ended = [outcome for test, outcome in outcomes.items() if _class(test) == name]
        counts = "  ".join(f"{_count(ended, state):4} {state}" for state in ("passed", "skipped", "failed"))
        lines.append(f"{name:80} {counts} {sum(each.seconds for each in ended):8.1f} s")
    reasons = [
        f"    {test}: {outcome.state}: {outcome.why}" for test, outcome in outcomes.items() if outcome.state != "passed"
    ]
    return "\n".join([*lines, *reasons])


def _count(outcomes: Iterable[Outcome], state: str) -> int:
    return sum(outcome.state == state for outcome in outcomes)
