"""The archive of Java's classes: where it is, that sessions use it, and that one which does not fit does no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from minibroker.pipeline.java import Java, find_java
from minibroker.pipeline.saved_classes import QUIET, archive_path, java_options

SESSION = """
from pathlib import Path
from pyspark import SparkContext
from minibroker.pipeline.session import session
spark = session("local[1]", **{"spark.driver.memory": "512m"})
print(spark.range(3).count(), ".jsa" in Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
"""


def test_each_java_version_has_its_own_class_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archives = {archive_path(Java(Path(program), version)) for program, version in [("/a", 17), ("/b", 17), ("/b", 25)]}
    assert len(archives) == 3
    assert {path.parent for path in archives} == {tmp_path / "minibroker"}
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archive_path(Java(Path("/a"), 17)).is_relative_to(Path.home() / ".cache")


def test_an_existing_class_archive_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = Java(Path("/a"), 17)
    assert java_options(java) == ()
    path = archive_path(java)
    path.parent.mkdir()
    path.touch()
    assert java_options(java) == (QUIET, f"-XX:SharedArchiveFile={path}")


def test_a_damaged_class_archive_is_left_alone_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = find_java(pyspark.__version__)
    path = archive_path(java)
    path.parent.mkdir()
    path.write_bytes(b"not an archive" * 1000)
    run = subprocess.run([java.program, *java_options(java), "--version"], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert not run.stdout.startswith("["), "the JVM logs"


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("spark")
def test_a_prepared_session_uses_the_class_archive_and_is_quiet(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)

    prepared = run("-m", "minibroker", "pipeline", "prepare")
    assert (prepared.returncode, prepared.stderr) == (0, "")
    (archive,) = tmp_path.glob("minibroker/spark-*.jsa")
    assert prepared.stdout.startswith(f"{archive}: ")
    used = run("-c", SESSION)
    assert (used.stdout, used.stderr) == ("3 True\n", "")
