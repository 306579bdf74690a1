"""What docs/ci.md has its reader do works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.running import PATIENCE_S
from tests.test_readme import FENCED, README, environment, printed

DOCUMENT = README.parent / "docs" / "ci.md"


def blocks(kind: str) -> list[str]:
    return [found["text"] for found in FENCED.finditer(DOCUMENT.read_text()) if found["kind"] == kind]


def test_the_steps_of_the_ci_page_print_the_documented_output(tmp_path: Path) -> None:
    (program,), (output,) = blocks("sh"), blocks("text")
    assert printed("sh", program.replace(" --bootstrap-server $KAFKA", ""), "$KAFKA", tmp_path) == output


def test_the_documented_wait_script_prints_why_the_broker_cannot_start(tmp_path: Path) -> None:
    (program,) = blocks("sh")
    refused = program.replace("PLAINTEXT://127.0.0.1:0", "nowhere")
    done = subprocess.run(
        ["sh", "-c", refused], cwd=tmp_path, env=environment(), timeout=PATIENCE_S, capture_output=True
    )
    assert done.returncode == 1 and b"'nowhere'" in done.stdout


def test_the_recipe_of_the_ci_page_passes(tmp_path: Path) -> None:
    (recipe,) = blocks("python")
    (tmp_path / "test_recipe.py").write_text(recipe)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), timeout=PATIENCE_S, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
