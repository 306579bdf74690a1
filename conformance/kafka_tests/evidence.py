"""Writes the tables of `docs/evidence.md` from the reports that the tests leave.

`python3 -m conformance.kafka_tests.evidence [CHECKOUT ...]`; each checkout has reports, by default this one. Of a class
in several reports the one with the most tests counts, then the newest. Classes of Kafka's without a report stay as the
page has them.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from conformance.kafka_tests import running
from conformance.kafka_tests.running import Expected
from conformance.suites import running as suites

ROOT = running.HERE.parents[1]
PAGE = ROOT / "docs" / "evidence.md"
# The part of the page, the folder with its reports and its `expected.txt`, and the kinds there
PARTS = (
    ("Apache Kafka's tests", Path("conformance", "kafka_tests"), running.KINDS),
    ("suites of clients", Path("conformance", "suites"), suites.KINDS),
)
ENDING = "-minibroker.txt"
COUNTS = re.compile(r"(?P<name>\S.*?)\s+(?P<passed>\d+) passed\s+(?P<skipped>\d+) skipped\s+(?P<failed>\d+) failed .*")
NOT_PASSED = re.compile(r" {4}(?P<test>\S.*?): (skipped|failed): (?P<why>.*)")
UNEXPLAINED = "unexplained"


class Class(NamedTuple):
    """How the tests of a class ended: their number, and why those that did not pass did not. `section` is the run's."""

    section: str
    date: str
    name: str
    tests: int
    not_passed: dict[str, str]


def classes_of(section: str, date: str, report: str) -> list[Class]:
    """Return the classes of a report, which is what `running.table` wrote."""
    found: dict[str, Class] = {}
    for line in report.splitlines():
        if counts := COUNTS.fullmatch(line):
            tests = sum(int(counts[state]) for state in ("passed", "skipped", "failed"))
            found[counts["name"]] = Class(section, date, counts["name"], tests, {})
        elif ended := NOT_PASSED.fullmatch(line):
            found[ended["test"].partition("#")[0]].not_passed[ended["test"]] = ended["why"]
    return list(found.values())


def merged(classes: Iterable[Class]) -> list[Class]:
    """Return each class once: as it has the most tests, then as it ended last."""
    best: dict[str, Class] = {}
    for each in classes:
        other = best.get(each.name)
        if other is None or (other.tests, other.date) < (each.tests, each.date):
            best[each.name] = each
    return list(best.values())


def tables(classes: Sequence[Class], known: Mapping[str, Expected], kinds: Sequence[str]) -> str:
    """Return three tables: of sections, of classes by name if there are more of them, and of what did not pass."""
    rows = {test: running.row_of(test, known) for each in classes for test in each.not_passed}
    kind_of = {test: UNEXPLAINED if row is None else known[row].kind for test, row in rows.items()}
    shown = [*kinds, *([UNEXPLAINED] if UNEXPLAINED in kind_of.values() else [])]
    sections: dict[str, list[Class]] = {}
    for each in sorted(classes):
        sections.setdefault(each.section, []).append(each)
    runs = [[name, max(each.date for each in own), *_figures(own, kind_of, shown)] for name, own in sections.items()]
    runs.append(["all", "", *_figures(classes, kind_of, shown)])
    parts = [_markdown(["run", "date", "tests", "passed", *shown], runs)]
    if len(classes) > len(sections):
        by_class = [[f"`{each.name}`", each.section, *_figures([each], kind_of, shown)] for each in sorted(classes)]
        parts.append(_markdown(["class", "run", "tests", "passed", *shown], by_class))
    return "\n\n".join([*parts, _reasons(classes, known, rows, shown)])


def _figures(classes: Iterable[Class], kind_of: Mapping[str, str], kinds: Iterable[str]) -> list[str]:
    classes = list(classes)
    tests = sum(each.tests for each in classes)
    counts = Counter(kind_of[test] for each in classes for test in each.not_passed)
    return [str(tests), str(tests - counts.total()), *(str(counts[kind] or "") for kind in kinds)]


def _reasons(
    classes: Iterable[Class], known: Mapping[str, Expected], rows: Mapping[str, str | None], kinds: Sequence[str]
) -> str:
    """Return the table of what did not pass: rows of `expected.txt`, and tests without one, in the order of kinds."""
    counts = Counter((rows[test] or test, rows[test], why) for each in classes for test, why in each.not_passed.items())
    found: Counter[tuple[str, str, str]] = Counter()
    for (test, row, why), count in counts.items():
        kind, reason = (UNEXPLAINED, why) if row is None else known[row]
        found[kind, test, reason] += count
    ordered = sorted(found.items(), key=lambda item: (kinds.index(item[0][0]), item[0][1]))
    return _markdown(
        ["kind", "not passed", "tests", "why"],
        [[kind, f"`{test}`", str(count), reason] for (kind, test, reason), count in ordered],
    )


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def kept(page: str) -> list[Class]:
    """Return the classes of a page's tables by class.

    Tests that did not pass are named after their row, and numbered: so they belong to it again, and are unexplained if
    there is no such row now.
    """
    dates = {row["run"]: row["date"] for row in _rows(page, "run", "date")}
    reasons = _rows(page, "kind", "not passed")
    found = []
    for row in _rows(page, "class", "run"):
        name = row["class"].strip("`")
        found.append(Class(row["run"], dates[row["run"]], name, int(row["tests"]), _not_passed(name, row, reasons)))
    return found


def _not_passed(name: str, counts: Mapping[str, str], reasons: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return why tests of a class did not pass. `counts` is how many of each kind; `reasons` is of all classes.

    A reason of this class alone says how many it is for; one of several classes is for what remains of its kind.
    """
    found: dict[str, str] = {}
    several = []
    left = Counter({kind: int(count) for kind, count in counts.items() if count.isdecimal()})
    for row in reasons:
        test, why = row["not passed"].strip("`"), row["why"]
        if test.startswith(f"{name}#"):
            numbers = range(1, int(row["tests"]) + 1)
            found |= {f"{test[:-1]} {number}": why for number in numbers} if test.endswith("*") else {test: why}
            left[row["kind"]] -= len(numbers)
        elif test.endswith("*") and name.startswith(test[:-1]):
            several.append((row["kind"], why))
    for kind, why in several:
        found |= {f"{name}#{kind} {number}": why for number in range(1, left.pop(kind, 0) + 1)}
    return found


def _rows(page: str, *head: str) -> list[dict[str, str]]:
    """Return the rows of the table whose head begins so, by column; none without such a table."""
    lines = iter(page.splitlines())
    names = next((line for line in lines if line.startswith(f"| {' | '.join(head)} |")), "")
    next(lines, "")
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [dict(zip(_cells(names), _cells(line), strict=True)) for line in rows]


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def replaced(page: str, part: str, text: str) -> str:
    """Return the page with the text between the two comments that name the part. Raises ValueError without them."""
    begin, end = _part(page, part)
    return f"{page[:begin]}\n{text}\n\n{page[end:]}"


def _part(page: str, part: str) -> tuple[int, int]:
    name = re.escape(part)
    found = re.search(rf"<!-- {name}: [^>]*-->\n(.*?)<!-- end of {name} -->", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no part {part!r}")
    return found.span(1)


def reported(folder: Path) -> list[Class]:
    """Return the classes of all reports in the folder `target/reports` of a folder; none if there is no such folder."""
    found = []
    for file in sorted(folder.glob(f"target/reports/*{ENDING}")):
        date = datetime.fromtimestamp(file.stat().st_mtime, UTC).date().isoformat()
        found += classes_of(file.name.removesuffix(ENDING), date, file.read_text())
    return found


def main(checkouts: Sequence[Path]) -> None:
    page = PAGE.read_text()
    for part, folder, kinds in PARTS:
        classes = [each for checkout in checkouts for each in reported(checkout / folder)]
        if not classes:
            continue
        classes = merged([*classes, *kept(page[slice(*_part(page, part))])])
        known = running.expected(ROOT / folder / "expected.txt", kinds)
        page = replaced(page, part, tables(classes, known, kinds))
    PAGE.write_text(page)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]] or [ROOT])
