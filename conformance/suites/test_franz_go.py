"""The tests of franz-go's client that ask a broker: groups of all kinds, transactions, regular expressions, pauses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conformance.kafka_reference import running_kafka
from conformance.suites import running
from tests.running import running_broker

VERSION = "1.22.3"
TIMEOUT_S = 1200
RECORDS = 100_000  # for the tests that copy records; their own default is 500,000, which takes this machine too long
# The tests that fail when no broker listens, and one that expects an error
TESTS = (running.HERE / "franz_go.txt").read_text().split()
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
SETTINGS = {"group.share.delivery.count.limit": "10"}  # as the authors' own runs have it
SASL_SETTINGS = {
    "listeners": LISTENERS,
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
    'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}
ADD_USER = ("--add-scram", "SCRAM-SHA-256=[name=testuser,password=testpass]")


@pytest.mark.thorough
@pytest.mark.timeout(2 * TIMEOUT_S)
def test_franz_gos_own_tests_end_as_expected(against: str, tmp_path: Path) -> None:
    if against == "kafka":
        with running_kafka(tmp_path, SETTINGS) as kafka:
            output = run(kafka.bootstrap_servers, None)
    else:
        settings = [f"{name}={value}" for name, value in (SETTINGS | SASL_SETTINGS).items()]
        with running_broker(tmp_path, *settings, options=ADD_USER) as broker:
            output = run(*broker.bootstrap_servers.split(","))
    running.finish(f"franz-go {VERSION}, pkg.kgo", running.of_go("kgo", output), against)


def run(broker: str, sasl: str | None) -> str:
    """Run the tests with a broker, and with a listener of it for SASL; return what they printed."""
    environment = {"KGO_SEEDS": broker, "KGO_TEST_RF": "1", "KGO_TEST_STABLE_FETCH": "true", "KGO_LOG_LEVEL": "none"}
    environment["KGO_TEST_RECORDS"] = str(RECORDS)
    if sasl is not None:
        environment |= {"KGO_TEST_SCRAM_SEEDS": sasl, "KGO_TEST_OAUTH_SEEDS": sasl}
        environment["KGO_TEST_SCRAM"] = "testuser:testpass"
    command = ["go", "test", "-v", "-count=1", f"-timeout={TIMEOUT_S}s", "-run", f"^({'|'.join(TESTS)})$", "."]
    source = running.go_module("github.com/twmb/franz-go", VERSION) / "pkg" / "kgo"
    result = subprocess.run(command, cwd=source, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    return result.stdout
