"""What docs/registry.md has its reader do prints what it says, and its tests pass."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.running import PATIENCE_S
from tests.test_readme import FENCED, PORT, README, environment, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "registry.md"
SHELL, AFTER = DOCUMENT.read_text().split("\n## In a test\n")
TESTS = AFTER.split("\n## In Spark\n")[0]
REGISTRY = "http://127.0.0.1:8081"


def test_the_steps_of_the_registry_page_print_the_documented_output(tmp_path: Path) -> None:
    (_, serve, announcement), *steps = steps_in(SHELL)
    with serving(serve.replace("8081", "0"), tmp_path, lines=2) as lines:
        address, url = (line.split()[-1] for line in lines.splitlines())
        assert lines == announcement.replace(f"127.0.0.1:{PORT}", address).replace(REGISTRY, url)
        for kind, code, output in steps:
            told = re.sub(r"minibroker schemas (\w+)", rf"minibroker schemas \1 --registry {url}", code)
            told = told.replace(REGISTRY, url)
            assert printed(kind, told, address, tmp_path).rstrip() == output.rstrip()


def test_the_documented_tests_of_the_registry_page_pass(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", exc_type=ImportError)
    for found in FENCED.finditer(TESTS):
        named = re.match(r"# (\S+)\n", found["text"])
        assert named is not None
        (tmp_path / named[1]).write_text(found["text"])
    run = subprocess.run(
        ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"],
        cwd=tmp_path,
        env=environment(),
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "4 passed" in run.stdout, run.stdout + run.stderr
