"""Our client against Apache Kafka and minibroker with TLS and SASL: of the pipeline, in an event loop, of a command.

The settings are those that Spark's users write after `kafka.`; the certificates are those of the client's own tests.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from conformance.kafka_reference import KafkaProcess
from minibroker.cli.main import main
from minibroker.client.asynchronous import AsyncClient
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.pipeline.brokers.broker_source import BrokerSource
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.java import read_store_as_pem
from minibroker.pipeline.log_source import OffsetRange, ReadRequest, TopicPartition, TopicSelection
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from tests.clients.ports import free_ports
from tests.running import running_broker

pytestmark = [
    pytest.mark.minibroker_only,  # asks the brokers that it starts itself
]
CERTIFICATES = Path(__file__).parents[2] / "tests" / "client" / "certificates"
MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required"
SCRAM = f"{MODULES}.scram.ScramLoginModule required"
BEARER = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"
IMPATIENT = {"request.timeout.ms": "5000", "default.api.timeout.ms": "8000"}
TRUST = {"ssl.truststore.location": str(CERTIFICATES / "ca.pem"), "ssl.truststore.type": "PEM"}
WITH_TLS = {"security.protocol": "SASL_SSL", **TRUST}
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
Addresses = dict[str, str]  # host:port by listener


LISTENERS = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "SECURE": "SASL_SSL", "CLEAR": "SASL_PLAINTEXT"}


def security_settings() -> dict[str, str]:
    """Return settings of listeners for each way in, on either broker."""
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CERTIFICATES / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(CERTIFICATES / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM_256},{SCRAM_512},OAUTHBEARER",
    }
    for listener in ("secure", "clear"):
        name = f"listener.name.{listener}"
        given[f"{name}.plain.sasl.jaas.config"] = f'{PLAIN} user_alice="secret";'
        given[f"{name}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM};"
        given[f"{name}.scram-sha-512.sasl.jaas.config"] = f"{SCRAM};"
        given[f"{name}.oauthbearer.sasl.jaas.config"] = f'{BEARER} unsecuredLoginStringClaim_sub="broker";'
    return given


def protocols(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}:{protocol}" for name, protocol in listeners.items())


class SecureKafka(KafkaProcess):
    """Apache Kafka with these listeners."""

    def _write_properties(self, controller_port: int, properties: Mapping[str, str]) -> None:
        port = free_ports(3)
        self.addresses = {"PLAINTEXT": f"127.0.0.1:{self._port}"}
        self.addresses |= {name: f"127.0.0.1:{port + index}" for index, name in enumerate(("TLS", "SECURE", "CLEAR"))}
        listeners = {**self.addresses, "CONTROLLER": f"127.0.0.1:{controller_port}"}
        given = {
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": protocols({**LISTENERS, "CONTROLLER": "PLAINTEXT"}),
            **security_settings(),
        }
        super()._write_properties(controller_port, {**given, **properties})


@contextmanager
def running_apache_kafka(directory: Path) -> Iterator[Addresses]:
    broker = SecureKafka(directory, {})
    broker.start()
    try:
        yield broker.addresses
    finally:
        broker.kill()


@contextmanager
def running_minibroker(directory: Path) -> Iterator[Addresses]:
    given = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": protocols(LISTENERS),
        "node.id": "0",
        **security_settings(),
    }
    with running_broker(directory, *(f"{name}={text}" for name, text in given.items())) as ours:
        yield dict(zip(LISTENERS, ours.bootstrap_servers.split(","), strict=True))
        assert "Traceback" not in ours.log and "secret" not in ours.log


BROKERS = {"kafka": running_apache_kafka, "minibroker": running_minibroker}


@pytest.fixture(scope="module", params=list(BROKERS))
def addresses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    """By listener, of a broker with the topic `t` of 100 records, and the user alice for both kinds of SCRAM."""
    with BROKERS[request.param](tmp_path_factory.mktemp("broker")) as addresses:
        admin = AdminClient({"bootstrap.servers": addresses["PLAINTEXT"]})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"secret")
            admin.alter_user_scram_credentials([credential])["alice"].result()
        producer = Producer({"bootstrap.servers": addresses["PLAINTEXT"]})
        for number in range(100):
            producer.produce("t", b"%d" % number)
        assert producer.flush(30) == 0
        del admin, producer  # or they would complain that the broker has gone
        if request.param == "kafka":
            time.sleep(1)  # until the credentials have reached the broker from the controller
        yield addresses


def sasl(mechanism: str, jaas: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


ALICE = 'username="alice" password="secret";'
WAYS = {
    "TLS with a certificate": (
        "TLS",
        {
            "security.protocol": "SSL",
            **TRUST,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(CERTIFICATES / "client.pem"),
            "ssl.key.password": "secret",
        },
    ),
    "PLAIN": ("SECURE", {**WITH_TLS, **sasl("PLAIN", f"{PLAIN} {ALICE}")}),
    SCRAM_256: ("SECURE", {**WITH_TLS, **sasl(SCRAM_256, f"{SCRAM} {ALICE}")}),
    SCRAM_512: ("SECURE", {**WITH_TLS, **sasl(SCRAM_512, f"{SCRAM} {ALICE}")}),
    "OAUTHBEARER": ("SECURE", {**WITH_TLS, **sasl("OAUTHBEARER", f'{BEARER} unsecuredLoginStringClaim_sub="alice";')}),
    "without TLS": ("CLEAR", {"security.protocol": "SASL_PLAINTEXT", **sasl(SCRAM_256, f"{SCRAM} {ALICE}")}),
    "librdkafka's names": (
        "SECURE",
        {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(CERTIFICATES / "ca.pem"),
            "sasl.mechanisms": SCRAM_256,
            "sasl.username": "alice",
            "sasl.password": "secret",
        },
    ),
    "Java's store": (
        "SECURE",
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(CERTIFICATES / "trusted.jks"),
            "ssl.truststore.password": "changeit",
            **sasl("PLAIN", f"{PLAIN} {ALICE}"),
        },
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_topic_is_read_with_every_security_protocol(addresses: Addresses, way: str) -> None:
    listener, settings = WAYS[way]
    log = BrokerSource(addresses[listener], TopicSelection(("t",)), settings)
    (partition,) = log.list_partitions()
    bounds = log.find_bounds([partition])[partition]
    (split,) = log.make_splits([OffsetRange(partition, *bounds)])
    values = [value for batch in log.read_split(split, ReadRequest("records", ("value",))) for value in batch["value"]]
    log.close()
    assert [int(value.as_py()) for value in values] == list(range(100))


@pytest.mark.parametrize(
    ("listener", "settings", "message"),
    [
        (
            "SECURE",
            {**WITH_TLS, **sasl("PLAIN", f"{PLAIN} username=alice password=wrong;")},
            "authentication by",
        ),
        (
            "SECURE",
            {**WITH_TLS, **sasl(SCRAM_256, f"{SCRAM} username=bob password=b;")},
            "authentication by",
        ),
        ("SECURE", {**WITH_TLS, "ssl.truststore.location": str(CERTIFICATES / "client.pem")}, "TLS: "),
        ("TLS", {"security.protocol": "SSL", **TRUST}, "Metadata: "),
        ("CLEAR", {}, "Metadata: "),
    ],
    ids=["wrong password", "unknown user", "not trusted", "no certificate", "no security"],
)
def test_a_failed_login_is_reported_in_one_line(
    addresses: Addresses, listener: str, settings: dict[str, str], message: str
) -> None:
    if settings.get("security.protocol") == "SASL_SSL" and "sasl.mechanism" not in settings:
        settings = {**settings, **sasl("PLAIN", f"{PLAIN} {ALICE}")}
    with (
        Client(addresses[listener], {**IMPATIENT, **settings}) as client,
        pytest.raises(ClientError, match=message) as failure,
    ):
        client.find_leader(TopicPartition("t", 0))
    assert "\n" not in str(failure.value) and str(failure.value).startswith(addresses[listener])


@pytest.mark.parametrize("way", WAYS)
async def test_spark_tasks_with_an_event_loop_connect_with_every_security_protocol(
    addresses: Addresses, way: str
) -> None:
    listener, settings = WAYS[way]
    given = {"bootstrap.servers": addresses[listener], **settings}
    async with AsyncClient(ClientSettings(given, read_store=read_store_as_pem)) as client:
        assert (await client.find_leader(("t", 0))).node_id == 0
        answers = await asyncio.gather(*(client.request(DescribeClusterRequest(), 0) for _ in range(20)))
    assert all(len(answer.brokers) == 1 for answer in answers)


async def test_a_wrong_password_fails_the_spark_task_with_a_reason(addresses: Addresses) -> None:
    wrong = {**WITH_TLS, **sasl(SCRAM_512, f"{SCRAM} username=alice password=wr0ng;"), **IMPATIENT}
    async with AsyncClient(ClientSettings({"bootstrap.servers": addresses["SECURE"], **wrong})) as client:
        with pytest.raises(ClientError, match="authentication by SCRAM-SHA-512 failed") as failure:
            await client.fetch_node_ids()
    assert "wr0ng" not in str(failure.value)


def test_pipeline_commands_connect_with_every_security_protocol(addresses: Addresses) -> None:
    run = functools.partial(run_command, addresses["SECURE"], WAYS["librdkafka's names"][1])
    assert run("transactions", "list") == []
    assert run("topics", "create", "made", "--partitions", "2", "--config", "retention.ms=5000") == {"created": "made"}
    assert {"name": "made", "partitions": 2, "replication_factor": 1} in run("topics", "list")
    made = run("topics", "describe", "made")
    assert made["configs"] == {"retention.ms": "5000"} and [each["latest"] for each in made["partitions"]] == [0, 0]
    changed = run("topics", "config", "made", "--set", "retention.ms=6000", "--delete", "flush.ms")
    assert changed == {"name": "made", "set": {"retention.ms": "6000"}, "deleted": ["flush.ms"]}
    assert {row["config"]: row["value"] for row in run("topics", "config", "made")}["retention.ms"] == "6000"
    assert run("topics", "alter", "made", "--partitions", "3")["before"] == 2
    moved = run("groups", "reset-offsets", "billing", "--topic", "t", "--to-offset", "40", "--execute")
    assert moved["offsets"] == [{"topic": "t", "partition": 0, "current": None, "new": 40}]
    assert {"group": "billing", "type": "classic", "protocol": "", "state": "Empty"} in run("groups", "list")
    (place,) = run("groups", "describe", "billing")["offsets"]
    assert (place["committed"], place["end"], place["lag"]) == (40, 100, 60)
    assert run("groups", "delete", "billing") == {"deleted": ["billing"]}
    assert run("topics", "delete", "made") == {"deleted": ["made"]}


def run_command(address: str, settings: dict[str, str], *arguments: str) -> Any:
    given = [word for pair in settings.items() for word in ("--client", "=".join(pair))]
    result = CliRunner().invoke(main, [*arguments, "--json", "--bootstrap-server", address, *given])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
