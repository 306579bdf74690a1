"""The image's files in a directory of this machine, where its scripts run without a container."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.running import ANNOUNCEMENT, PATIENCE_S, environment_for_broker

# The scripts need bash 5 and what is beside it on Linux.
NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the image's scripts run on Linux")
FILES = Path(__file__).parents[2] / "docker" / "root"
MOVED = ("/etc/kafka", "/mnt/shared", "/opt/kafka", "/tmp/minibroker", "/var/lib/kafka")
RUN = "etc/kafka/docker/run"


def unpacked(directory: Path) -> Path:
    """Return a copy of the image's files whose scripts use the copy."""
    root = directory / "root"
    shutil.copytree(FILES, root)
    for script in (path for path in root.rglob("*") if path.is_file()):
        text = script.read_text()
        for place in MOVED:
            text = text.replace(place, f"{root}{place}")
        script.write_text(text)
    for place in ("etc/kafka/secrets", "mnt/shared/config", "tmp", "var/lib/kafka/data"):
        (root / place).mkdir(parents=True)
    return root


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return one in which this interpreter's `minibroker` and `python3` come first."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return environment_for_broker({"PATH": path, **variables})


@contextmanager
def running(root: Path, variables: Mapping[str, str], script: str = RUN) -> Iterator[list[str]]:
    """Run a script until the block ends, which begins when clients can connect; its lines up to then and two more.

    Listeners are on any port of this machine if the variables name none.
    """
    listeners = {name: value for name, value in variables.items() if name.endswith("LISTENERS")}
    free = {} if listeners else {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:0"}
    process = subprocess.Popen(
        [str(root / script)], cwd=root, env=environment(free | dict(variables)), stdout=subprocess.PIPE
    )
    with process:
        try:
            yield _lines(process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def announced(lines: list[str]) -> str:
    """Return the addresses that clients are told."""
    (line,) = (line for line in lines if line.startswith(ANNOUNCEMENT))
    return line.removeprefix(ANNOUNCEMENT)


def _lines(process: subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout is not None
    data = b""
    while "Kafka Server started" not in data.decode():
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        read = os.read(process.stdout.fileno(), 65_536) if readable else b""
        assert read, data.decode()
        data += read
    return data.decode().splitlines()
