"""Starts Spark's JVM so that what keeps it from starting is one line, not a page that Java writes to stderr.

PySpark lets the JVM write to this process's stderr, and then only says that it has ended. Here what the JVM writes goes
through a pipe, is held back until the JVM has started, and is passed on from then on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock, Thread
from typing import Final

from minibroker.pipeline.spark_errors import start_error_of

STDERR: Final = 2
PIECE_BYTES: Final = 1 << 16
END_PATIENCE_S: Final = 10  # for the last words of a JVM that has ended


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
        raise StartError(f"Spark does not start: {start_error_of(output.last_words())}") from None
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

    def last_words(self) -> str:
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
