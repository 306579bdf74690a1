"""Runs the pods of a Kubernetes API server as processes of this machine, whose Python has no packages.

It does what a kubelet and Spark's image do for pods of Spark: config maps and empty directories are folders, the names
of services are addresses, and the container's arguments become the command of Spark's entry point.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from conformance.pipeline_cluster.standalone import PAUSE_S, SPARK_HOME

ADDRESS = "127.0.0.1"  # of every pod
NAMESPACE = "default"
CORE = "api/v1"
EXECUTOR_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION = "SPARK_JAVA_OPT_"
PATCH = "application/merge-patch+json"
TIMEOUT_S = 60
NOT_FOUND = 404

Json = dict[str, Any]


class Api:
    """What is asked of an API server, about one namespace."""

    def __init__(self, url: str, token: str, certificate: Path) -> None:
        self.url, self.token = url, token
        self._tls = ssl.create_default_context(cafile=certificate)

    def is_ready(self) -> bool:
        """Return whether it has started."""
        try:
            return self._answer(Request(f"{self.url}/readyz")) == b"ok"
        except OSError:
            return False

    def ask(
        self, method: str, path: str, content: Json | None = None, *, group: str = CORE, kind: str = "application/json"
    ) -> Json:
        """Return the answer. Raises HTTPError, OSError."""
        data = None if content is None else json.dumps(content).encode()
        url = f"{self.url}/{group}/namespaces/{NAMESPACE}/{path}"
        answer: Json = json.loads(self._answer(Request(url, data, {"Content-Type": kind}, method=method)))
        return answer

    def items(self, kind: str) -> list[Json]:
        """Return all objects of a kind, such as `pods`."""
        found: list[Json] = self.ask("GET", kind)["items"]
        return found

    def token_of(self, account: str) -> str:
        """Return a new token of a service account."""
        answer = self.ask("POST", f"serviceaccounts/{account}/token", {"spec": {}})
        token: str = answer["status"]["token"]
        return token

    def report(self, pod: str, status: Json) -> None:
        """Say how a pod is, if it still exists."""
        try:
            self.ask("PATCH", f"pods/{pod}/status", {"status": status}, kind=PATCH)
        except HTTPError as error:
            if error.code != NOT_FOUND:
                raise

    def _answer(self, request: Request) -> bytes:
        request.add_header("Authorization", f"Bearer {self.token}")
        with urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
            content: bytes = answer.read()
        return content


class Pod:
    """The process of a pod's only container, with its files in a folder."""

    def __init__(self, pod: Json, directory: Path, image: Mapping[str, str], api: Api) -> None:
        self.name: str = pod["metadata"]["name"]
        self.directory = directory / self.name
        self._pod, self._image, self._api = pod, image, api
        (self._container,) = pod["spec"]["containers"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, in a folder of its own as in Spark's image. Raises HTTPError while a volume is missing."""
        work = self.directory / "work-dir"
        work.mkdir(parents=True, exist_ok=True)
        places = self._mounted()
        environment = {**self._image, **self._environment(places)}
        command = entry_point([_placed(each, places) for each in self._container["args"]], environment)
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=work, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def status(self) -> Json:
        """Return its phase, and how its container is."""
        assert self.process is not None
        code = self.process.poll()
        started = self._pod["metadata"].get("creationTimestamp")
        state: Json = {"running": {"startedAt": started}} if code is None else {"terminated": {"exitCode": code % 256}}
        container = {"name": self._container["name"], "image": self._container["image"], "imageID": "spark"}
        return {
            "phase": "Running" if code is None else "Failed" if code else "Succeeded",
            "podIP": ADDRESS,
            "conditions": [{"type": "Ready", "status": str(code is None)}],
            "containerStatuses": [{**container, "ready": code is None, "restartCount": 0, "state": state}],
        }

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End the process and its children."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, by)

    def _mounted(self) -> dict[str, str]:
        """Make the volumes; the folder of each path at which one is mounted."""
        volumes = {each["name"]: each for each in self._pod["spec"].get("volumes", ())}
        places = {}
        for mount in self._container.get("volumeMounts", ()):
            folder = self.directory / mount["name"]
            folder.mkdir(exist_ok=True)
            places[mount["mountPath"]] = str(folder)
            for name, text in self._files(volumes[mount["name"]]).items():
                (folder / name).write_text(text)
        # A setting may name a file of another volume.
        for file in (file for folder in places.values() for file in Path(folder).iterdir()):
            file.write_text(_placed(file.read_text(), places))
        return places

    def _files(self, volume: Json) -> dict[str, str]:
        """Return what is in a volume: a config map, an account's token with what belongs to it, or nothing."""
        if "configMap" in volume:
            files: dict[str, str] = self._api.ask("GET", f"configmaps/{volume['configMap']['name']}")["data"]
            return files
        found: dict[str, str] = {}
        for source in volume.get("projected", {}).get("sources", ()):
            if "serviceAccountToken" in source:
                found["token"] = self._api.token_of(self._pod["spec"]["serviceAccountName"])
            found |= self._files(source) if "configMap" in source else {}
        return found

    def _environment(self, places: Mapping[str, str]) -> dict[str, str]:
        fields = {"status.podIP": ADDRESS, "metadata.name": self.name}
        hosts = self.directory / "hosts"
        hosts.write_text(
            "".join(f"{ADDRESS} {name}\n" for name in ("localhost", socket.gethostname(), *self._services()))
        )
        said = {"JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={hosts}"}
        for variable in self._container.get("env", ()):
            source = variable.get("valueFrom")
            value = fields[source["fieldRef"]["fieldPath"]] if source else variable.get("value", "")
            said[variable["name"]] = _placed(value, places)
        return said

    def _services(self) -> Iterable[str]:
        for service in self._api.items("services"):
            yield f"{service['metadata']['name']}.{NAMESPACE}.svc"


def entry_point(arguments: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command of Spark's image for the arguments of a driver or an executor."""
    role, *others = arguments
    if role == "driver":
        bound = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        return [f"{SPARK_HOME}/bin/spark-submit", "--conf", bound, "--deploy-mode", "client", *others]
    assert role == "executor", arguments
    options = sorted((name for name in environment if name.startswith(JAVA_OPTION)), key=lambda name: int(name[15:]))
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    classes = f"{environment['SPARK_CONF_DIR']}:{SPARK_HOME}/jars/*"
    java = [f"{environment['JAVA_HOME']}/bin/java", *(environment[name] for name in options)]
    said = {
        "--driver-url": "SPARK_DRIVER_URL",
        "--executor-id": "SPARK_EXECUTOR_ID",
        "--cores": "SPARK_EXECUTOR_CORES",
        "--app-id": "SPARK_APPLICATION_ID",
        "--hostname": "SPARK_EXECUTOR_POD_IP",
        "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
        "--podName": "SPARK_EXECUTOR_POD_NAME",
    }
    words = [word for option, name in said.items() for word in (option, environment[name])]
    return [*java, f"-Xms{memory}", f"-Xmx{memory}", "-cp", classes, EXECUTOR_BACKEND, *words]


def _placed(text: str, places: Mapping[str, str]) -> str:
    """Return a text with the folders of this machine in place of the paths in a container."""
    for path, folder in places.items():
        text = text.replace(path, folder)
    return text


class Kubelet:
    """Looks at the pods of a namespace again and again: starts new ones, reports changes, ends deleted ones."""

    def __init__(self, api: Api, directory: Path, image: Mapping[str, str]) -> None:
        self._api, self._directory, self._image = api, directory, image
        self.pods: dict[str, Pod] = {}  # all that ever ran
        self._reported: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and end all pods."""
        self._closing.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.end(signal.SIGKILL)
            if pod.process is not None:
                pod.process.wait()

    def _run(self) -> None:
        while not self._closing.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        wanted = {pod["metadata"]["name"]: pod for pod in self._api.items("pods")}
        for name, found in wanted.items():
            if name not in self.pods:
                self._try(Pod(found, self._directory, self._image, self._api))
        for name, pod in self.pods.items():
            if name not in wanted:
                pod.end()
            elif (status := pod.status())["phase"] != self._reported.get(name):
                self._reported[name] = status["phase"]
                self._api.report(name, status)

    def _try(self, pod: Pod) -> None:
        """Start a pod, unless Spark has not made its config map yet."""
        try:
            pod.start()
        except HTTPError as error:
            if error.code != NOT_FOUND:
                raise
        else:
            self.pods[pod.name] = pod
