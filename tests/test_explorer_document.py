"""What docs/explorer.md has its reader do prints what it says, and its filters are understood."""

from __future__ import annotations

import re
from pathlib import Path

from minibroker.explorer.frames_view import list_filter_words
from tests.test_readme import README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "explorer.md"
PORTS = re.compile(r"127\.0\.0\.1:\d+")


def test_the_steps_of_the_explorer_page_print_the_documented_output(tmp_path: Path) -> None:
    (_, serve, announcement), (kind, code, output) = steps_in(DOCUMENT.read_text())
    with serving(serve.replace("9080", "0"), tmp_path, lines=3) as lines:
        assert PORTS.sub("HERE", lines) == PORTS.sub("HERE", announcement)
    assert printed(kind, code, "", tmp_path) == output


def test_documented_filters_have_existing_parameters() -> None:
    examples = re.findall(r"^\| `(.+?)` \|", DOCUMENT.read_text(), re.MULTILINE)
    words = set(re.findall(r"([a-z_]+)!?=", " ".join(examples)))
    assert words and words <= list_filter_words().keys()
