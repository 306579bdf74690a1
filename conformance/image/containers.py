"""Containers without an engine: processes in namespaces of their own, with an overlay of an image as their root."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conformance.image.build import Image, mounted

INSIDE = Path(__file__).with_name("inside.py")
STDOUT, STDERR = 1, 2
PATIENCE_S = 2


class Said(NamedTuple):
    """A piece of what a container printed, on stdout or stderr."""

    stream: int
    data: bytes


class Container:
    """A container: made by `create` of the engine's API, a process from `start` on."""

    def __init__(self, image: Image, directory: Path, name: str, wanted: Mapping[str, Any]) -> None:
        self.id = secrets.token_hex(32)
        self.name = name or f"container-{self.id[:8]}"
        self.image = image
        self.wanted = wanted
        self.hostname = wanted.get("Hostname") or self.id[:12]
        self.environment = image.environment | dict(each.split("=", 1) for each in wanted.get("Env") or ())
        self.command = [*_words(wanted.get("Entrypoint")), *(_words(wanted.get("Cmd")) or image.command)]
        self.root = mounted(image.layers, directory / self.id[:12])
        for directory in ("tmp", "run"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(self.root / directory)], check=True)
        (self.root / "tmp").chmod(0o1777)
        endpoints = (wanted.get("NetworkingConfig") or {}).get("EndpointsConfig") or {}
        aliases = [alias for endpoint in endpoints.values() for alias in (endpoint or {}).get("Aliases") or ()]
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {self.hostname} {' '.join(aliases)}\n")
        bindings = (wanted.get("HostConfig") or {}).get("PortBindings") or {}
        self.listening = {port: _listening(bound) for port, bound in bindings.items()}
        self.started = False
        self.said: list[Said] = []
        self.heard = threading.Condition()
        self.process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []

    @property
    def ports(self) -> dict[str, int]:
        """The published port outside by the one inside, such as 9092/tcp."""
        return {port: listening.getsockname()[1] for port, listening in self.listening.items()}

    @property
    def running(self) -> bool:
        """Return whether its first process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the command, and collect what it prints."""
        told = {
            "root": str(self.root),
            "hostname": self.hostname,
            "environment": self.environment,
            "workdir": self.wanted.get("WorkingDir") or self.image.workdir,
            "user": self.wanted.get("User") or self.image.user,
            "command": self.command,
            "ports": {port.partition("/")[0]: each.fileno() for port, each in self.listening.items()},
        }
        apart = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork"]
        self.process = subprocess.Popen(
            [*apart, sys.executable, str(INSIDE), json.dumps(told)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=list(told["ports"].values()),
        )
        for stream, pipe in ((STDOUT, self.process.stdout), (STDERR, self.process.stderr)):
            self._readers.append(threading.Thread(target=self._collect, args=(stream, pipe), daemon=True))
            self._readers[-1].start()

    def run(self, command: Sequence[str], environment: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run a further command in the container, as `docker exec` does."""
        namespaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"]
        within = ["nsenter", "--target", self._first_process(), *namespaces]
        user = ["setpriv", f"--reuid={self.image.user}", f"--regid={self.image.user}", "--init-groups", "--"]
        variables = dict(each.split("=", 1) for each in environment)
        return subprocess.run([*within, *user, *command], env=self.environment | variables, capture_output=True)

    def output(self, follow: bool) -> Iterator[Said]:
        """Yield what it printed, and while `follow` and it runs, what it prints from now on."""
        position = 0
        while True:
            with self.heard:
                while follow and position == len(self.said) and any(reader.is_alive() for reader in self._readers):
                    self.heard.wait(0.2)
                found = self.said[position:]
            position += len(found)
            yield from found
            if not found:
                return

    def stop(self) -> int:
        """End it as `docker stop` does, but with little patience, and return its status."""
        if self.process is None:
            return 0
        self._signal("TERM")
        try:
            return self.process.wait(PATIENCE_S)  # a first process without a handler does not hear it
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it at once, and return its status. All its processes end with the first one."""
        if self.process is None:
            return 0
        self._signal("KILL")
        return self.process.wait()

    def remove(self) -> None:
        """End it at once, and forget its files."""
        self.kill()
        for listening in self.listening.values():
            listening.close()
        subprocess.run(["umount", "--recursive", "--lazy", str(self.root)], check=False)

    def _signal(self, name: str) -> None:
        with contextlib.suppress(KeyError):  # it has ended meanwhile
            subprocess.run(["kill", f"-{name}", self._first_process()], check=False)

    def _first_process(self) -> str:
        """Return the process in the container that has the id 1 there, once it is in its root."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        while self.running:
            for first in children.read_text().split():
                if os.readlink(f"/proc/{first}/root") != "/":
                    return first
            time.sleep(0.01)
        raise KeyError(f"{self.name} does not run")

    def _collect(self, stream: int, pipe: Any) -> None:
        while data := pipe.read1(1 << 16):
            with self.heard:
                self.said.append(Said(stream, data))
                self.heard.notify_all()


def _words(command: Any) -> list[str]:
    return [command] if isinstance(command, str) else list(command or ())


def _listening(bound: Any) -> socket.socket:
    port = int((bound or [{}])[0].get("HostPort") or 0)
    listening = socket.create_server(("127.0.0.1", port), backlog=100)
    listening.set_inheritable(True)
    return listening


def now() -> str:
    """Return the time as the engine's API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
