"""What docs/share-groups.md shows in Java prints what the page says, with Kafka's Java client 4.4."""

from __future__ import annotations

import subprocess
from pathlib import Path

from conformance.clients import java_command
from minibroker.testing import Broker
from tests.test_readme import README
from tests.test_testing_document import blocks

TIMEOUT_S = 120


def test_the_java_program_prints_the_documented_output(tmp_path: Path) -> None:
    found = blocks((README.parent / "docs" / "share-groups.md").read_text())
    (place,) = (place for place, block in enumerate(found) if block.kind == "java")
    file = tmp_path / "Workers.java"
    file.write_text(found[place].text)
    with Broker() as broker:
        command = java_command("4.4.0", str(file), broker.bootstrap_servers)
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, found[place + 1].text), done.stderr
