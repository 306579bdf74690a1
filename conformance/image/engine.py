"""A small container engine: as much of Docker's HTTP API as Testcontainers' modules for Kafka use, on loopback.

It knows one image, that of `docker/Dockerfile`, under any name. `python -m conformance.image.engine DIRECTORY` builds
it, prints the engine's address and serves until its stdin ends; it must run below `unshare --mount`.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import struct
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from conformance.image.build import Image, build
from conformance.image.containers import Container, now

API_VERSION = "1.44"
BRIDGE = {"Name": "bridge", "Id": "b" * 64, "Driver": "bridge", "IPAM": {"Config": [{"Subnet": "172.17.0.0/16"}]}}
ADDRESS = "127.0.0.1"


class Engine:
    """The state: an image, containers, commands run in them, networks."""

    def __init__(self, directory: Path, image: Image) -> None:
        self.directory, self.image = directory, image
        self.containers: dict[str, Container] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, dict[str, Any]] = {BRIDGE["Id"]: BRIDGE}  # type: ignore[dict-item]

    def container(self, name: str) -> Container:
        """Return a container by its name or the beginning of its id. Raises KeyError."""
        for container in self.containers.values():
            if container.name == name.lstrip("/") or container.id.startswith(name):
                return container
        raise KeyError(name)

    def close(self) -> None:
        """End all containers."""
        for container in self.containers.values():
            container.remove()


class Handler(BaseHTTPRequestHandler):
    """One connection of a client of the API."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write requests to stderr if asked to."""
        if os.environ.get("ENGINE_LOG"):
            super().log_message(format, *arguments)

    def handle_any(self) -> None:
        """Answer by the first route that matches."""
        url = urlsplit(self.path)
        path = re.sub(r"^/v[0-9.]+(?=/)", "", url.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        self.body = self._read_body()
        for method, pattern, route in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in (method, "HEAD" if method == "GET" else method):
                try:
                    route(self, *match.groups())
                except KeyError as error:
                    self.answer(404, {"message": f"No such container or image: {error}"})
                return
        self.answer(404, {"message": f"{self.command} {path} is not in this engine"})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    @property
    def told(self) -> Any:
        """The JSON of the request."""
        return json.loads(self.body or b"{}")

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(data)

    def answer(self, status: int, content: Any = None) -> None:
        """Send JSON, text, or nothing."""
        data = (
            b"" if content is None else content.encode() if isinstance(content, str) else json.dumps(content).encode()
        )
        self.send_response(status)
        for name, value in (("Api-Version", API_VERSION), ("Ostype", "linux"), ("Docker-Experimental", "false")):
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    # The engine, images and networks.

    def ping(self) -> None:
        self.answer(200, "OK")

    def version(self) -> None:
        names = {
            "Version": "28.0.0",
            "ApiVersion": API_VERSION,
            "MinAPIVersion": "1.24",
            "Os": "linux",
            "Arch": "amd64",
        }
        self.answer(200, names)

    def info(self) -> None:
        names = {"ID": "none", "ServerVersion": "28.0.0", "OperatingSystem": "none", "OSType": "linux", "Labels": []}
        self.answer(200, names | {"Architecture": "x86_64", "MemTotal": 1 << 32, "NCPU": 2, "Driver": "overlay2"})

    def pull(self) -> None:
        self.answer(200, json.dumps({"status": "Status: Image is up to date"}) + "\r\n")

    def list_images(self) -> None:
        self.answer(200, [])

    def prune(self) -> None:
        self.answer(200, {"SpaceReclaimed": 0})

    def inspect_image(self, name: str) -> None:
        image = self.engine.image
        config = {
            "Env": [f"{key}={value}" for key, value in image.environment.items()],
            "Cmd": image.command,
            "Entrypoint": image.entrypoint or None,
            "ExposedPorts": {port: {} for port in image.ports},
            "Labels": {},
            "User": image.user,
        }
        names = {
            "Id": f"sha256:{'a' * 64}",
            "RepoTags": [name],
            "Created": now(),
            "Os": "linux",
            "Architecture": "amd64",
        }
        self.answer(200, names | {"Config": config, "RootFS": {"Type": "layers"}})

    def list_networks(self) -> None:
        self.answer(200, list(self.engine.networks.values()))

    def inspect_network(self, name: str) -> None:
        found = [each for each in self.engine.networks.values() if name in (each["Id"], each["Name"])]
        self.answer(200, found[0]) if found else self.answer(404, {"message": f"network {name} not found"})

    def create_network(self) -> None:
        network = BRIDGE | {"Id": secrets.token_hex(32), "Name": self.told["Name"]}
        self.engine.networks[network["Id"]] = network
        self.answer(201, {"Id": network["Id"], "Warning": ""})

    def connect_network(self, _: str) -> None:
        self.answer(200)

    def remove_network(self, name: str) -> None:
        self.engine.networks.pop(name, None)
        self.answer(204)

    # Containers.

    def create(self) -> None:
        engine = self.engine
        container = Container(engine.image, engine.directory, self.query.get("name", ""), self.told)
        engine.containers[container.id] = container
        self.answer(201, {"Id": container.id, "Warnings": []})

    def list_containers(self) -> None:
        listed = [
            {"Id": each.id, "Names": [f"/{each.name}"], "State": _state(each)["Status"], "Labels": {}, "Ports": []}
            for each in self.engine.containers.values()
        ]
        self.answer(200, listed)

    def start(self, name: str) -> None:
        self.engine.container(name).start()
        self.answer(204)

    def inspect(self, name: str) -> None:
        container = self.engine.container(name)
        wanted = container.wanted
        ports = {port: [{"HostIp": "0.0.0.0", "HostPort": str(outer)}] for port, outer in container.ports.items()}
        config = {key: value for key, value in wanted.items() if key not in ("HostConfig", "NetworkingConfig")}
        config |= {"Hostname": container.hostname, "Tty": False, "Labels": wanted.get("Labels") or {}}
        config |= {"Env": [f"{key}={value}" for key, value in container.environment.items()]}
        networks = (wanted.get("NetworkingConfig") or {}).get("EndpointsConfig") or {"bridge": {}}
        where = {"IPAddress": ADDRESS, "Gateway": ADDRESS, "NetworkID": BRIDGE["Id"]}
        self.answer(
            200,
            {
                "Id": container.id,
                "Name": f"/{container.name}",
                "Created": now(),
                "Image": f"sha256:{'a' * 64}",
                "Path": container.command[0],
                "Args": container.command[1:],
                "State": _state(container),
                "Config": config,
                "HostConfig": {"NetworkMode": "bridge"} | (wanted.get("HostConfig") or {}),
                "Mounts": [],
                "Platform": "linux",
                "NetworkSettings": {
                    "Ports": ports,
                    **where,
                    "Networks": {
                        network: where | {"Aliases": (endpoint or {}).get("Aliases") or []}
                        for network, endpoint in networks.items()
                    },
                },
            },
        )

    def logs(self, name: str) -> None:
        container = self.engine.container(name)
        streams = {
            1 if self.query.get("stdout") in ("1", "true", "True") else 0,
            2 if self.query.get("stderr") in ("1", "true", "True") else 0,
        }
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.docker.multiplexed-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for stream, data in container.output(self.query.get("follow") in ("1", "true", "True")):
            if stream in streams:
                self._chunk(struct.pack(">BxxxI", stream, len(data)) + data)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def put_archive(self, name: str) -> None:
        target = self.engine.container(name).root / self.query["path"].lstrip("/")
        with tarfile.open(fileobj=io.BytesIO(self.body)) as archive:
            archive.extraction_filter = lambda member, target: member  # Python 3.11.2 has no argument for it
            for member in archive.getmembers():
                member.name = member.name.lstrip("/")
                archive.extract(member, target)
        self.answer(200)

    def wait(self, name: str) -> None:
        process = self.engine.container(name).process
        self.answer(200, {"StatusCode": 0 if process is None else process.wait()})

    def stop(self, name: str) -> None:
        self.engine.container(name).stop()
        self.answer(204)

    def remove(self, name: str) -> None:
        container = self.engine.container(name)
        container.remove()
        del self.engine.containers[container.id]
        self.answer(204)

    # Commands in containers.

    def create_command(self, name: str) -> None:
        key = secrets.token_hex(32)
        self.engine.commands[key] = self.told | {"container": self.engine.container(name)}
        self.answer(201, {"Id": key})

    def run_command(self, key: str) -> None:
        command = self.engine.commands[key]
        done = command["container"].run(command["Cmd"], command.get("Env") or ())
        command["ExitCode"] = done.returncode
        frames = [
            struct.pack(">BxxxI", stream, len(data)) + data for stream, data in ((1, done.stdout), (2, done.stderr))
        ]
        upgraded = "upgrade" in self.headers.get("Connection", "").lower()
        self.send_response(101 if upgraded else 200, "UPGRADED" if upgraded else "OK")
        self.send_header("Content-Type", "application/vnd.docker.raw-stream")
        self.send_header("Connection", "Upgrade" if upgraded else "close")
        if upgraded:
            self.send_header("Upgrade", "tcp")
        self.end_headers()
        self.wfile.write(b"".join(frames))
        self.close_connection = True

    def inspect_command(self, key: str) -> None:
        command = self.engine.commands[key]
        self.answer(200, {"ID": key, "Running": "ExitCode" not in command, "ExitCode": command.get("ExitCode")})


ROUTES: list[tuple[str, str, Any]] = [
    ("GET", r"/_ping", Handler.ping),
    ("GET", r"/version", Handler.version),
    ("GET", r"/info", Handler.info),
    ("POST", r"/images/create", Handler.pull),
    ("POST", r"/(?:containers|images|networks|volumes)/prune", Handler.prune),
    ("GET", r"/images/json", Handler.list_images),
    ("GET", r"/images/(.+)/json", Handler.inspect_image),
    ("GET", r"/networks", Handler.list_networks),
    ("POST", r"/networks/create", Handler.create_network),
    ("POST", r"/networks/([^/]+)/connect", Handler.connect_network),
    ("GET", r"/networks/([^/]+)", Handler.inspect_network),
    ("DELETE", r"/networks/([^/]+)", Handler.remove_network),
    ("POST", r"/containers/create", Handler.create),
    ("GET", r"/containers/json", Handler.list_containers),
    ("POST", r"/containers/([^/]+)/start", Handler.start),
    ("GET", r"/containers/([^/]+)/json", Handler.inspect),
    ("GET", r"/containers/([^/]+)/logs", Handler.logs),
    ("PUT", r"/containers/([^/]+)/archive", Handler.put_archive),
    ("POST", r"/containers/([^/]+)/wait", Handler.wait),
    ("POST", r"/containers/([^/]+)/(?:stop|kill)", Handler.stop),
    ("DELETE", r"/containers/([^/]+)", Handler.remove),
    ("POST", r"/containers/([^/]+)/exec", Handler.create_command),
    ("POST", r"/exec/([^/]+)/start", Handler.run_command),
    ("GET", r"/exec/([^/]+)/json", Handler.inspect_command),
]


def _state(container: Container) -> dict[str, Any]:
    status = "running" if container.running else "created" if container.process is None else "exited"
    code = 0 if container.process is None else container.process.poll() or 0
    times = {"StartedAt": now(), "FinishedAt": now() if status == "exited" else "0001-01-01T00:00:00Z"}
    return {"Status": status, "Running": container.running, "Pid": 1, "ExitCode": code, "Error": "", **times}


def main(directory: Path) -> None:
    """Serve until stdin ends."""
    engine = Handler.engine = Engine(directory, build(directory))
    server = ThreadingHTTPServer((ADDRESS, 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"tcp://{ADDRESS}:{server.server_address[1]}", flush=True)
    try:
        sys.stdin.read()
    finally:
        engine.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
