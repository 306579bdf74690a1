"""Starts Kubernetes' own API server, with an account for Spark as in `docs/pipeline.md`, and a kubelet of ours."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance import builds
from conformance.pipeline_cluster.kubelet import ADDRESS, CORE, Api, Kubelet, Pod
from conformance.pipeline_cluster.standalone import (
    PAUSE_S,
    SETTINGS,
    SPARK_HOME,
    START_PATIENCE_S,
    bare_python,
    daemon_environment,
    driver_environment,
)
from minibroker.pipeline.packaging import DIRECTORY, executor_settings
from tests.certificates import Authority
from tests.clients.ports import free_ports

RIGHTS = "apis/rbac.authorization.k8s.io/v1"
ACCOUNT = "spark"
VERBS = ["get", "list", "watch", "create", "patch", "delete", "deletecollection"]
GRANTED = [
    {"apiGroups": [""], "resources": ["pods", "services", "configmaps", "persistentvolumeclaims"], "verbs": VERBS},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": VERBS},
]
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount"  # what the account's pods have of it


class KubernetesCluster:
    """An API server that lets Spark do what its account may do, and one kubelet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bare = bare_python(directory / "bare")
        self._certificates = Authority()
        self._certificate = directory / "authority.pem"
        self._certificate.write_text(self._certificates.pem)
        self.address = f"https://{ADDRESS}:{free_ports()}"
        self.api = Api(self.address, secrets.token_hex(), self._certificate)
        self._server: subprocess.Popen[bytes] | None = None
        image = {**daemon_environment(directory), "PATH": os.pathsep.join((str(self._bare), os.environ["PATH"]))}
        del image["SPARK_LOCAL_DIRS"]  # each pod has its own
        self._kubelet = Kubelet(self.api, directory / "pods", image)

    @property
    def url(self) -> str:
        """What Spark takes as its master."""
        return f"k8s://{self.address}"

    @property
    def pods(self) -> list[Pod]:
        """All pods that ever ran."""
        return list(self._kubelet.pods.values())

    def start(self) -> None:
        """Start the server, wait until it serves, make what every namespace has, and the account."""
        secret = self._certificates.sign().write(self.directory, "server")
        users = self.directory / "users.csv"
        users.write_text(f"{self.api.token},kubelet,kubelet,system:masters\n")
        command = [
            *(str(builds.api_server()), str(self.directory / "etcd"), f"--cert-dir={self.directory}"),
            *(f"--bind-address={ADDRESS}", f"--secure-port={self.address.rpartition(':')[2]}"),
            *(f"--tls-cert-file={secret}", f"--tls-private-key-file={secret}", f"--token-auth-file={users}"),
            *(f"--service-account-key-file={secret}", f"--service-account-signing-key-file={secret}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24"),
            "--authorization-mode=RBAC",
        ]
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        self._await_ready()
        self._make_account()
        self._kubelet.start()

    def settings(self) -> dict[str, str]:
        """Return what a client needs besides the master."""
        return {
            "spark.kubernetes.container.image": "spark",
            "spark.kubernetes.authenticate.caCertFile": str(self._certificate),
            "spark.kubernetes.authenticate.oauthToken": self.api.token_of(ACCOUNT),
            "spark.executor.instances": "2",
        }

    def await_pods(self, count: int) -> None:
        """Wait until so many pods have started, with those that have ended."""
        deadline = time.monotonic() + START_PATIENCE_S
        while len(self.pods) < count:
            assert time.monotonic() < deadline, [pod.name for pod in self.pods]
            time.sleep(PAUSE_S)

    def driver_environment(self) -> dict[str, str]:
        """Return the environment of a driver."""
        return driver_environment(self.directory, self._bare)

    def submit(self, program: Path, archive: Path, *arguments: str) -> None:
        """Run a program whose driver is in a pod of the account. Raises CalledProcessError."""
        submitter = "spark.kubernetes.authenticate.submission"
        mounted = "spark.kubernetes.authenticate.driver.mounted"
        settings = {
            **{name: value for name, value in SETTINGS.items() if not name.startswith("spark.driver.")},
            **executor_settings(str(archive)),
            "spark.driver.memory": "768m",
            "spark.executor.instances": "2",
            "spark.kubernetes.container.image": "spark",
            "spark.kubernetes.driverEnv.PYTHONPATH": DIRECTORY,
            "spark.kubernetes.file.upload.path": f"file://{self.directory}/uploads",
            "spark.kubernetes.authenticate.driver.serviceAccountName": ACCOUNT,
            f"{submitter}.caCertFile": str(self._certificate),
            f"{submitter}.oauthToken": self.api.token_of(ACCOUNT),
            # The names in a cluster, https://kubernetes.default.svc and the folder, are Spark's defaults.
            "spark.kubernetes.driver.master": self.address,
            f"{mounted}.caCertFile": f"{MOUNTED}/ca.crt",
            f"{mounted}.oauthTokenFile": f"{MOUNTED}/token",
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        (self.directory / "uploads").mkdir(exist_ok=True)
        spark_submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", "cluster"]
        environment = {**daemon_environment(self.directory), "PATH": os.environ["PATH"]}
        del environment["SPARK_LOCAL_DIRS"]  # Spark would mount an empty folder at this path
        with (self.directory / "submit.log").open("wb") as log:
            subprocess.run(
                [*spark_submit, *words, str(program), *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                check=True,
            )

    def close(self) -> None:
        """End all processes."""
        self._kubelet.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    @property
    def _log(self) -> Path:
        return self.directory / "api-server.log"

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_PATIENCE_S
        while not self.api.is_ready():
            assert self._server is not None and self._server.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(PAUSE_S)

    def _make_account(self) -> None:
        """Make the accounts of Spark and of pods that name none, and say what Spark's may do."""
        self._make(CORE, "configmaps", "kube-root-ca.crt", data={"ca.crt": self._certificates.pem})
        for name in ("default", ACCOUNT):
            self._make(CORE, "serviceaccounts", name)
        self._make(RIGHTS, "roles", ACCOUNT, rules=GRANTED)
        subjects = [{"kind": "ServiceAccount", "name": ACCOUNT}]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
        self._make(RIGHTS, "rolebindings", ACCOUNT, subjects=subjects, roleRef=role)

    def _make(self, group: str, kind: str, name: str, **content: Any) -> None:
        self.api.ask("POST", kind, {"metadata": {"name": name}, **content}, group=group)


@contextmanager
def running_kubernetes(directory: Path) -> Iterator[KubernetesCluster]:
    """A cluster for the length of a block."""
    cluster = KubernetesCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
