"""Share consumers of client libraries, which programs keep; `programs/sharing.py` says what they are asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance import builds
from conformance.clients import java_command
from conformance.security.client_programs import Program

HERE = Path(__file__).parent
PATIENCE_S = 30.0
Seen = list[tuple[int, str, int]]  # offset, value, delivery count

PROGRAMS: dict[str, Callable[[], Sequence[str]]] = {
    "java-4": lambda: java_command("4.4.0", str(HERE / "Sharing.java")),
    "confluent": lambda: [sys.executable, "-m", "conformance.programs.sharing"],
    "franz-go": lambda: [str(builds.franz_go()), "sharing"],
}


class Sharer:
    """A share consumer of partition 0 of a topic."""

    def __init__(self, program: Program, name: str, settings: Mapping[str, Any]) -> None:
        self._program = program
        self._name = name
        self._ask("open", **settings)

    def _ask(self, do: str, **said: Any) -> dict[str, Any]:
        answer = self._program.ask({"do": do, "name": self._name, **said})
        assert "failure" not in answer, answer
        return answer

    def poll(self, seconds: float = PATIENCE_S) -> Seen:
        """The first records that come within this time, as many as the library gives at once."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            found = [(offset, value, count) for offset, value, count in self._ask("poll", seconds=left)["records"]]
            if found or time.monotonic() > deadline:
                return found

    def say(self, types: Mapping[int, str]) -> str | None:
        """Acknowledge records of the last poll; return the name of Kafka's error."""
        self._ask("say", types={str(offset): kind for offset, kind in types.items()})
        error: str | None = self._ask("commit")["error"]
        return error

    def close(self) -> None:
        self._ask("close")
