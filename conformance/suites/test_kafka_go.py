"""The tests of kafka-go that ask a broker, which must be at localhost:9092: readers, groups, administration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.suites import running
from tests.running import running_broker

VERSION = "0.4.51"
AS_OF = "4.0.0"  # the newest release that these tests know
TIMEOUT_S = 1200
# The tests that fail when no broker listens
TESTS = (running.HERE / "kafka_go.txt").read_text().split()
# Three parts call a function that is nil, whatever the broker, and the program ends. In the next two readers want 12 of
# 24 records each, but have 8 and 16 if they join at once, as here. The last is skipped by its authors.
DISABLED = (
    "TestReaderConsumerGroup/^(verify_offset_committed|verify_offset_committed_when_using_interval_committer|"
    "consumer_group_commits_on_close|consumer_group_rebalance)$|TestConn/^nettest$"
)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9093",
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "3000",  # Kafka's default; some tests create a topic meanwhile
    "message.max.bytes": "200000000",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    'required username="adminplain" password="admin-secret" user_adminplain="admin-secret";',
}
USERS = (
    *("--add-scram", "SCRAM-SHA-256=[name=adminscram,password=admin-secret-256]"),
    *("--add-scram", "SCRAM-SHA-512=[name=adminscram,password=admin-secret-512]"),
)


@pytest.mark.thorough
@pytest.mark.minibroker_only
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_kafka_gos_own_tests_end_as_expected(against: str, tmp_path: Path) -> None:
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    command = ["go", "test", "-mod=mod", "-v", "-count=1", f"-timeout={TIMEOUT_S}s", "-run"]
    command += [f"^({'|'.join(TESTS)})$", "-skip", DISABLED, "."]
    environment = os.environ | {"KAFKA_VERSION": AS_OF}
    source = running.go_module("github.com/segmentio/kafka-go", VERSION)
    with running_broker(tmp_path, *settings, options=USERS), (tmp_path / "output").open("wb") as output:
        subprocess.run(command, cwd=source, env=environment, stdout=output)
    outcomes = running.of_go("kafka-go", (tmp_path / "output").read_text(errors="replace"))
    running.finish(f"kafka-go {VERSION}", outcomes, against)
