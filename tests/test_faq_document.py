"""What docs/faq.md has its reader do prints what it says, and it names fixtures, commands and settings that exist."""

from __future__ import annotations

import re
from pathlib import Path

from minibroker.broker.configs.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
from minibroker.cli.main import COMMANDS
from tests.test_readme import FENCED, PORT, README, printed, serving
from tests.test_testing_document import pytest_in

TEXT = (README.parent / "docs" / "faq.md").read_text()


def blocks(kind: str) -> list[str]:
    return [found["text"] for found in FENCED.finditer(TEXT) if found["kind"] == kind]


def test_the_steps_of_the_faq_page_print_the_documented_output(tmp_path: Path) -> None:
    (serve, step), (announcement, output) = blocks("sh"), blocks("text")
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        assert printed("sh", step, address, tmp_path) == output


def test_the_recipe_of_the_faq_page_passes(tmp_path: Path) -> None:
    (recipe,) = blocks("python")
    (tmp_path / "test_recipe.py").write_text(recipe)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_documented_commands_and_settings_exist() -> None:
    assert {"dump", "show"} <= set(re.findall(r"`minibroker ([a-z]+)", TEXT)) <= set(COMMANDS)
    settings = set(re.findall(r"`([a-z]+(?:\.[a-z]+)+)`", TEXT))
    assert {"retention.ms"} <= settings <= BROKER_SETTINGS.keys() | TOPIC_SETTINGS.keys()
