"""Commands that connect: to brokers with TLS and SASL, and to those that do not answer them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minibroker.cli import variables
from minibroker.cli.connecting import parse_servers
from minibroker.testing import Broker
from tests.cli.conftest import Run, all_commands

MODULES = "org.apache.kafka.common.security"
CONNECTING = ("topics list", "produce t", "consume t")


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


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
def test_servers_that_are_given_with_ports_are_used_unchanged(text: str) -> None:
    assert parse_servers(text) == text


@pytest.mark.parametrize(
    ("text", "servers"),
    [("localhost", "localhost:9092"), ("a,b:1", "a:9092,b:1"), ("[::1]", "[::1]:9092"), ("::1", "[::1]:9092")],
)
def test_a_server_without_a_port_has_kafkas_default_port(text: str, servers: str) -> None:
    assert parse_servers(text) == servers


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


def test_an_option_overrides_the_client_config_file(run: Run, properties: Callable[..., str], secured: Broker) -> None:
    config = properties(bootstrap_servers="127.0.0.1:1", sasl_mechanism="GSSAPI")
    given = ("--bootstrap-server", secured.bootstrap_servers, "--client", "sasl.mechanism=SCRAM-SHA-512")
    assert run("topics", "list", "--command-config", config, *given).exit_code == 0


def test_an_environment_variable_names_the_server(
    run: Run, properties: Callable[..., str], secured: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = properties(bootstrap_servers="")
    monkeypatch.setenv(variables.SERVER, secured.bootstrap_servers)
    assert run("topics", "list", "--command-config", config).exit_code == 0
    monkeypatch.setenv(variables.SERVER, "127.0.0.1:1")
    assert run("topics", "list", "--command-config", properties()).exit_code == 0
    assert run("topics", "list", "--command-config", config, "-b", secured.bootstrap_servers).exit_code == 0
    monkeypatch.setenv(variables.SERVER, "a b")
    assert refused(run, "topics list") == f"minibroker: {variables.SERVER}: 'a b' is not HOST:PORT"


def test_an_unreadable_command_config_is_an_error(run: Run, tmp_path: Path) -> None:
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
def test_a_rejection_by_a_secured_broker_is_reported_immediately(
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
def test_a_broker_without_tls_is_reported_immediately(run: Run, command: str) -> None:
    with Broker() as broker:
        line = refused(
            run, command, "--bootstrap-server", broker.bootstrap_servers, "--client", "security.protocol=SSL"
        )
    assert re.search(r"cannot connect to [0-9.:]+: TLS: .*: does the broker use TLS on this port\?$", line)


@pytest.mark.parametrize("command", CONNECTING)
def test_an_unreachable_server_is_reported_immediately(run: Run, command: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        line = refused(run, command, "--bootstrap-server", f"{address},{address}")
    assert line == f"minibroker: cannot connect to {address}: Connection refused; {address}: Connection refused"


def test_one_reachable_server_of_several_is_enough(run: Run, secured: Broker, properties: Callable[..., str]) -> None:
    servers = f"127.0.0.1:1,{secured.bootstrap_servers}"
    assert run("topics", "list", "--bootstrap-server", servers, "--command-config", properties()).exit_code == 0


@pytest.mark.parametrize("options", [("--timeout", "0.2"), ("--client", "socket.connection.setup.timeout.ms=200")])
@pytest.mark.parametrize("security", ["PLAINTEXT", "SSL"])
def test_a_silent_server_times_out(run: Run, options: tuple[str, ...], security: str) -> None:
    with silent_server() as address:
        given = ("-b", address, "--client", f"security.protocol={security}", *options)
        advice = f"'minibroker doctor {address}' may say why"
        assert refused(run, "topics list", *given) == (
            f"minibroker: cannot connect to {address}: no answer in 0.2 s; {advice}"
        )


def test_every_command_that_connects_has_a_timeout() -> None:
    for path, command in all_commands():
        options = {name for each in command.params for name in each.opts}
        assert "--bootstrap-server" not in options or "--timeout" in options, path


@pytest.mark.parametrize("command", ["doctor", "produce t", "consume t", "topics list"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e300"])
def test_a_time_that_nobody_can_wait_is_rejected(run: Run, command: str, seconds: str) -> None:
    assert refused(run, command, "--timeout", seconds).startswith(f"minibroker: --timeout: {float(seconds)} is not ")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("topics create t", "--partitions"),
        ("topics create t", "--replication-factor"),
        ("topics alter t", "--partitions"),
        ("transactions abort --topic t --start-offset 0", "--partition"),
        ("transactions abort --topic t --partition 0", "--start-offset"),
        ("groups reset-offsets g", "--to-offset"),
        ("produce t", "--partition"),
        ("consume t", "--partition"),
    ],
)
def test_a_number_that_no_request_can_have_is_rejected(run: Run, command: str, option: str) -> None:
    line = refused(run, command, option, str(1 << 63))
    assert line.startswith(f"minibroker: {option}: {1 << 63} is not in the range ")


def test_an_unresolvable_name_is_reported(run: Run) -> None:
    line = refused(run, "topics list", "-b", "no-such-host.invalid", "--timeout", "60")
    assert line.startswith("minibroker: cannot connect to no-such-host.invalid:9092: ")


def test_a_hanging_resolver_times_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(host: str, *_: object, flags: int = 0, **__: object) -> list[object]:
        if not flags:
            over.wait()
        raise socket.gaierror(socket.EAI_NONAME, "not an address")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    line = refused(run, "topics list", "-b", "slow", "--timeout", "0.2")
    over.set()
    assert line == "minibroker: cannot connect to slow:9092: the name was not resolved in 0.2 s"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "the server speaks HTTP, not Kafka's protocol"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the server speaks SSH, not Kafka's protocol"),
        (b"AMQP\x00\x00\x09\x01", "the server speaks AMQP, not Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the server speaks TLS: set security.protocol to SSL or SASL_SSL"),
    ],
)
def test_the_error_names_the_protocol_of_a_server_that_is_no_kafka(run: Run, answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(answer)
                connection.recv(1000)

        thread = threading.Thread(target=greet)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        line = refused(run, "topics list", "-b", address)
        thread.join()
    assert line == f"minibroker: cannot connect to {address}: {said}"


def test_an_unreachable_advertised_address_times_out(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        wrong = f"127.0.0.1:{free.getsockname()[1]}"
        with Broker(settings={"advertised.listeners": f"PLAINTEXT://{wrong}"}) as broker:
            ((listener,),) = broker.ports.listeners.values()
            server = f"127.0.0.1:{listener.port}"
            result = run("groups", "list", "-b", server, "--timeout", "0.5")
    told = f"{wrong}: ListGroups: no connection: Connection refused ({server} advertises this address)\n"
    assert (result.exit_code, result.stderr.endswith(told)) == (1, True)


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
@pytest.mark.parametrize("command", [*CONNECTING, "doctor"])
def test_ctrl_c_ends_a_command_while_it_connects(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        server = (address,) if command == "doctor" else ("-b", address)
        program = [sys.executable, "-m", "minibroker", *command.split(), *server, "--timeout", "100"]
        with (
            subprocess.Popen(program, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as running,
            silent.accept()[0],
        ):
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=50)
    assert (running.returncode, errors.strip()) == (130, "")


def test_debug_output_shows_requests_and_responses(run: Run, secured: Broker, properties: Callable[..., str]) -> None:
    result = run("topics", "list", "--command-config", properties(), "--log-level", "debug")
    assert result.exit_code == 0
    assert re.search(r" DEBUG minibroker\.client: \S+: request \d+: SaslAuthenticate \d+, \d+ bytes\n", result.stderr)
    assert re.search(r": answer \d+: Metadata \d+, \d+ bytes after [0-9.]+ ms\n", result.stderr)
    assert "alice" not in result.stderr
