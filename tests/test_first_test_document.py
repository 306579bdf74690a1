"""The program and the tests of docs/first-test.md pass as the page says; the other pages have those of `examples/`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import blocks_of
from tests.running import PATIENCE_S
from tests.test_readme import README, environment

DOCUMENT = README.parent / "docs" / "first-test.md"
MADE = {"go.mod", "go.sum", "package.json", "package-lock.json", "node_modules", "target"}  # by the pages' commands


@pytest.mark.parametrize(("page", "project"), [("go", "go"), ("node", "node"), ("junit", "spring-boot")])
def test_the_pages_for_other_languages_contain_the_example_files(page: str, project: str) -> None:
    """Those are run by conformance/test_examples.py, and the pages by conformance/test_first_pages.py."""
    written = {block.file: block.text for block in blocks_of((DOCUMENT.parent / f"first-test-{page}.md").read_text())}
    folder = README.parent / "examples" / project
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != "README.md"]
    own = [file for file in files if file.parts[0] not in MADE]
    assert {name: text for name, text in written.items() if name} == {
        str(file): (folder / file).read_text() for file in own
    }


def test_the_tests_of_the_first_test_page_pass(tmp_path: Path) -> None:
    blocks = list(blocks_of(DOCUMENT.read_text()))
    (output,) = (block.text for block in blocks if block.kind == "text")
    for block in blocks:
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=tmp_path, env=environment(), timeout=PATIENCE_S, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.sub(r" in [0-9.]+s", "", run.stdout).rstrip() == output.rstrip()
