"""The site's page of commands has the whole help of each command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.pages.commands import PREAMBLE, help_texts
from tests.cli.conftest import Run, all_commands


def test_the_commands_page_has_every_command() -> None:
    # In a process of its own: click remembers the options of commands that other tests have run.
    command = [sys.executable, "-m", "docs.pages.commands"]
    root = Path(__file__).parents[2]
    page = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout
    assert page.startswith(PREAMBLE)
    sections = re.findall(r"^#{2,3} (minibroker.*)\n\n```text\nUsage: (.*)$", page, re.MULTILINE)
    assert [name for name, _ in sections] == [name for name, _ in help_texts()]
    assert [name for name, usage in sections if not f"{usage} ".startswith(f"{name} ")] == []
    assert {name for name, _ in all_commands()} <= {name for name, _ in sections}


def test_each_shown_output_is_what_the_command_prints(run: Run) -> None:
    for name, text in help_texts():
        printed = run(*name.split()[1:], "--help")
        assert printed.exit_code == 0
        assert without_breaks(text) == without_breaks(printed.stdout), name


def test_no_help_sentence_is_truncated() -> None:
    for name, text in help_texts():
        usage, *lines = text.splitlines()
        assert not [line for line in lines if line.endswith("...")], name


def without_breaks(text: str) -> str:
    """Return a text of any width without its blanks: the page is wider than a terminal."""
    return "".join(text.split())
