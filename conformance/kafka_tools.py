"""Apache Kafka's command-line tools in one process, which `KafkaTools.java` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.kafka_reference import kafka_command
from conformance.security.client_programs import running_program

PROGRAM = Path(__file__).parent / "KafkaTools.java"
Tool = Callable[..., str]


@contextmanager
def running_tools() -> Iterator[Tool]:
    """What runs a tool by its class and arguments, and returns what it printed; AssertionError if it failed."""
    with running_program("Kafka's tools", kafka_command(str(PROGRAM))) as program:

        def run(name: str, *arguments: str) -> str:
            answer = program.ask({"tool": name, "arguments": arguments})
            assert answer["status"] == 0, f"{answer['out'][-3000:]}{answer['err'][-3000:]}"
            printed: str = answer["out"]
            return printed

        yield run
