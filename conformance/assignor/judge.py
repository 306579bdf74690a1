"""Asks the classes of Kafka 4.4 for assignments of streams groups and for members' steps, in one run of Java."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance import builds
from minibroker.broker.groups.streams.tasks import AnyTasks, TaskId

PROGRAM = Path(__file__).parent / "Assignments.java"
TIMEOUT_S = 120


def answers(questions: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what Kafka's classes answer."""
    command = [*builds.JAVA, "-cp", f"{builds.group_coordinator()}/*", str(PROGRAM)]
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    run = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def partitions_of(tasks: AnyTasks) -> dict[str, list[int]]:
    """Return tasks as JSON has them."""
    return {name: sorted(partitions) for name, partitions in tasks.items()}


def nested(values: Mapping[TaskId, Any]) -> dict[str, dict[int, Any]]:
    """Return values of tasks as JSON has them."""
    found: dict[str, dict[int, Any]] = {}
    for (name, partition), value in values.items():
        found.setdefault(name, {})[partition] = value
    return found
