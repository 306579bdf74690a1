"""What docs/share-groups.md shows in Python works as it stands; conformance/share runs what it shows in Java."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.test_readme import README
from tests.test_testing_document import RECIPES_PATIENCE_S, blocks, pytest_in, run

PAGE = README.parent / "docs" / "share-groups.md"


def test_the_program_of_the_share_groups_page_prints_the_documented_output(tmp_path: Path) -> None:
    program, output, *_ = blocks(PAGE.read_text())
    done = run(tmp_path, sys.executable, "-c", program.text)
    assert (program.kind, output.kind) == ("python", "text")
    assert done.stdout == output.text, done.stderr


@pytest.mark.timeout(RECIPES_PATIENCE_S + 60)
def test_the_documented_tests_of_the_share_groups_page_pass(tmp_path: Path) -> None:
    *_, recipe = blocks(PAGE.read_text())
    assert recipe.is_test
    (tmp_path / "test_workers.py").write_text(recipe.text)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
