"""The integration tests in kafka-python's source distribution: consumers, groups, producers, transactions, admin."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from conformance.kafka_reference import running_kafka
from conformance.suites import running
from tests.clients.ports import free_ports
from tests.running import running_broker

VERSION = "3.0.12"
TIMEOUT_S = 900
AS_OF = "4.3.0"  # the newest release that this client knows
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "1000",
}
# The distribution lacks this module, of which tests with a broker that runs already need no more, and an `__init__.py`.
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = open


SpawnedService = None
"""


@pytest.mark.thorough
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_kafka_pythons_own_tests_end_as_expected(against: str, tmp_path: Path) -> None:
    if against == "kafka":
        with running_kafka(tmp_path, SETTINGS) as kafka:
            run(kafka.bootstrap_servers, tmp_path)
    else:
        listeners = f"PLAINTEXT://127.0.0.1:{free_ports()}"
        addresses = {"listeners": listeners, "advertised.listeners": listeners}  # a test looks whether both are set
        with running_broker(tmp_path, *(f"{name}={value}" for name, value in (SETTINGS | addresses).items())) as broker:
            run(broker.bootstrap_servers, tmp_path)
    outcomes = running.of_junit("kafka-python", tmp_path / "junit.xml")
    running.finish(f"kafka-python {VERSION}", outcomes, against)


def run(broker: str, folder: Path) -> None:
    """Run the tests with a broker; their report goes to `junit.xml` in the folder, and what they print to `output`."""
    environment = os.environ | {"KAFKA_URI": f"kafka://{broker}", "KAFKA_VERSION": AS_OF, "PYTHONPATH": "."}
    environment["KAFKA_ROOT"] = str(folder)  # must be there, but is not asked for anything
    command = [sys.executable, "-m", "pytest", "test/integration", "-q", "-p", "no:cacheprovider", "--timeout=120"]
    command += [f"--junitxml={folder / 'junit.xml'}", "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:anyio"]
    with (folder / "output").open("wb") as output:
        subprocess.run(command, cwd=source(), env=environment, stdout=output, stderr=output, timeout=TIMEOUT_S)


def source() -> Path:
    """Return a folder with the distribution's source."""
    folder = running.HERE / "target" / f"kafka_python-{VERSION}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        fetching = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "kafka-python"]
        subprocess.run([*fetching, f"kafka-python=={VERSION}"], cwd=folder.parent, check=True)
        with tarfile.open(folder.parent / f"{folder.name}.tar.gz") as archive:
            archive.extractall(folder.parent, filter="data")
        (folder / "test" / "service.py").write_text(SERVICE)
        (folder / "test" / "__init__.py").touch()
    return folder
