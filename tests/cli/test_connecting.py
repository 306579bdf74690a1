"""Commands that connect: to brokers with TLS and SASL, and to those that do not answer them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minibroker.cli.connecting import for_librdkafka, servers_of
from minibroker.testing import Broker
from tests.cli.conftest import Run

MODULES = "org.apache.kafka.common.security"
CONNECTING = ("topics list", "produce t", "consume t")  # by our own client, and by librdkafka


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL") as broker:
        yield broker


@pytest.fixture
def properties(secured: Broker, tmp_path: Path) -> Callable[..., str]:
    """Write the settings of a client of alice's, by Java's or librdkafka's names, into a file; return its path."""

    def write(kind: str = "java", **changed: str) -> str:
        changes = {name.replace("_", "."): value for name, value in changed.items()}
        settings = {**secured.client_config(kind, user="alice"), **changes}
        lines = (f"{name}={str(value).replace(chr(10), chr(92) + 'n')}\n" for name, value in settings.items())
        path = tmp_path / "client.properties"
        path.write_text("".join(lines))
        return str(path)

    return write


@pytest.mark.parametrize("text", ["localhost:9092", "a:1,b:2", "[::1]:9092", "10.0.0.1:65535"])
def test_servers_stay_as_they_are_given(text: str) -> None:
    assert servers_of(text) == text


@pytest.mark.parametrize("kind", ["java", "confluent"])
def test_each_command_takes_its_settings_from_a_file(
    run: Run, properties: Callable[..., str], secured: Broker, kind: str
) -> None:
    config = ("--command-config", properties(kind))
    topic = f"from-a-file-{kind}"
    for arguments in (
        ("topics", "create", topic),
        ("topics", "describe", topic),
        ("groups", "list"),
        ("transactions", "list"),
        ("users", "list"),
        ("quotas", "list"),
    ):
        result = run(*arguments, *config)
        assert result.exit_code == 0, (arguments, result.stderr)
    assert run("produce", topic, *config, stdin=b"tea\n").exit_code == 0
    assert run("consume", topic, *config).stdout == "tea\n"


def test_an_option_overrides_the_file(run: Run, properties: Callable[..., str], secured: Broker) -> None:
    config = properties(bootstrap_servers="127.0.0.1:1", sasl_mechanism="GSSAPI")
    given = ("--bootstrap-server", secured.bootstrap_servers, "--client", "sasl.mechanism=SCRAM-SHA-512")
    assert run("topics", "list", "--command-config", config, *given).exit_code == 0


def test_a_file_that_cannot_be_read_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_bytes(b"\xff")
    result = run("topics", "list", "--command-config", str(tmp_path / "client.properties"))
    assert result.exit_code == 2 and "minibroker: --command-config" in result.stderr.splitlines()[-1]


def refused(run: Run, command: str, *options: str) -> str:
    """Return the one line that a command prints. Its status says that nothing was tried again."""
    result = run(*command.split(), *options)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2
    return str(line)


@pytest.mark.parametrize("command", CONNECTING)
def test_what_a_secured_broker_refuses_is_said_at_once(
    run: Run, properties: Callable[..., str], secured: Broker, command: str
) -> None:
    where = f"cannot connect to {secured.bootstrap_servers}"
    plain = refused(run, command, "--bootstrap-server", secured.bootstrap_servers)
    assert f"{where}: the broker closed the connection on ApiVersions: does the broker require TLS" in plain
    without = refused(run, command, "--command-config", properties(security_protocol="SSL"))
    assert f"{where}: the broker closed the connection: does the broker require authentication" in without
    module = f'{MODULES}.scram.ScramLoginModule required username="alice" password="wrong-password";'
    wrong = refused(run, command, "--command-config", properties(sasl_jaas_config=module))
    assert f"{where}: authentication by SCRAM-SHA-512 failed: " in wrong and "wrong-password" not in wrong
    config = ("--client", "security.protocol=SSL", "--bootstrap-server", secured.bootstrap_servers)
    assert f"{where}: TLS: CERTIFICATE_VERIFY_FAILED (" in refused(run, command, *config)


@pytest.mark.parametrize("command", CONNECTING)
def test_a_broker_without_tls_is_said_at_once(run: Run, command: str) -> None:
    with Broker() as broker:
        line = refused(
            run, command, "--bootstrap-server", broker.bootstrap_servers, "--client", "security.protocol=SSL"
        )
    assert re.search(r"cannot connect to [0-9.:]+: TLS: .*: does the broker use TLS on this port\?$", line)


@pytest.mark.parametrize("command", CONNECTING)
@pytest.mark.parametrize("settings", [(), ("--client", "ssl.curves.list=X25519")], ids=["ours", "librdkafka's alone"])
def test_a_server_that_is_not_there_is_said_at_once(run: Run, command: str, settings: tuple[str, ...]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        if command == "topics list":
            settings = ()
        line = refused(run, command, "--bootstrap-server", f"{address},{address}", *settings)
    assert line == f"minibroker: cannot connect to {address}: Connection refused; {address}: Connection refused"


def test_one_server_of_several_is_enough(run: Run, secured: Broker, properties: Callable[..., str]) -> None:
    servers = f"127.0.0.1:1,{secured.bootstrap_servers}"
    assert run("topics", "list", "--bootstrap-server", servers, "--command-config", properties()).exit_code == 0


def test_a_silent_server_is_given_up(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        short = ("--client", "socket.connection.setup.timeout.ms=200")
        assert refused(run, "topics list", "--bootstrap-server", address, *short).endswith("no answer in 200 ms")


@pytest.mark.parametrize(
    ("java", "librdkafka"),
    [
        ({"linger.ms": "5", "ssl.ca.location": "ca.pem"}, {"linger.ms": "5", "ssl.ca.location": "ca.pem"}),
        ({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "ca.pem"}),
        ({"ssl.truststore.certificates": "text", "ssl.truststore.type": "PEM"}, {"ssl.ca.pem": "text"}),
        (
            {"ssl.keystore.location": "a.pem", "ssl.keystore.type": "PEM", "ssl.key.password": "p"},
            {"ssl.certificate.location": "a.pem", "ssl.key.location": "a.pem", "ssl.key.password": "p"},
        ),
        ({"ssl.keystore.location": "a.p12", "ssl.keystore.password": "p"}, None),
        (
            {"sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="alice" password="p";'},
            {"sasl.username": "alice", "sasl.password": "p"},
        ),
        (
            {
                "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
                'clientId="me" clientSecret="s" scope="kafka" extension_pool="x";',
                "sasl.oauthbearer.token.endpoint.url": "http://localhost/token",
            },
            {
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "pool=x",
                "sasl.oauthbearer.token.endpoint.url": "http://localhost/token",
                "sasl.oauthbearer.method": "oidc",
            },
        ),
        (
            {
                "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="alice";'
            },
            {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=alice lifeSeconds=3600",
            },
        ),
    ],
)
def test_javas_names_become_librdkafkas(java: dict[str, str], librdkafka: dict[str, str] | None) -> None:
    assert for_librdkafka(java) == (java if librdkafka is None else librdkafka)
