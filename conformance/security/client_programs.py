"""The clients' programs that do cases of logging in; `programs/secured.py` says what a case is."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from conformance import builds
from conformance.clients import PATIENCE_S, REPOSITORY, java_command

READ_BYTES = 1 << 16


def java(version: str) -> Callable[[], list[str]]:
    return lambda: java_command(version, "conformance.Main", "secured")


def python(name: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", "conformance.programs.secured", name]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "java-3.9": java("3.9.2"),
    "java-4": java("4.4.0"),
    "franz-go": lambda: [str(builds.franz_go()), "secured"],
    "sarama": lambda: [str(builds.sarama())],
    "kafkajs": lambda: ["node", str(builds.kafkajs()), "secured"],
    "confluent": python("confluent"),
    "aiokafka": python("aiokafka"),
    "kafka-python": python("kafka-python"),
}


class Program:
    """A client's program, which does cases."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._unread = bytearray()
        environment = {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, case: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, or the event before it."""
        self.tell(case)
        return self.answer()

    def tell(self, case: dict[str, Any]) -> None:
        """Let the program begin with a case."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the next line. Raises AssertionError if none comes."""
        assert self._process.stdout is not None
        descriptor, end = self._process.stdout.fileno(), time.monotonic() + PATIENCE_S
        piece = bytes(self._unread)
        while b"\n" not in piece:
            readable, _, _ = select.select([descriptor], [], [], max(0, end - time.monotonic()))
            piece = os.read(descriptor, READ_BYTES) if readable else b""
            assert piece, f"{self.name} says nothing more: {self._unread!r}, status {self._process.poll()}"
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def running_program(name: str, command: Sequence[str] | None = None) -> Iterator[Program]:
    """A client's program for the length of a block; `command` if it does other cases."""
    started = Program(name, command or CLIENTS[name]())
    try:
        yield started
    finally:
        started.close()
