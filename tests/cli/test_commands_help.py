"""docs/commands.md is up to date, and has the whole help of each command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from minibroker.cli.commands_help import help_texts

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"


def test_the_document_is_made_from_the_commands() -> None:
    remedy = "make it anew: python3 -m minibroker.cli.commands_help > docs/commands.md"
    # In a process of its own: click remembers the options of commands that other tests have run.
    command = [sys.executable, "-m", "minibroker.cli.commands_help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert DOCUMENT.read_text() == run.stdout, remedy


def test_no_sentence_is_cut_off() -> None:
    for name, text in help_texts():
        usage, *lines = text.splitlines()
        assert not [line for line in lines if line.endswith("...")], name
