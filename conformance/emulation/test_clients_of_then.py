"""Java clients of several years, each with a broker that emulates the release of its time.

The topics are made on demand, as then. What the clients make of today's broker is in test_formats.
"""

from __future__ import annotations

import subprocess

import pytest

from conformance import builds
from conformance.clients import JAVA_OPTIONS, PATIENCE_S
from minibroker.testing import Broker
from tests.leaving import leaves_sockets

__all__ = ["leaves_sockets"]
pytestmark = pytest.mark.usefixtures("leaves_sockets")

COUNT = 60  # what OldWriter writes to a topic
SETTINGS = {"num.partitions": 3, "log.retention.ms": -1}  # the records' times are of 2023


def run(version: str, program: str, *arguments: str) -> None:
    command = ["java", *JAVA_OPTIONS, "-cp", builds.old_java(version), program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 0, f"{program} of {version}:\n{result.stdout[-2000:]}{result.stderr[-4000:]}"


@pytest.mark.parametrize(
    ("release", "version", "magic"),
    [
        ("0.8.2", "0.8.2.2", 0),
        ("0.9", "0.9.0.1", 0),
        ("0.10.2", "0.10.2.2", 1),
        ("0.11", "0.11.0.3", 2),
        ("2.0", "2.0.1", 2),
        ("2.8", "2.8.2", 2),
        ("3.9", "3.9.2", 2),
    ],
)
def test_an_old_client_produces_to_and_consumes_from_the_emulated_release_of_its_time(
    release: str, version: str, magic: int
) -> None:
    with Broker(SETTINGS, emulate=release) as broker:
        codecs = ("none", "gzip")
        run(version, "OldWriter", broker.bootstrap_servers, version, *(f"{codec}:{codec}:false" for codec in codecs))
        assert {record.magic for codec in codecs for record in broker.records(codec)} == {magic}
        names = [f"{codec}:{magic}" for codec in codecs]
        records = str(COUNT * len(codecs))
        if release == "0.8.2":
            run(version, "OldReader", broker.bootstrap_servers, records, *names)
        else:
            run(version, "OldConsumer", broker.bootstrap_servers, records, "group", *names)
            broker.wait_for_commit("group", "gzip", timeout=20)
