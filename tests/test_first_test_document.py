"""The program and the tests of docs/first-test.md pass as the page says; the other pages have those of `examples/`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import PATIENCE_S
from tests.test_readme import FENCED, README, environment

DOCUMENT = README.parent / "docs" / "first-test.md"
FILE = re.compile(r"In\s`(?P<name>\w+\.py)`:\n\n$")

ANY_FILE = re.compile(r"In `(?P<name>[\w.]+)`:\n\n$")


@pytest.mark.parametrize(
    ("page", "project", "count"), [("go", "go", 3), ("node", "node", 3), ("junit", "spring-boot", 3)]
)
def test_the_pages_for_other_languages_have_the_files_of_the_examples(page: str, project: str, count: int) -> None:
    """Those are run by conformance/test_examples.py."""
    text = (README.parent / "docs" / f"first-test-{page}.md").read_text()
    found = list(FENCED.finditer(text))
    assert len(found) == count
    for block in found:
        named = ANY_FILE.search(text[: block.start()])
        assert named is not None
        (file,) = (README.parent / "examples" / project).rglob(named["name"])
        assert block["text"] == file.read_text()


def test_the_tests_pass(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    (output,) = (found["text"] for found in FENCED.finditer(text) if found["kind"] == "text")
    for found in FENCED.finditer(text):
        if found["kind"] == "python":
            named = FILE.search(text[: found.start()])
            assert named is not None
            (tmp_path / named["name"]).write_text(found["text"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(command, cwd=tmp_path, env=environment(), timeout=PATIENCE_S, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.sub(r" in [0-9.]+s", "", run.stdout).rstrip() == output.rstrip()
