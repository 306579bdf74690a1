"""What docs/pipeline.md says of tables and options is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from minibroker.pipeline.options import NAMES
from minibroker.pipeline.schemas import BATCHES, RECORDS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()


def first_cells(heading: str) -> list[str]:
    """The words in code in the first column of a section's table."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def test_every_option_is_told_and_no_other() -> None:
    assert sorted(first_cells("Options")) == sorted([*NAMES, "kafka.*"])


def test_every_column_is_told_and_no_other() -> None:
    assert first_cells("The records") == RECORDS.names
    assert first_cells("The batches") == BATCHES.names
