"""The tests of librdkafka that ask a broker, in their quick mode, each in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance.kafka_reference import kafka_command, running_kafka
from conformance.kafka_tests.running import Outcome
from conformance.suites import running
from tests.running import running_broker

PACKAGE, VERSION = "@confluentinc/kafka-javascript@1.10.1", "2.15.1"  # the package has librdkafka's source, with tests
TIMEOUT_S, TEST_TIMEOUT_S = 3000, 300
AT_ONCE = 2
NODES = 3  # of minibroker; Apache Kafka has one here, and some tests then fail
SETTINGS = {
    "num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "3000",  # Kafka's default; some tests count rebalances
}
# What the tests call of a directory of Apache Kafka
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
}
FAILURE = re.compile(r"### Test \"(?P<name>[^ \"]+).* failed at (?P<where>.*?) at .*\n(?P<why>.*)")


@pytest.mark.thorough
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_librdkafkas_own_tests_end_as_expected(against: str, tmp_path: Path) -> None:
    tests = built()
    if against == "kafka":
        with running_kafka(tmp_path, SETTINGS) as kafka:
            outcomes = run(tests, kafka.bootstrap_servers, tmp_path)
    else:
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        with running_broker(tmp_path, *settings, nodes=NODES) as broker:
            outcomes = run(tests, broker.bootstrap_servers, tmp_path)
    running.finish(f"librdkafka {VERSION}", outcomes, against)


def built() -> Path:
    """Return the folder with the program that has the tests, which takes minutes to compile."""
    folder = running.HERE / "target" / f"librdkafka-{VERSION}"
    if not (folder / "tests" / "test-runner").exists():
        folder.mkdir(parents=True, exist_ok=True)
        packing = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True, text=True
        )
        with tarfile.open(folder / packing.stdout.strip()) as archive:
            archive.extractall(folder, members=_sources(archive), filter="data")
        subprocess.run(["./configure", "--disable-lz4-ext"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["make", "libs"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["make", "-C", "tests", "build"], cwd=folder, check=True, capture_output=True)
    return folder / "tests"


def _sources(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of librdkafka's, by their paths there."""
    inside = "package/deps/librdkafka/"
    for member in archive.getmembers():
        if member.name.startswith(inside):
            script = member.name.endswith((".sh", "/configure", ".py")) or "/mklove/" in member.name
            mode = 0o755 if script else 0o644
            yield member.replace(name=member.name.removeprefix(inside), mode=mode)


def run(tests: Path, broker: str, folder: Path) -> dict[str, Outcome]:
    """Run each test, and return how those ended that ask a broker; what they print goes to the folder."""
    tools = folder / "kafka" / "bin"
    tools.mkdir(parents=True)
    for name, program in TOOLS.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(kafka_command(program))} "$@"\n')
        (tools / name).chmod(0o755)
    (folder / "test.conf").write_text(f"bootstrap.servers={broker}\ntest.timeout.multiplier=2\n")
    environment = {
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(folder / "test.conf"),
        "TEST_KAFKA_VERSION": "4.4.0",
        "KAFKA_PATH": str(tools.parent),
        "BROKERS": broker,
        "CI": "1",
    }
    known = reported(run_one(tests, "none", environment, folder))
    numbers = sorted({name[:4] for name in known if name < "1000"})  # the others are for use by hand
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda number: outcomes_of(tests, number, environment, folder), numbers)
    return {f"librdkafka#{name}": ended for outcomes in found for name, ended in outcomes.items()}


def run_one(tests: Path, number: str, environment: Mapping[str, str], folder: Path) -> Path:
    """Run the tests whose names begin with this number, but those that ask no broker; return where they report."""
    report = folder / f"{number}.json"
    environment = os.environ | environment | {"TESTS": number, "TEST_REPORT": str(report)}
    command = ["./test-runner", "-Q", "-L", "-K", "-p1"]  # quick, none without a broker, none that is known to fail
    with (folder / f"{number}.txt").open("wb") as output:
        try:
            subprocess.run(command, cwd=tests, env=environment, stdout=output, stderr=output, timeout=TEST_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            output.write(b"timed out")
    return report


def reported(report: Path) -> dict[str, tuple[str, float]]:
    """Return for each test of a report its state and duration; nothing if it is not there or not whole."""
    try:
        tests = json.loads(report.read_text())["tests"]
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return {name: (test["state"], test["duration"]) for name, test in tests.items()}


def outcomes_of(tests: Path, number: str, environment: Mapping[str, str], folder: Path) -> dict[str, Outcome]:
    """Run the tests of this number; return how those ended that ran."""
    report = reported(run_one(tests, number, environment, folder))
    text = (folder / f"{number}.txt").read_text(errors="replace")
    if not report:
        return {number: Outcome("failed", text.rstrip().rpartition("\n")[2][:300], TEST_TIMEOUT_S)}
    reasons = {found["name"]: f"{found['where']}: {found['why']}"[:300] for found in FAILURE.finditer(text)}
    ran = {name: end for name, end in report.items() if name.startswith(number) and end != ("SKIPPED", 0)}
    return {name: Outcome(state.lower(), reasons.get(name, ""), seconds) for name, (state, seconds) in ran.items()}
