"""The projects of `examples/`, each installed from its registry: their own tests pass."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.builds import QUICK_GO
from conformance.projects import EXAMPLES, MAVEN_TEST, REPOSITORY, copied, ended, install_kit_for_java, run

pytestmark = pytest.mark.minibroker_only
IN_PYTHON = ("fastapi", "faststream", "faust", "quixstreams")
REASON = "minibroker: --control needs a library that is missing"
NOT_THEIRS = ("xdist", "asyncio", "timeout", "cacheprovider")  # plugins that are installed here, but not with them


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment with what the projects in Python need, and with this minibroker."""
    directory = tmp_path_factory.mktemp("python")
    run(directory, sys.executable, "-m", "venv", "--without-pip", ".")
    programs = directory / "bin"
    python = str(programs / "python")
    run(directory, sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "uv")
    needed = [word for name in IN_PYTHON for word in ("-r", str(EXAMPLES / name / "requirements.txt"))]
    run(directory, str(programs / "uv"), "pip", "install", "--quiet", "--python", python, *needed)
    (own,) = (directory / "lib").glob("python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]  # what minibroker itself needs
    (own / "minibroker.pth").write_text("\n".join([str(REPOSITORY), *libraries]))
    return programs


def test_every_example_project_is_tested_and_documented() -> None:
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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copies a project, and installs what it needs, both once."""
    directory = tmp_path_factory.mktemp("projects")

    @functools.cache
    def copy(name: str) -> Path:
        project = copied(name, directory)
        if name == "node":
            run(project, "npm", "ci", "--no-audit", "--no-fund")
        if name == "spring-boot":
            install_kit_for_java()
        return project

    return copy


def test_the_go_example_passes(project: Callable[[str], Path]) -> None:
    run(project("go"), "go", "test", QUICK_GO, "./...")


def test_the_nodejs_example_passes(project: Callable[[str], Path]) -> None:
    run(project("node"), "npm", "test", KAFKAJS_NO_PARTITIONER_WARNING="1")


def test_the_spring_boot_example_passes(project: Callable[[str], Path]) -> None:
    run(project("spring-boot"), *MAVEN_TEST)


@pytest.mark.parametrize(
    ("name", "command"),
    [("go", ("go", "test", QUICK_GO, "./...")), ("node", ("npm", "test")), ("spring-boot", MAVEN_TEST)],
)
def test_a_broker_that_cannot_start_reports_the_reason(
    name: str, command: tuple[str, ...], project: Callable[[str], Path], tmp_path: Path
) -> None:
    broker = tmp_path / "minibroker"
    broker.write_text(f"#!/bin/sh\necho '{REASON}' >&2\nexit 2\n")
    broker.chmod(0o755)
    done = ended(project(name), tmp_path, *command)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and REASON in said and "did not start" in said, said
