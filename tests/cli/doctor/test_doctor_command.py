"""`minibroker doctor`: what it finds at servers of many kinds, right and wrong, and what it advises."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from minibroker.cli.connecting import add_default_ports
from minibroker.cli.doctor.checks import guess_kafka_release
from minibroker.testing import Broker
from minibroker.testing.emulation.releases import RELEASES, list_versions_of_release
from tests.cases import for_each
from tests.cli.conftest import Run
from tests.running import RunningBroker, running_broker

Examine = Callable[..., list[dict[str, str]]]
QUICK = ("--timeout", "0.3")


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL") as broker:
        yield broker


@pytest.fixture
def examine(run: Run) -> Examine:
    """Run the command, and return what it finds; the status is 1 if one is a problem."""

    def examined(*arguments: str) -> list[dict[str, str]]:
        result = run("doctor", *arguments, "--json")
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert result.exit_code == any(each["kind"] == "problem" for each in found), result.output
        return found

    return examined


@contextmanager
def server_that(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that calls `answer` with each connection, and closes it then."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def problems(found: list[dict[str, str]]) -> list[str]:
    return [each["text"] for each in found if each["kind"] == "problem"]


def settings(config: dict[str, object], *without: str) -> list[str]:
    """The settings of a client as options; the address is an argument."""
    left = {name: value for name, value in config.items() if name not in ("bootstrap.servers", *without)}
    return [word for name, value in left.items() for word in ("--client", f"{name}={value}")]


def test_the_doctor_finds_no_problem_in_a_usable_server(run: Run, broker: RunningBroker) -> None:
    result = run("doctor", broker.bootstrap_servers)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert lines[1].endswith(f"those of Apache Kafka {RELEASES[-1]}")
    assert lines[3].endswith(f"node 1 advertises {broker.bootstrap_servers}, the address that was asked")


@for_each(
    ("text", "completed"),
    [
        ("kafka", "kafka:9092"),
        ("kafka:1", "kafka:1"),
        ("::1", "[::1]:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:1", "[::1]:1"),
        ("a,b:2", "a:9092,b:2"),
    ],
)
def test_a_server_without_a_port_has_kafkas_default_port(text: str, completed: str) -> None:
    assert add_default_ports(text) == completed


def test_an_invalid_address_is_rejected_in_one_line(run: Run) -> None:
    result = run("doctor", "kafka:port")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "minibroker: 'kafka:port' is not HOST:PORT\n"


@pytest.mark.parametrize("option", ["-b", "--bootstrap-server"])
def test_the_doctor_takes_the_server_option_of_other_commands(run: Run, broker: RunningBroker, option: str) -> None:
    result = run("doctor", option, broker.bootstrap_servers)
    assert result.exit_code == 0
    assert f"node 1 advertises {broker.bootstrap_servers}, the address that was asked" in result.stdout


def test_the_doctor_says_that_an_unresolvable_host_may_be_a_container(examine: Examine) -> None:
    (found,) = examine("no-such-container")
    assert found["text"].startswith("no-such-container cannot be looked up: ")
    assert "container" in found["advice"]
    (found,) = examine("no-such-host.invalid:9092")
    assert "container" not in found["advice"]


def test_the_doctor_reports_a_port_that_refuses_connections(examine: Examine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (found,) = examine(f"127.0.0.1:{port}")
    assert found["text"] == f"127.0.0.1:{port} does not accept connections: Connection refused"


@pytest.mark.parametrize(("in_container", "advice"), [(True, "host.docker.internal"), (False, "Start the server")])
def test_the_doctor_says_that_localhost_in_a_container_is_the_container(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, in_container: bool, advice: str
) -> None:
    monkeypatch.setattr("minibroker.cli.doctor.checks._is_in_container", lambda: in_container)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (found,) = examine(f"127.0.0.1:{port}")
    assert advice in found["advice"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "speaks HTTP, not Kafka's protocol",
        ),
        (lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), "speaks SSH, not Kafka's protocol"),
        (
            lambda connection: connection.sendall(b"-ERR unknown command\r\n"),
            "speaks something else, not Kafka's protocol",
        ),
        (lambda connection: None, "closes the connection"),
        (lambda connection: time.sleep(1), "does not answer"),
    ],
)
def test_the_doctor_names_the_protocol_of_a_server_that_is_no_kafka(
    examine: Examine, answer: Callable[[socket.socket], None], text: str
) -> None:
    with server_that(answer) as address:
        accepts, found = examine(address, *QUICK)
    assert accepts["text"] == f"{address} accepts connections"
    assert found["text"] == f"the server {text}"
    assert found["advice"]


def test_an_http_server_that_waits_for_a_line_is_named(examine: Examine) -> None:
    def answer(connection: socket.socket) -> None:
        connection.settimeout(5)
        if connection.recv(4) == b"GET ":
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        else:
            connection.recv(1000)

    with server_that(answer) as address:
        assert problems(examine(address, *QUICK)) == ["the server speaks HTTP, not Kafka's protocol"]


def test_tls_on_only_one_side_is_detected(examine: Examine, secured: Broker, broker: RunningBroker) -> None:
    found = examine(secured.bootstrap_servers)
    assert problems(found) == ["the server speaks TLS, but security.protocol is one without"]
    assert any("its certificate is for localhost, 127.0.0.1" in each["text"] for each in found)
    found = examine(broker.bootstrap_servers, "--client", "security.protocol=SSL")
    assert problems(found) == ["the server speaks Kafka's protocol without TLS, but security.protocol is one with TLS"]


def test_a_client_without_a_login_is_told_the_mechanisms(examine: Examine, secured: Broker) -> None:
    config = secured.client_config("confluent", user="alice")
    kept = {name: value for name, value in config.items() if name.startswith("ssl.")}
    (problem,) = problems(examine(secured.bootstrap_servers, "--client", "security.protocol=SSL", *settings(kept)))
    assert problem.startswith("clients must log in, by ") and "SCRAM-SHA-512" in problem


def test_the_doctor_logs_in_with_the_given_credentials(examine: Examine, secured: Broker) -> None:
    config = secured.client_config("confluent", user="alice")
    found = examine(secured.bootstrap_servers, *settings(config))
    assert problems(found) == []
    assert f"logged in by {config['sasl.mechanism']}" in [each["text"] for each in found]
    wrong = [*settings(config, "sasl.password"), "--client", "sasl.password=guessed"]
    found = examine(secured.bootstrap_servers, *wrong)
    assert len(problems(found)) == 1
    assert "authentication" in problems(found)[0].lower() and "guessed" not in json.dumps(found)


def test_the_doctor_suggests_the_issuer_of_an_untrusted_certificate(examine: Examine, secured: Broker) -> None:
    (problem,) = (
        each
        for each in examine(secured.bootstrap_servers, "--client", "security.protocol=SSL")
        if each["kind"] == "problem"
    )
    assert "CERTIFICATE_VERIFY_FAILED" in problem["text"] and "ssl.ca.location" in problem["advice"]


@pytest.mark.parametrize(
    ("certificate", "text"),
    [("expired", "it has expired"), ("other host", "the certificate is not for 127.0.0.1")],
)
def test_a_wrong_certificate_is_detected(examine: Examine, certificate: str, text: str) -> None:
    with Broker(security="SSL") as broker:
        broker.use_certificate(certificate)
        config = broker.client_config("confluent")
        found = problems(examine(broker.bootstrap_servers, *settings(config)))
    assert any(text in each for each in found)


def test_an_unresolvable_advertised_host_is_reported_as_the_problem(
    examine: Examine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("advertised")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    advertised = "advertised.listeners=PLAINTEXT://no-such-container:29092"
    with running_broker(folder, f"listeners=PLAINTEXT://127.0.0.1:{port}", advertised):
        found = examine(f"127.0.0.1:{port}")
    (problem,) = problems(found)
    assert problem.startswith("no-such-container, which node 1 advertises, cannot be looked up")
    assert "advertised.listeners" in found[-1]["advice"]


def test_the_doctor_examines_the_advertised_address_of_each_node(examine: Examine) -> None:
    with Broker(nodes=3) as broker:
        first = broker.bootstrap_servers.partition(",")[0]
        found = examine(first)
        broker.stop_node(3)
        stopped = examine(first)
    assert problems(found) == []
    assert sum("advertises" in each["text"] for each in found) == 3
    assert sum(each["text"].endswith("accepts connections") for each in found) == 3
    assert problems(stopped) == []
    assert sum("advertises" in each["text"] for each in stopped) == 2


def test_a_record_with_a_future_timestamp_indicates_a_wrong_clock(examine: Examine) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", "x", timestamp_ms=int(time.time() * 1000) + 600_000)
        found = examine(broker.bootstrap_servers)
    (warning,) = (each for each in found if each["kind"] == "warning")
    assert "in the future" in warning["text"]


def test_a_server_without_old_api_versions_is_reported(examine: Examine) -> None:
    with Broker(emulate="4.0") as broker:
        found = examine(broker.bootstrap_servers)
    assert found[1]["text"].endswith("those of Apache Kafka 4.0; it refuses clients older than 2.1")


@for_each("release", [release for release in RELEASES if release not in ("0.8.2", "0.9")])
def test_the_release_is_inferred_from_the_api_versions(release: str) -> None:
    versions = {int(key): versions for key, versions in list_versions_of_release(release).items()}
    told = guess_kafka_release(versions)
    assert told is not None
    assert RELEASES.index(told) >= RELEASES.index(release)
    of_told = list_versions_of_release(told)
    assert all(of_told[key] == list_versions_of_release(release)[key] for key in (0, 1, 2, 3, 8, 11) if key in of_told)


def test_the_doctor_names_login_settings_without_effect(examine: Examine) -> None:
    with Broker() as broker:
        found = examine(broker.bootstrap_servers, "--client", "sasl.username=a", "--client", "sasl.mechanism=PLAIN")
    (warning,) = (each for each in found if each["kind"] != "ok")
    assert warning["text"] == "sasl.mechanism, sasl.username have no effect with security.protocol=PLAINTEXT"
    assert warning["advice"].startswith("Set security.protocol=SASL_PLAINTEXT")


def test_the_doctor_reports_bootstrap_servers_of_two_clusters(examine: Examine) -> None:
    with Broker() as one, Broker() as other:
        first, second = one.bootstrap_servers, other.bootstrap_servers
        found = examine(f"{first},{second}")
        assert "problem" not in {each["kind"] for each in examine(f"{first},{first}")}
    (problem,) = (each for each in found if each["kind"] == "problem")
    assert problem["text"].startswith(f"the bootstrap servers are of 2 clusters: {first} is of ")
