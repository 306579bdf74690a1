"""Builds the client programs and fetches Apache Kafka's jars, each once and into folders that git ignores.

Running them lives in `clients` and `kafka_reference`. A file lock keeps parallel test processes from building twice.
"""

from __future__ import annotations

import fcntl
import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def apache_kafka() -> Path:
    """The folder with the jars of an Apache Kafka server."""
    folder = HERE / "apache_kafka"
    _run(folder, ["mvn", "-q", "-B", "dependency:copy-dependencies"], made=folder / "target" / "jars")
    return folder / "target" / "jars"


def _run(folder: Path, command: Sequence[str], *, made: Path) -> None:
    """Runs the build unless what it makes is newer than all it is made from."""
    made.parent.mkdir(exist_ok=True)
    with (folder / "target" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists() and made.stat().st_mtime >= _newest_source(folder):
            return
        result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} in {folder} failed:\n{result.stdout[-4000:]}")


def _newest_source(folder: Path) -> float:
    built = {"target", "node_modules"}
    files = (file for file in folder.rglob("*") if file.is_file() and not built & set(file.relative_to(folder).parts))
    return max(file.stat().st_mtime for file in files)
