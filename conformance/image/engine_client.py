"""What the tests ask of the engine themselves: start it, and run containers as modules of other languages do."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import select
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.running import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
BUILD_PATIENCE_S = 500  # it installs from the package index


@contextmanager
def running_engine(directory: Path) -> Iterator[str]:
    """Build the image and serve an engine until the block ends; its address, as DOCKER_HOST has it."""
    rooted = [] if os.geteuid() == 0 else ["sudo", "--non-interactive", "--preserve-env"]
    command = [*rooted, "unshare", "--mount", sys.executable, "-m", "conformance.image.engine", str(directory)]
    with (directory / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            select.select([process.stdout], [], [], BUILD_PATIENCE_S)
            address = process.stdout.readline().strip()
            assert address, (directory / "stderr").read_text()
            yield address
            process.stdin.close()
            process.wait(PATIENCE_S)
        finally:
            process.kill()


class EngineClient:
    """Runs containers of the image by the engine's API."""

    def __init__(self, address: str) -> None:
        self._address = address.removeprefix("tcp://")

    @contextmanager
    def container(self, variables: Mapping[str, str], ports: Sequence[int], **more: Any) -> Iterator[str]:
        """Start a container, with `more` of what `create` takes, and remove it at the end; its id."""
        bindings = {f"{port}/tcp": [{"HostPort": "0"}] for port in ports}
        environment = [f"{name}={value}" for name, value in variables.items()]
        wanted = {"Image": "minibroker", "Env": environment, "HostConfig": {"PortBindings": bindings}, **more}
        container: str = self._ask("POST", "/containers/create", wanted)["Id"]
        try:
            self._ask("POST", f"/containers/{container}/start")
            yield container
        finally:
            self._ask("DELETE", f"/containers/{container}")

    def port(self, container: str, inside: int) -> int:
        """Return the port outside at which this one is reached."""
        found = self._ask("GET", f"/containers/{container}/json")
        return int(found["NetworkSettings"]["Ports"][f"{inside}/tcp"][0]["HostPort"])

    def hostname(self, container: str) -> str:
        """Return the name of the container for others in its network."""
        name: str = self._ask("GET", f"/containers/{container}/json")["Config"]["Hostname"]
        return name

    def copy(self, container: str, path: str, text: str) -> None:
        """Write an executable file in the container."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text.encode()), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
        self._send("PUT", f"/containers/{container}/archive?path=/", data.getvalue())

    def run(self, container: str, *command: str) -> tuple[int, str]:
        """Run a command in the container; its status, and what it printed."""
        key = self._ask("POST", f"/containers/{container}/exec", {"Cmd": list(command)})["Id"]
        printed = _frames(self._send("POST", f"/exec/{key}/start", b"{}"))
        return self._ask("GET", f"/exec/{key}/json")["ExitCode"], "".join(printed.values())

    def await_line(self, container: str, pattern: str, stream: int = 1) -> None:
        """Wait until what it printed on stdout, or on another stream, has the pattern."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, said := self.printed(container)[stream]):
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    def printed(self, container: str) -> dict[int, str]:
        """Return what the container printed by stream: 1 is stdout, 2 stderr."""
        return _frames(self._send("GET", f"/containers/{container}/logs?stdout=1&stderr=1", b""))

    def _ask(self, method: str, path: str, told: Any = None) -> Any:
        answer = self._send(method, path, b"" if told is None else json.dumps(told).encode())
        return json.loads(answer or b"null")

    def _send(self, method: str, path: str, body: bytes) -> bytes:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        connection.request(method, path, body)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        assert response.status < 300, data
        return data


def _frames(data: bytes) -> dict[int, str]:
    """Return the text of each stream."""
    texts = {1: "", 2: ""}
    while data:
        stream, size = struct.unpack(">BxxxI", data[:8])
        texts[stream] += data[8 : 8 + size].decode()
        data = data[8 + size :]
    return texts
