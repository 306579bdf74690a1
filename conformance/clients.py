"""Which clients there are, and how each one's program is run; they all take the same command line.

What a program does is in its own folder under `programs/`; what is asked of it is in the tests.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from conformance import builds
from tests.class_archives import archive_options
from tests.running import running_broker

REPOSITORY = Path(__file__).parent.parent
PATIENCE_S = 120
JAVA_OPTIONS = ["-Xmx256m", *builds.QUICK_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class Client(NamedTuple):
    """A client by the name that the tests show, and the start of its program's command line (built when asked for)."""

    name: str
    command: Callable[[], list[str]]
    administers: bool = True
    transacts: bool = False


def java_member() -> list[str]:
    """The start of the command line of a group's member with the newest Java client, for tests/clients/groups.py."""
    return [*_java("4.4.0")(), "member"]


def franz_go_member() -> list[str]:
    """The same with franz-go, which speaks the classic protocol."""
    return [str(builds.franz_go()), "member"]


def _java(version: str) -> Callable[[], list[str]]:
    return lambda: java_command(version, "conformance.Main")


def java_command(version: str, *arguments: str) -> list[str]:
    """Return the command line of a program beside the Java client of a version: a class, or a source file, and more."""
    return [*_java_command(version, _archive(version)), *arguments]


def _java_command(version: str, options: list[str]) -> list[str]:
    return ["java", *JAVA_OPTIONS, *options, "-cp", builds.java(version)]


@functools.cache
def _archive(version: str) -> list[str]:
    """Return the options for an archive of what the program loads that reads and writes in transactions."""

    def transact(options: list[str]) -> None:
        with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
            arguments = ["conformance.Main", "transact", broker.bootstrap_servers, "t"]
            subprocess.run([*_java_command(version, options), *arguments], check=True, stdout=subprocess.DEVNULL)

    builds.java(version)  # makes the directory
    program = builds.PROGRAMS / "java" / "target" / version / "program.jar"
    return archive_options(program, program.with_name("classes.jsa"), transact)


CLIENTS = (
    Client("kcat", lambda: [sys.executable, "-m", "conformance.programs.kcat"]),
    Client("confluent", lambda: [sys.executable, "-m", "conformance.programs.confluent"], administers=False),
    Client("java-3.9", _java("3.9.2"), transacts=True),
    Client("java-4", _java("4.4.0"), transacts=True),
    Client("franz-go", lambda: [str(builds.franz_go())], transacts=True),
    Client("kafkajs", lambda: ["node", str(builds.kafkajs())]),  # reads as a member of a group
)


def run(client: Client, action: str, bootstrap: str, *arguments: str) -> str:
    """The program's summary. Raises AssertionError with all it printed if it did not exit with 0."""
    command = [*client.command(), action, bootstrap, *arguments]
    environment = {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ending = "ends"
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        ending = f"was killed after {PATIENCE_S} s"
    printed = f"{stdout[-4000:]}{stderr[-4000:]}"
    assert process.returncode == 0, f"{client.name} {action} {ending} with status {process.returncode}:\n{printed}"
    return stdout.strip()
