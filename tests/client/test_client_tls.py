"""TLS by the names of Kafka's clients: whom it trusts, who it says it is, and what it says of what cannot be."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, SettingError
from minibroker.client.client_tls import describe_tls_problem, make_tls_context
from minibroker.client.connection_settings import ClientSettings
from minibroker.pipeline.java import JavaError, find_java, read_store_as_pem
from tests.cases import for_each
from tests.client.scripted import Script, ScriptedNodes, scripted

HERE = Path(__file__).parent / "certificates"
CA = str(HERE / "ca.pem")
CLIENT = str(HERE / "client.pem")
LIMITS = {"request.timeout.ms": "3000", "default.api.timeout.ms": "3000", "security.protocol": "SSL"}
TRUST = {"ssl.truststore.location": CA, "ssl.truststore.type": "PEM"}


def server(name: str = "server", client_wanted: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / f"{name}.pem")
    if client_wanted:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def connect(settings: dict[str, str], tls: ssl.SSLContext) -> None:
    with scripted(Script(), tls=tls) as nodes, Client(client_settings(nodes, LIMITS | settings)) as client:
        assert client.fetch_node_ids() == [1]


def read_store(path: str, password: str) -> str:
    """Read a store of Java's, or skip the test where there is no Java."""
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    return read_store_as_pem(path, password)


def client_settings(nodes: ScriptedNodes, settings: dict[str, str]) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": nodes.bootstrap_servers, **settings}, read_store=read_store)


@pytest.mark.parametrize(
    "settings",
    [
        TRUST,
        {"ssl.truststore.certificates": Path(CA).read_text(), "ssl.truststore.type": "PEM"},
        {"ssl.ca.location": CA},
        {"ssl.ca.pem": Path(CA).read_text()},
        {"ssl.truststore.location": str(HERE / "trusted.jks"), "ssl.truststore.password": "changeit"},
        {"ssl.truststore.location": str(HERE / "trusted.p12"), "ssl.truststore.password": "changeit"},
        {"enable.ssl.certificate.verification": "false"},
        {**TRUST, "ssl.enabled.protocols": "TLSv1.2"},
    ],
    ids=[
        "PEM file",
        "PEM text",
        "librdkafka's file",
        "librdkafka's text",
        "JKS",
        "PKCS12",
        "no verification",
        "TLS 1.2",
    ],
)
def test_a_trusted_broker_is_accepted(settings: dict[str, str]) -> None:
    connect(settings, server())


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.keystore.location": CLIENT, "ssl.keystore.type": "PEM"},
        {"ssl.certificate.location": CLIENT},
        {
            "ssl.keystore.key": Path(CLIENT).read_text().partition("-----BEGIN CERT")[0],
            "ssl.keystore.certificate.chain": "-----BEGIN CERT"
            + Path(CLIENT).read_text().partition("-----BEGIN CERT")[2],
        },
    ],
    ids=["one file", "librdkafka's", "texts"],
)
def test_a_client_sends_its_certificate(settings: dict[str, str]) -> None:
    connect({**TRUST, **settings, "ssl.key.password": "secret"}, server(client_wanted=True))


def test_an_untrusted_broker_fails_immediately() -> None:
    with pytest.raises(ClientError, match=r"^127\.0\.0\.1:\d+: Metadata: TLS: CERTIFICATE_VERIFY_FAILED \(unable.*\)$"):
        connect({}, server())


def test_the_host_must_match_the_certificate() -> None:
    with pytest.raises(ClientError, match="TLS: CERTIFICATE_VERIFY_FAILED"):
        connect(TRUST, server("stranger"))
    for none in ("", "none"):
        connect({**TRUST, "ssl.endpoint.identification.algorithm": none}, server("stranger"))


def test_a_broker_without_tls_is_reported() -> None:
    impatient = {**LIMITS, **TRUST, "request.timeout.ms": "200", "default.api.timeout.ms": "400"}
    with (
        scripted(Script()) as nodes,
        Client(client_settings(nodes, impatient)) as client,
        pytest.raises(ClientError, match=r"Metadata: no answer in 0\.2 s"),
    ):
        client.fetch_node_ids()


@for_each(
    ("settings", "message"),
    [
        ({"ssl.truststore.location": "/nowhere.pem"}, r"ssl\.truststore\.location: .*No such file"),
        (
            {"ssl.truststore.certificates": "nothing"},
            r"ssl\.truststore\.certificates has no certificates in PEM",
        ),
        (
            {"ssl.truststore.location": str(HERE / "trusted.jks"), "ssl.truststore.password": "wrong"},
            r"ssl\.truststore\.location: .*trusted\.jks: keytool error: .*password was incorrect",
        ),
        ({"ssl.keystore.location": str(HERE / "trusted.jks")}, r"ssl\.keystore\.location: .* is not PEM; "),
        (
            {"ssl.keystore.location": CLIENT, "ssl.key.password": "wrong"},
            r"ssl\.keystore\.location: the certificate or the key cannot be used",
        ),
        ({"ssl.keystore.location": CLIENT}, r"ssl\.keystore\.location: the certificate or the key cannot be used"),
        ({**TRUST, "ssl.truststore.type": "JKS"}, r"ssl\.truststore\.type is JKS, but the data is PEM"),
        (
            {"ssl.truststore.location": str(HERE / "trusted.jks"), "ssl.truststore.type": "PEM"},
            r"ssl\.truststore\.type is PEM, but the data is not PEM",
        ),
        ({**TRUST, "ssl.truststore.type": "BKS"}, r"ssl\.truststore\.type must be one of PEM, JKS, PKCS12"),
        ({**TRUST, "ssl.truststore.password": "x"}, r"ssl\.truststore\.password cannot be given for PEM"),
        (
            {"ssl.keystore.location": CLIENT, "ssl.key.password": "secret", "ssl.keystore.password": "x"},
            r"ssl\.keystore\.password cannot be given for PEM; .* ssl\.key\.password",
        ),
        ({"ssl.keystore.type": "PKCS11"}, r"ssl\.keystore\.type must be one of PEM, JKS, PKCS12"),
        (
            {"ssl.truststore.password": "x"},
            r"ssl\.truststore\.password has an effect only with ssl\.truststore\.location",
        ),
        (
            {"ssl.key.location": CLIENT},
            r"ssl\.key\.location has an effect only with ssl\.certificate\.location",
        ),
        (
            {"ssl.keystore.key": "x"},
            r"ssl\.keystore\.key has an effect only with ssl\.keystore\.certificate\.chain",
        ),
        ({"ssl.enabled.protocols": "SSLv3"}, r"ssl\.enabled\.protocols: only TLSv1\.2 and TLSv1\.3 .*'SSLv3'"),
        (
            {"ssl.endpoint.identification.algorithm": "ldap"},
            r"ssl\.endpoint\.identification\.algorithm must be https or none, not 'ldap'",
        ),
        (
            {"enable.ssl.certificate.verification": "maybe"},
            r"enable\.ssl\.certificate\.verification must be true or false, not 'maybe'",
        ),
    ],
)
def test_invalid_tls_settings_are_rejected(settings: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_tls_context(dict(settings), True, read_store)


def test_tls_settings_without_tls_are_accepted_and_removed() -> None:
    settings = {**TRUST, "linger.ms": "5"}
    assert make_tls_context(settings, is_required=False) is None
    assert settings == {"linger.ms": "5"}


@pytest.mark.parametrize("answer", [b"", b"\x15\x03\x03\x00\x02\x01\x00"], ids=["closed", "close_notify"])
def test_a_handshake_that_the_broker_ends_is_explained(answer: bytes) -> None:
    incoming = ssl.MemoryBIO()
    incoming.write(answer)
    incoming.write_eof()
    with pytest.raises(ssl.SSLError) as raised:
        ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="broker").do_handshake()
    assert str(describe_tls_problem(raised.value)).endswith(": does the broker use TLS on this port?")
