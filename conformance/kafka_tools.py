"""Apache Kafka's command-line tools in one process, which `KafkaTools.java` is: it ends with the tests' process."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from conformance.kafka_reference import kafka_command
from conformance.security.client_programs import Program

PROGRAM = Path(__file__).parent / "KafkaTools.java"
Tool = Callable[..., str]


class Printed(NamedTuple):
    """What a tool wrote to stdout and to stderr."""

    out: str
    err: str


def run_tool(name: str, *arguments: str) -> Printed:
    """Run a tool by its class and arguments. Raises AssertionError with what it printed if it failed."""
    answer = _started().ask({"tool": name, "arguments": arguments})
    assert answer["status"] == 0, f"{answer['out'][-3000:]}{answer['err'][-3000:]}"
    return Printed(answer["out"], answer["err"])


@functools.cache
def _started() -> Program:
    program = Program("Kafka's tools", kafka_command(str(PROGRAM)))
    atexit.register(program.close)
    return program
