"""The projects of `examples/`, each installed from its registry: their own tests pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.projects import EXAMPLES, MAVEN_TEST, REPOSITORY, copied, ended, install_kit_for_java, run

pytestmark = pytest.mark.minibroker_only
IN_PYTHON = ("fastapi", "faststream", "faust", "quixstreams")
REASON = "minibroker: --control needs a library that is missing"
NOT_THEIRS = ("xdist", "asyncio", "timeout", "cacheprovider")  # plugins that are installed here, but not with them


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


def test_the_nodejs_example_passes(tmp_path: Path) -> None:
    project = copied("node", tmp_path)
    run(project, "npm", "ci", "--no-audit", "--no-fund")
    run(project, "npm", "test", KAFKAJS_NO_PARTITIONER_WARNING="1")


def test_the_spring_boot_example_passes(tmp_path: Path) -> None:
    install_kit_for_java()
    run(copied("spring-boot", tmp_path), *MAVEN_TEST)


@pytest.mark.parametrize(
    ("project", "command"), [("go", ("go", "test", "./...")), ("node", ("npm", "test")), ("spring-boot", MAVEN_TEST)]
)
def test_a_broker_that_cannot_start_reports_the_reason(project: str, command: tuple[str, ...], tmp_path: Path) -> None:
    broker = tmp_path / "minibroker"
    broker.write_text(f"#!/bin/sh\necho '{REASON}' >&2\nexit 2\n")
    broker.chmod(0o755)
    directory = copied(project, tmp_path)
    if project == "spring-boot":
        install_kit_for_java()
    if project == "node":
        run(directory, "npm", "ci", "--no-audit", "--no-fund")
    done = ended(directory, tmp_path, *command)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and REASON in said and "did not start" in said, said
