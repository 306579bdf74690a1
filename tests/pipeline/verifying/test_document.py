"""docs/pipeline.md has a row for each kind of finding and each check, and no other."""

from __future__ import annotations

from pathlib import Path

from minibroker.pipeline.verifying.findings import CHECKS, KINDS

DOCUMENT = Path(__file__).parents[3] / "docs" / "pipeline.md"


def table(head: str) -> list[str]:
    """The rows of the table with this head."""
    lines = DOCUMENT.read_text().splitlines()
    rows = lines[lines.index(head) + 2 :]
    return rows[: next(number for number, row in enumerate(rows) if not row.startswith("|"))]


def test_exactly_the_existing_kinds_of_findings_are_documented() -> None:
    rows = [f"| `{kind.code}` | {kind.check} | {kind.severity} | {kind.meaning} |" for kind in KINDS]
    assert table("| kind | check | severity | is |") == rows


def test_exactly_the_existing_checks_are_documented() -> None:
    assert table("| check | looks at |") == [f"| `{name}` | {meaning} |" for name, meaning in CHECKS.items()]
    assert {kind.check for kind in KINDS} == set(CHECKS)
