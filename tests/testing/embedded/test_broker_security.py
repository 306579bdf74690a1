"""A secured broker in one line: certificates, users, ACLs and quotas, and clients of several libraries."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from minibroker.broker.configs.settings_table import PROTOCOLS
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.testing import Broker
from minibroker.testing.embedded.broker_security import MECHANISMS
from minibroker.testing.embedded.certificates import CertificateAuthority
from minibroker.testing.embedded.client_configs import LIBRARIES, ClientAccess

PATIENCE_S = 20
USERS = {"alice": 'a"b\\c d', "bob": "simple"}
TLS = [protocol for protocol in PROTOCOLS if protocol.endswith("SSL")]
SASL = [protocol for protocol in PROTOCOLS if protocol.startswith("SASL")]


@pytest.fixture(scope="module", params=PROTOCOLS)
def any_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(security=request.param, users=USERS) as broker:
        yield broker


@pytest.fixture
def broker(any_broker: Broker) -> Broker:
    any_broker.reset()
    return any_broker


def produced(broker: Broker, topic: str = "t", **access: Any) -> list[str]:
    """The name of the error of a record that a client produces, or nothing; also why it cannot connect."""
    errors: list[str] = []
    config = {**broker.client_config("confluent", **access), "message.timeout.ms": 4000, "log_level": 0}
    producer = confluent_kafka.Producer({**config, "error_cb": lambda error: errors.append(error.name())})
    producer.produce(topic, b"x", on_delivery=lambda error, _: error and errors.append(error.name()))
    producer.flush(PATIENCE_S)
    return sorted(set(errors))


def test_clients_of_each_library_connect(broker: Broker) -> None:
    assert produced(broker, user="alice") == []
    config = broker.client_config("kafka-python", user="alice")
    consumer = kafka.KafkaConsumer("t", **config, auto_offset_reset="earliest")
    try:
        found = consumer.poll(1000 * PATIENCE_S)
    finally:
        consumer.close()
    assert [record.value for records in found.values() for record in records] == [b"x"]

    async def consume() -> bytes | None:
        config = broker.client_config("aiokafka", user="bob")
        async with aiokafka.AIOKafkaConsumer("t", **config, auto_offset_reset="earliest") as consumer:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return record.value

    assert asyncio.run(consume()) == b"x"


def test_a_denied_user_is_rejected_and_nobody_else(broker: Broker) -> None:
    who = "ANONYMOUS" if broker.security.protocol == "PLAINTEXT" else "alice"
    broker.acls.deny(who, "write", topic="secret-*")
    broker.acls.allow("*", "all", topic="secret-*")
    assert produced(broker, "secret-1", user="alice") == ["TOPIC_AUTHORIZATION_FAILED"]
    assert produced(broker, "other", user="alice") == []
    if who == "alice":
        assert produced(broker, "secret-1", user="bob") == []
    broker.acls.clear()
    assert produced(broker, "secret-1", user="alice") == []


def test_a_reset_removes_acls_and_quotas_and_keeps_users(broker: Broker) -> None:
    broker.acls.deny("*", "write", topic="t")
    broker.quotas.set(user="*", producer_byte_rate=1)
    password = broker.users.add("carl")
    broker.reset()
    assert broker.security.passwords["carl"] == password
    mechanisms: list[str | None] = [None, "PLAIN"] if broker.security.protocol in SASL else [None]
    assert [produced(broker, user="carl", mechanism=each) for each in mechanisms] == [[]] * len(mechanisms)
    broker.users.remove("carl")


def test_a_user_added_while_the_broker_is_down_can_log_in() -> None:
    with Broker(security="SASL_PLAINTEXT", users=USERS) as broker:
        broker.users.add("carl")
        broker.kill()
        broker.users.add("dora")
        broker.restart()
        assert [produced(broker, user="dora", mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)


def test_security_can_be_given_as_settings_or_as_arguments() -> None:
    settings = {"test.security": "SASL_PLAINTEXT", "test.users": "alice:won:derland, bob:b"}
    with Broker(settings) as broker:
        assert broker.security.passwords == {"alice": "won:derland", "bob": "b"}
        assert produced(broker, user="alice", mechanism="PLAIN") == []
    with Broker(settings, security="SSL", users={"bob": "c"}) as broker:
        assert (broker.security.protocol, broker.security.passwords["bob"]) == ("SSL", "c")


def test_changing_the_security_keeps_the_address_and_data() -> None:
    with Broker(users={}) as broker:
        broker.produce("t", "before")
        address = broker.bootstrap_servers
        for protocol in (*reversed(PROTOCOLS), "SASL_SSL"):
            broker.secure(protocol, {protocol.lower(): "x"})
            assert (broker.security.protocol, broker.bootstrap_servers) == (protocol, address)
            assert produced(broker, user="sasl_ssl") == []
        assert len(broker.records("t")) == 6
        with pytest.raises(ValueError, match="security is one of"):
            broker.secure("TLS")
        assert produced(broker, user="plaintext") == []


def test_the_certificate_has_the_names_that_the_broker_advertises() -> None:
    listeners = {"listeners": "PLAINTEXT://:0", "advertised.listeners": "PLAINTEXT://broker.test:0"}
    with Broker(listeners, security="SSL") as broker:
        context = broker.client_config("kafka-python")["ssl_context"]
        port = int(broker.bootstrap_servers.rsplit(":", 1)[1])
        for name in ("broker.test", "localhost", "127.0.0.1"):
            with socket.create_connection(("127.0.0.1", port)) as plain:
                context.wrap_socket(plain, server_hostname=name).close()


def test_clients_connect_to_the_advertised_address_of_a_wildcard_listener() -> None:
    listeners = {"listeners": "PLAINTEXT://0.0.0.0:0", "advertised.listeners": "PLAINTEXT://localhost:0"}
    with Broker(listeners, security="SASL_SSL", users=USERS) as broker:
        assert broker.client_config("java", user="alice")["bootstrap.servers"].startswith("localhost:")
        assert [produced(broker, user="alice", mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)


@pytest.mark.parametrize("protocol", SASL)
def test_a_user_has_one_password_for_all_mechanisms(protocol: str) -> None:
    with Broker(security=protocol, users=USERS) as broker:
        assert [produced(broker, user="alice", mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)
        broker.users.add("alice", "another")
        assert [produced(broker, user="alice", mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)
        before = broker.client_config("confluent", user="bob")
        broker.users.remove("bob")
        errors: list[str] = []
        producer = confluent_kafka.Producer(
            {**before, "log_level": 0, "error_cb": lambda error: errors.append(error.name())}
        )
        while "_AUTHENTICATION" not in errors:
            producer.poll(0.1)


@pytest.mark.parametrize("name", ["alice@example.com", 'a "quoted" name', "9-to-5"])
def test_user_names_and_passwords_can_have_any_characters(name: str) -> None:
    with Broker(security="SASL_PLAINTEXT", users={name: "two\nlines"}) as broker:
        assert [produced(broker, user=name, mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)
        broker.users.add(f"{name}, too", "x\r\n\\n")  # librdkafka cuts off blanks at the start
        assert [produced(broker, user=f"{name}, too", mechanism=each) for each in MECHANISMS] == [[]] * len(MECHANISMS)


@pytest.mark.parametrize("protocol", TLS)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("expired", "certificate has expired"), ("other host", "IP address mismatch"), ("unknown authority", "unable to")],
)
def test_clients_reject_a_wrong_certificate_until_it_is_replaced(protocol: str, kind: str, reason: str) -> None:
    with Broker(security=protocol) as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        context = broker.client_config("kafka-python", user="alice")["ssl_context"]

        def connect() -> None:
            with socket.create_connection((host, int(port))) as plain:
                context.wrap_socket(plain, server_hostname=host).close()

        connect()
        broker.use_certificate(kind)
        with pytest.raises(ssl.SSLCertVerificationError, match=reason):
            connect()
        broker.use_certificate("good")
        connect()


def test_quotas_throttle_on_the_brokers_clock() -> None:
    with Broker() as broker:
        broker.quotas.set(client_id="*", producer_byte_rate=10)
        throttled: list[float] = []
        config = {
            **broker.client_config("confluent"),
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
        producer = confluent_kafka.Producer(config)
        producer.produce("t", bytes(1000))
        producer.flush(PATIENCE_S)
        while not throttled:
            producer.poll(0.1)
        assert throttled[0] > 50
        broker.quotas.remove(client_id="*")
        broker.clock.advance("5 minutes")
        producer.produce("t", b"x")
        assert producer.flush(PATIENCE_S) == 0
        with pytest.raises(KafkaError) as refused:
            broker.quotas.set(client_id="*", producer_byte_rate=-1)
        assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_invalid_security_arguments_are_rejected_in_one_line() -> None:
    with pytest.raises(ValueError, match="security is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, and cannot be"):
        Broker(security="TLS")
    with pytest.raises(ValueError, match="security is one of"):
        Broker({"test.security": "TLS"})
    with pytest.raises(ValueError, match="users and an issuer need security"):
        Broker({"test.users": "a:b"})
    with pytest.raises(ValueError, match="^test.users is NAME:PASSWORD,...$"):
        Broker({"test.security": "SSL", "test.users": "alice:a,b"})
    with pytest.raises(ValueError, match="makes the listener PLAINTEXT a SSL one, and there is none"):
        Broker({"listeners": "A://:0", "listener.security.protocol.map": "A:PLAINTEXT"}, security="SSL")
    with pytest.raises(ValueError, match="with SSL there is no issuer for test.issuer"):
        Broker({"test.issuer": "0"}, security="SSL")
    with pytest.raises(ValueError, match="test.issuer is HOST:PORT or PORT, and cannot be 'here'"):
        Broker({"test.issuer": "here"}, security="SASL_SSL")
    with Broker() as broker:
        with pytest.raises(RuntimeError, match="the broker has no security: it needs Broker"):
            _ = broker.acls
        with pytest.raises(ValueError, match="a library is one of confluent, .* and cannot be 'sarama'"):
            broker.client_config("sarama")
        with pytest.raises(ValueError, match="with PLAINTEXT nobody logs in by PLAIN"):
            broker.client_config("confluent", mechanism="PLAIN")
    with Broker(security="SASL_PLAINTEXT") as broker:
        with pytest.raises(ValueError, match="a mechanism is one of .* and cannot be 'GSSAPI'"):
            broker.client_config("confluent", mechanism="GSSAPI")
        with pytest.raises(ValueError, match="an operation is one of all, read, .* and cannot be 'fly'"):
            broker.acls.allow("alice", "fly", topic="t")
        with pytest.raises(ValueError, match="not about several"):
            broker.acls.allow("alice", "read", topic="t", group="g")
        with pytest.raises(ValueError, match="there are no certificates"):
            broker.use_certificate("expired")
        with pytest.raises(KeyError):
            broker.users.remove("nobody")


def test_client_configs_for_other_languages_are_complete() -> None:
    authority = CertificateAuthority()
    certified, trusted = authority.issue_certificate("alice"), authority.certificate
    access = ClientAccess("a:1,b:2", "SASL_SSL", trusted, certified, "PLAIN", "alice", 'x"y')
    made = {library: LIBRARIES[library](access) for library in LIBRARIES}
    assert made["java"] == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": certified.key,
        "ssl.keystore.certificate.chain": certified.certificate,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="x\\"y";',
    }
    tls = {"ca": [trusted], "key": certified.key, "cert": certified.certificate}
    assert made["kafkajs"] == {
        "brokers": ["a:1", "b:2"],
        "ssl": tls,
        "sasl": {"mechanism": "plain", "username": "alice", "password": 'x"y'},
    }
    assert made["franz-go"]["sasl"] == {"mechanism": "PLAIN", "user": "alice", "pass": 'x"y'}
    lines = made["librdkafka.properties"].splitlines()
    in_one_line = trusted.replace("\n", "\\n")
    assert lines[:3] == ["bootstrap.servers=a:1,b:2", "security.protocol=SASL_SSL", f"ssl.ca.pem={in_one_line}"]
    assert 'sasl.password=x"y' in lines
