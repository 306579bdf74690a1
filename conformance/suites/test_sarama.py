"""The functional tests of sarama, with five nodes behind toxiproxy, which cuts and delays their connections."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.kafka_tests.running import Outcome
from conformance.suites import running
from tests.clients.ports import free_ports
from tests.running import running_broker

VERSION, TOXIPROXY_VERSION = "1.61.1", "2.5.0"
TIMEOUT_S = 1200
AS_OF = "4.3.1"  # the newest release that these tests know
DISABLED = {"TestReadOnlyAndAllCommittedMessages"}  # skipped by its authors whatever the broker is
# How often failed tests run once more: this client sends no heartbeat while a fetch of its connection waits, and may
# so lose its membership, by chance.
AGAIN = 2
NODES = 5
FIRST_PORT = 29091  # the tests know the addresses of the nodes
SETTINGS = {
    "node.id": "1",
    "broker.rack": "1,2,3,4,5",
    "advertised.listeners": f"PLAINTEXT://localhost:{FIRST_PORT}",  # the next node has the next port
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",  # as in the properties that come with Kafka
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


# What the tests call to stop and start a node, and to look for Java's exceptions in its log
DOCKER = """#!/bin/sh
case "$2" in
stop | start) exec curl -sS -o /dev/null -X POST -d '{{}}' "{control}/v1/nodes/${{3#kafka-}}/$2" ;;
logs)
    export SINCE=$(echo "$4" | tr TZ '  ')
    sed s/OUT_OF_ORDER_SEQUENCE_NUMBER/OutOfOrderSequenceException/ {log} | awk '$0 >= ENVIRON["SINCE"]'
    ;;
*) exit 1 ;;
esac
"""


@pytest.mark.thorough
@pytest.mark.minibroker_only
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_saramas_own_tests_end_as_documented(against: str, tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    first = free_ports(NODES)
    settings.append(f"listeners=PLAINTEXT://127.0.0.1:{first}")
    control = free_ports()
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(control=f"http://127.0.0.1:{control}", log=tmp_path / "broker.stderr"))
    docker.chmod(0o755)
    broker = running_broker(tmp_path, *settings, nodes=NODES, options=("--control", str(control)))
    with broker, toxiproxy(tmp_path, first) as address:
        outcomes = run(all_tests(), address, tmp_path)
        for _ in range(AGAIN):
            failed = {test.partition("#")[2].partition("/")[0] for test in outcomes if outcomes[test].state == "failed"}
            outcomes |= run(failed, address, tmp_path)
    running.finish(f"sarama {VERSION}", outcomes, against)


@contextmanager
def toxiproxy(folder: Path, first: int) -> Iterator[str]:
    """Have toxiproxy run with a proxy for each node; its own address."""
    port = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [str(toxiproxy_program()), "-host", "127.0.0.1", "-port", str(port)]
    with (folder / "toxiproxy.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 30
        while not answers(f"{address}/version"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for index in range(NODES):
            proxy = {"listen": f"127.0.0.1:{FIRST_PORT + index}", "upstream": f"127.0.0.1:{first + index}"}
            body = json.dumps({"name": f"kafka{index + 1}", "enabled": True} | proxy).encode()
            urllib.request.urlopen(urllib.request.Request(f"{address}/proxies", body)).close()
        yield address
    finally:
        process.kill()
        process.wait()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address).close()
    except urllib.error.URLError:
        return False
    return True


def toxiproxy_program() -> Path:
    programs = running.HERE / "target" / "bin"
    if not (programs / "server").exists():
        programs.mkdir(parents=True, exist_ok=True)
        installing = ["go", "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@v{TOXIPROXY_VERSION}"]
        subprocess.run(installing, cwd=programs, env=os.environ | {"GOBIN": str(programs)}, check=True)
    return programs / "server"


def all_tests() -> set[str]:
    source = running.go_module("github.com/IBM/sarama", VERSION)
    texts = [file.read_text() for file in source.glob("functional_*_test.go")]
    return {name for text in texts for name in re.findall(r"^func (Test\w+)\(", text, re.MULTILINE)} - DISABLED


def run(tests: Collection[str], address: str, folder: Path) -> dict[str, Outcome]:
    """Run these tests, which learn the nodes' addresses from toxiproxy, and return how they ended.

    They find programs in the folder's `bin`; what they print is added to its `output`.
    """
    if not tests:
        return {}
    source = running.go_module("github.com/IBM/sarama", VERSION)
    command = ["go", "test", "-v", "-count=1", "-tags=functional", f"-timeout={TIMEOUT_S}s"]
    environment = os.environ | {"TOXIPROXY_ADDR": address, "KAFKA_VERSION": AS_OF}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    selected = [*command, "-run", f"^({'|'.join(tests)})$", "."]
    printed = subprocess.run(selected, cwd=source, env=environment, stdout=subprocess.PIPE, text=True).stdout
    with (folder / "output").open("a") as output:
        output.write(printed)
    return running.of_go("sarama", printed)
