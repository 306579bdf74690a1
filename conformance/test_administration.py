"""Every method of the Java client's Admin that a broker without security serves, of one node and of several.

What is expected of each is in `programs/java_admin`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conformance import builds
from conformance.clients import JAVA_OPTIONS, PATIENCE_S
from conformance.conftest import Broker
from tests.running import running_broker


def call_every_method(bootstrap: str, prefix: str) -> None:
    command = ["java", *JAVA_OPTIONS, "-cp", builds.java_admin(), "conformance.EveryMethod", bootstrap, prefix]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
    assert ended.stdout.endswith(" methods were called\n")


def test_every_admin_method_works_with_one_broker(broker: Broker) -> None:
    call_every_method(broker.bootstrap_servers, "every-method")


@pytest.mark.minibroker_only
def test_every_admin_method_works_with_three_nodes_and_two_log_directories(tmp_path: Path) -> None:
    with running_broker(tmp_path, f"log.dirs={tmp_path}/one,{tmp_path}/two", nodes=3) as cluster:
        call_every_method(cluster.bootstrap_servers, "before")
        cluster.restart()
        call_every_method(cluster.bootstrap_servers, "after")
