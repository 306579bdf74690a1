"""Java's clients and Kafka's own tools over TLS: with stores made by keytool, and with certificates of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.clients import PATIENCE_S
from conformance.kafka_reference import kafka_command
from tests.certificates import Authority
from tests.running import RunningBroker, running_broker

TOOLS = "org.apache.kafka.tools"
PASSWORD = "the-secret"
RECORDS = "".join(f"record {number}\n" for number in range(1000))

Tool = Callable[..., str]


class Stores:
    """Stores that Java's keytool has made, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority()
        self._write("ca.crt", self.authority.pem)
        self._keytool("-importcert", "-alias", "ca", "-file", self.path("ca.crt"), "-keystore", self.path("trust.jks"))

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def add(self, name: str, subject: str) -> str:
        """Make a key in a store of its own, and have the authority sign it; return the store's path."""
        store = self.path(f"{name}.jks")
        signed = self.authority.sign(subject)
        self._write(f"{name}.pem", signed.key_pem() + signed.certificate_pem + self.authority.pem)
        command = ["openssl", "pkcs12", "-export", "-in", self.path(f"{name}.pem"), "-out", self.path(f"{name}.p12")]
        subprocess.run([*command, "-passout", f"pass:{PASSWORD}"], check=True, capture_output=True)
        Path(store).unlink(missing_ok=True)
        source = ("-srckeystore", self.path(f"{name}.p12"), "-srcstorepass", PASSWORD)
        self._keytool("-importkeystore", *source, "-destkeystore", store, kind="dest")
        return store

    def _write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)

    def _keytool(self, *arguments: str, kind: str = "") -> None:
        store = (f"-{kind}storetype", "PKCS12", f"-{kind}storepass", PASSWORD, "-noprompt")
        subprocess.run(["keytool", *arguments, *store], check=True, capture_output=True)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    made = Stores(tmp_path_factory.mktemp("stores"))
    made.add("client", "CN=alice,OU=people")
    return made


@pytest.fixture(scope="module")
def broker(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "listener.name.ssl.ssl.keystore.location": stores.add("broker", "CN=broker"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": stores.path("trust.jks"),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    }
    assignments = [f"{name}={text}" for name, text in settings.items()]
    with running_broker(tmp_path_factory.mktemp("broker"), *assignments) as running:
        yield running
        assert "Traceback" not in running.log and PASSWORD not in running.log


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def tool(request: pytest.FixtureRequest, broker: RunningBroker, stores: Stores, tmp_path: Path) -> Tool:
    """Runs a tool with this version of TLS, and returns what it printed; AssertionError if it fails."""
    client = {
        "security.protocol": "SSL",
        "ssl.enabled.protocols": request.param,
        "ssl.keystore.location": stores.path("client.jks"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": stores.path("trust.jks"),
        "ssl.truststore.password": PASSWORD,
    }
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in client.items()))

    def run(name: str, *arguments: str, sent: str = "") -> str:
        command = kafka_command(name)
        command += ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties), *arguments]
        ended = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ended.returncode == 0, f"{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
        return ended.stdout

    return run


def test_records_are_produced_and_consumed_over_tls(tool: Tool, request: pytest.FixtureRequest) -> None:
    topic = request.node.name.replace("[", "-").replace("]", "")
    tool(f"{TOOLS}.ConsoleProducer", "--topic", topic, sent=RECORDS)
    ends = ("--from-beginning", "--max-messages", "1000")
    assert tool(f"{TOOLS}.consumer.ConsoleConsumer", "--topic", topic, *ends) == RECORDS


def test_kafka_configs_replaces_the_certificate(tool: Tool, broker: RunningBroker, stores: Stores) -> None:
    """The setting stays the same, and the file is another one."""
    name = "listener.name.ssl.ssl.keystore.location"
    configs = ("org.apache.kafka.tools.ConfigCommand", "--entity-type", "brokers", "--entity-name", "1")
    before = presented(broker)
    store = stores.add("broker", "CN=broker")
    assert presented(broker) == before
    assert "Completed updating config for broker 1." in tool(*configs, "--alter", "--add-config", f"{name}={store}")
    assert presented(broker) != before
    described = tool(*configs, "--describe", "--all")
    assert f"{name}={store} sensitive=false" in described
    assert "ssl.keystore.password=null sensitive=true" in described


def presented(broker: RunningBroker) -> bytes:
    """Return what the broker shows of itself to a client without a certificate."""
    command = ["openssl", "s_client", "-connect", broker.bootstrap_servers, "-showcerts"]
    shown = subprocess.run(command, input=b"", capture_output=True).stdout
    return shown.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END")[0]
