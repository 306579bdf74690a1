"""Real clients over TLS, with and without certificates of their own, and keys that are replaced meanwhile."""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from minibroker.testing import Broker
from tests.certificates import Authority, Signed, inline
from tests.clients.interface import PATIENCE_S

RULES = "RULE:^CN=([a-z]+),OU=people$/$1/"
VALUES = [random.Random(number).randbytes(1 + 40_000 * (number % 3)) for number in range(300)]
CLOSING = "closing 127.0.0.1:[0-9]+: TLS failed: (PEER_DID_NOT_RETURN_A_CERTIFICATE|TLSV1_ALERT_UNKNOWN_CA)"

authority = Authority()
server = authority.sign()
alice = authority.sign("CN=alice,OU=people", ())


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """A directory with what clients read: ca.pem and client.pem."""
    (tmp_path / "ca.pem").write_text(authority.pem)
    alice.write(tmp_path, "client")
    return tmp_path


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that asks for certificates on one listener, and demands them on another."""
    listeners = {
        "listeners": "SSL://127.0.0.1:0,STRICT://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,STRICT:SSL",
        "listener.name.strict.ssl.client.auth": "required",
    }
    rules = {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": RULES}
    with Broker({**listeners, **inline(authority, server), **rules}) as running:
        yield running


def address(broker: Broker, listener: int) -> str:
    (listeners,) = broker.ports.listeners.values()
    return f"127.0.0.1:{listeners[listener].port}"


def principals(broker: Broker) -> set[str]:
    connections = broker.loop.call_on_loop(lambda: broker.running.server.list_connections())
    return {str(connection.principal) for connection in connections}


def confluent_settings(bootstrap: str, stores: Path, *, certificate: bool) -> dict[str, Any]:
    own = str(stores / "client.pem")
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(stores / "ca.pem"),
        "log_level": 0,
    }
    return settings | ({"ssl.certificate.location": own, "ssl.key.location": own} if certificate else {})


def through_confluent(bootstrap: str, stores: Path, certificate: bool, seen: Callable[[], None]) -> None:
    settings = confluent_settings(bootstrap, stores, certificate=certificate)
    producer = confluent_kafka.Producer({**settings, "linger.ms": 5})
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(PATIENCE_S) == 0
    seen()
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    messages: list[Any] = []
    while len(messages) < len(VALUES):
        messages += consumer.consume(len(VALUES) - len(messages), PATIENCE_S)
    assert [message.value() for message in messages] == VALUES
    consumer.close()


def through_aiokafka(bootstrap: str, stores: Path, certificate: bool, seen: Callable[[], None]) -> None:
    async def talk() -> None:
        context = ssl.create_default_context(cafile=str(stores / "ca.pem"))
        if certificate:
            context.load_cert_chain(stores / "client.pem")
        secured: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": context, "bootstrap_servers": bootstrap}
        async with aiokafka.AIOKafkaProducer(**secured) as producer:
            for value in VALUES:
                await producer.send("t", value)
            await producer.flush()
            seen()
        consumer = aiokafka.AIOKafkaConsumer("t", **secured, group_id="g", auto_offset_reset="earliest")
        async with consumer:
            assert [(await consumer.getone()).value for _ in VALUES] == VALUES

    asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))


def through_kafka_python(bootstrap: str, stores: Path, certificate: bool, seen: Callable[[], None]) -> None:
    own = str(stores / "client.pem") if certificate else None
    secured: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(stores / "ca.pem"),
        "ssl_certfile": own,
        "ssl_keyfile": own,
    }
    producer = kafka.KafkaProducer(**secured)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(PATIENCE_S)
    seen()
    producer.close()
    consumer = kafka.KafkaConsumer("t", **secured, group_id="g", auto_offset_reset="earliest")
    assert [next(consumer).value for _ in VALUES] == VALUES
    consumer.close()


THROUGH = {"confluent": through_confluent, "aiokafka": through_aiokafka, "kafka-python": through_kafka_python}


@pytest.mark.parametrize("client", THROUGH)
@pytest.mark.parametrize(
    ("listener", "certificate", "principal"),
    [(0, False, "User:ANONYMOUS"), (0, True, "User:alice"), (1, True, "User:alice")],
)
def test_records_are_produced_and_consumed_over_tls(
    broker: Broker, stores: Path, complaints: list[str], client: str, listener: int, certificate: bool, principal: str
) -> None:
    complaints.append("No partition metadata for topic t")  # kafka-python's, before it has asked for any
    complaints.append("Metadata refresh: failed .*Cancelled")  # its, of one that ends with the client
    complaints.append(r"\(closed\)>: Error receiving network data")  # its, as it reads once more what it has closed
    bootstrap = address(broker, listener)

    def seen() -> None:
        assert principals(broker) == {principal}

    THROUGH[client](bootstrap, stores, certificate, seen)


@pytest.mark.parametrize(("password", "principal"), [("alice-secret", "User:alice"), ("wrong", None)])
def test_a_client_logs_in_over_tls_with_any_certificate(
    stores: Path, complaints: list[str], password: str, principal: str | None
) -> None:
    complaints.append("closing 127.0.0.1:[0-9]+ .*invalid credentials")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        **inline(authority, server),
    }
    with Broker(settings) as broker:
        tls = confluent_settings(broker.bootstrap_servers, stores, certificate=True)
        as_alice = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        login = {**tls, **as_alice, "sasl.password": password}
        if principal is None:
            with pytest.raises(confluent_kafka.KafkaException):
                AdminClient(login).list_topics(timeout=2)
        else:
            producer = confluent_kafka.Producer(login)
            producer.produce("t", b"x")
            assert producer.flush(PATIENCE_S) == 0
            assert principals(broker) == {principal}


def test_a_client_without_a_required_certificate_is_rejected(
    broker: Broker, stores: Path, complaints: list[str]
) -> None:
    complaints.append(CLOSING)
    settings = confluent_settings(address(broker, 1), stores, certificate=False)
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(settings).list_topics(timeout=2)
    assert principals(broker) == set()


def test_a_client_that_does_not_trust_the_broker_disconnects(
    broker: Broker, stores: Path, complaints: list[str]
) -> None:
    complaints.append(CLOSING)
    (stores / "ca.pem").write_text(Authority().pem)
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(confluent_settings(address(broker, 0), stores, certificate=False)).list_topics(timeout=2)
    assert principals(broker) == set()


def test_all_nodes_speak_tls_even_after_a_restart(stores: Path) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "num.partitions": "4", **inline(authority, server)}
    settings["default.replication.factor"] = "2"
    with Broker(settings, nodes=2) as broker:
        producer = confluent_kafka.Producer(confluent_settings(broker.bootstrap_servers, stores, certificate=False))
        for step in (None, broker.stop_node, broker.start_node):
            if step is not None:
                step(2)
            for partition in range(4):
                producer.produce("t", b"x", partition=partition)
            assert producer.flush(PATIENCE_S) == 0
        assert len(broker.bootstrap_servers.split(",")) == 2
        assert {presented(address) for address in broker.bootstrap_servers.split(",")} == {server.certificate_pem}


# --- keys that are replaced ---------------------------------------------------------------------------


def presented(bootstrap: str) -> str:
    """Return the certificate that the broker presents now."""
    host, port = bootstrap.split(":")
    return ssl.get_server_certificate((host, int(port)))


def altered(admin: AdminClient, changes: dict[str, str]) -> None:
    """Change settings of broker 1. Raises KafkaException."""
    entries = [ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in changes.items()]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(PATIENCE_S)


def key_store(listener: str, signed: Signed) -> dict[str, str]:
    texts = {"keystore.key": signed.key_pem(), "keystore.certificate.chain": signed.certificate_pem}
    return {f"listener.name.{listener}.ssl.{name}": text for name, text in texts.items()}


def test_tls_keys_are_replaced_for_new_connections_without_losing_records(
    broker: Broker, stores: Path, complaints: list[str]
) -> None:
    complaints.append(CLOSING)
    bootstrap = address(broker, 0)
    settings = confluent_settings(bootstrap, stores, certificate=True)
    admin, producer = AdminClient(settings), confluent_kafka.Producer({**settings, "linger.ms": 1})
    assert presented(bootstrap) == server.certificate_pem
    failed: list[Any] = []
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            producer.produce("t", b"x", on_delivery=lambda error, message: failed.append(error) if error else None)
            producer.poll(0.001)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(3):
            renewed = authority.sign()
            altered(admin, key_store("ssl", renewed))
            assert presented(bootstrap) == renewed.certificate_pem
            assert presented(address(broker, 1)) == server.certificate_pem, "that is another listener"
    finally:
        stop.set()
        thread.join()
    assert producer.flush(PATIENCE_S) == 0 and failed == []


def test_replaced_tls_keys_survive_a_restart_and_are_never_described(broker: Broker, stores: Path) -> None:
    renewed = authority.sign(hosts=("localhost", "127.0.0.1", "more.test"))
    settings = confluent_settings(address(broker, 0), stores, certificate=False)
    altered(AdminClient(settings), key_store("ssl", renewed))
    broker.restart()
    assert presented(address(broker, 0)) == renewed.certificate_pem
    admin = AdminClient(settings)
    (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    described = future.result(PATIENCE_S)
    secrets = [name for name in described if name.endswith((".key", ".chain", ".password", ".certificates"))]
    assert "listener.name.ssl.ssl.keystore.key" in secrets and "ssl.keystore.key" in secrets
    for name in secrets:
        assert described[name].is_sensitive and described[name].value is None
    broker.reset()
    assert presented(address(broker, 0)) == server.certificate_pem, "changes of configs are gone with the rest"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (key_store("ssl", authority.sign("CN=other")), "the certificate is for CN=other"),
        (
            key_store("ssl", server) | key_store("ssl", alice) | {"listener.name.ssl.ssl.keystore.key": "x"},
            "private key",
        ),
        ({"listener.name.ssl.ssl.client.auth": "none"}, "cannot be updated dynamically for existing listener SSL"),
    ],
)
def test_unusable_tls_settings_are_rejected_and_change_nothing(
    broker: Broker, stores: Path, changes: dict[str, str], complaint: str
) -> None:
    admin = AdminClient(confluent_settings(address(broker, 0), stores, certificate=False))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        altered(admin, changes)
    assert complaint in str(refused.value) and "BEGIN" not in str(refused.value)
    assert presented(address(broker, 0)) == server.certificate_pem


def test_a_changed_file_is_reloaded_when_its_setting_is_set_again(stores: Path) -> None:
    path = server.write(stores, "server")
    name = "listener.name.ssl.ssl.keystore.location"
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", name: str(path)}
    with Broker(settings) as broker:
        admin = AdminClient(confluent_settings(broker.bootstrap_servers, stores, certificate=False))
        altered(admin, {name: str(path)})
        renewed = authority.sign()
        renewed.write(stores, "server")
        assert presented(broker.bootstrap_servers) == server.certificate_pem
        altered(admin, {name: str(path)})
        assert presented(broker.bootstrap_servers) == renewed.certificate_pem
