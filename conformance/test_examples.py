"""The projects of `examples/`, each installed from its registry: their own tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.clients import REPOSITORY
from tests.running import environment_for_broker

pytestmark = pytest.mark.minibroker_only
EXAMPLES = REPOSITORY / "examples"
IN_PYTHON = ("fastapi", "faststream", "faust", "quixstreams")
PATIENCE_S = 400  # an empty cache needs everything from the registries
MAVEN_TEST = ("mvn", "-q", "-B", "-DforkCount=0", "test")
REASON = "minibroker: --control needs a library that is missing"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
NOT_THEIRS = ("xdist", "asyncio", "timeout", "cacheprovider")  # plugins that are installed here, but not with them


def copied(name: str, directory: Path) -> Path:
    """Copy a project without what was built there; where it is now."""
    built = shutil.ignore_patterns("node_modules", "target", "__pycache__")
    return shutil.copytree(EXAMPLES / name, directory / name, ignore=built)


def run(directory: Path, *command: str, **environment: str) -> None:
    done = ended(directory, Path(sys.executable).parent, *command, **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


def ended(directory: Path, scripts: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with the programs of `scripts` before others."""
    own = environment_for_broker({"PATH": os.pathsep.join((str(scripts), os.environ["PATH"])), **environment})
    return subprocess.run(command, cwd=directory, env=own, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment with what the projects in Python need, and with this minibroker."""
    directory = tmp_path_factory.mktemp("python")
    run(directory, sys.executable, "-m", "venv", ".")
    programs = directory / "bin"
    run(directory, str(programs / "pip"), "install", "--quiet", "uv")
    needed = [word for name in IN_PYTHON for word in ("-r", str(EXAMPLES / name / "requirements.txt"))]
    run(directory, str(programs / "uv"), "pip", "install", "--quiet", "--python", str(programs / "python"), *needed)
    (own,) = (directory / "lib").glob("python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]  # what minibroker itself needs
    (own / "minibroker.pth").write_text("\n".join([str(REPOSITORY), *libraries]))
    return programs


def test_every_project_is_tested_and_has_a_page() -> None:
    projects = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert projects == {*IN_PYTHON, "go", "node", "spring-boot"}
    listed = (EXAMPLES / "README.md").read_text()
    for name in projects:
        assert (EXAMPLES / name / "README.md").is_file() and f"({name}/)" in listed


def test_the_python_example_passes(python: Path, tmp_path: Path) -> None:
    for name in IN_PYTHON:
        copied(name, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ("-q", "-p", "minibroker.testing.plugin", *(word for name in NOT_THEIRS for word in ("-p", f"no:{name}")))
    run(tmp_path, str(python / "python"), "-P", "-m", "pytest", *options, PYTHONDONTWRITEBYTECODE="1")


def test_the_go_example_passes(tmp_path: Path) -> None:
    run(copied("go", tmp_path), "go", "test", "./...")


def test_the_node_example_passes(tmp_path: Path) -> None:
    project = copied("node", tmp_path)
    run(project, "npm", "ci", "--no-audit", "--no-fund")
    run(project, "npm", "test", KAFKAJS_NO_PARTITIONER_WARNING="1")


def test_the_spring_boot_example_passes(tmp_path: Path) -> None:
    run(copied("spring-boot", tmp_path), *MAVEN_TEST, MAVEN_OPTS=QUICK_JAVA)


@pytest.mark.parametrize(
    ("project", "command"), [("go", ("go", "test", "./...")), ("node", ("npm", "test")), ("spring-boot", MAVEN_TEST)]
)
def test_a_broker_that_cannot_start_reports_the_reason(project: str, command: tuple[str, ...], tmp_path: Path) -> None:
    broker = tmp_path / "minibroker"
    broker.write_text(f"#!/bin/sh\necho '{REASON}' >&2\nexit 2\n")
    broker.chmod(0o755)
    directory = copied(project, tmp_path)
    if project == "node":
        run(directory, "npm", "ci", "--no-audit", "--no-fund")
    done = ended(directory, tmp_path, *command, MAVEN_OPTS=QUICK_JAVA)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and REASON in said and "the broker did not start; it says why on stderr" in said, said
