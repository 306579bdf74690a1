"""`minibroker proxy` as a process: it says where it listens, prints what passes, and sums it up at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from minibroker.cli.main import main
from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.cluster import DescribeClusterRequest
from minibroker.testing import Broker
from tests.cases import for_each
from tests.certificates import Authority
from tests.running import PATIENCE_S


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@contextmanager
def running(broker: Broker, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the proxy; yield its address and the process."""
    command = [sys.executable, "-m", "minibroker", "proxy", "--upstream", broker.bootstrap_servers]
    command += ["--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith(f"minibroker proxies {broker.bootstrap_servers} on 127.0.0.1:"), said
            yield said.split()[-1], process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    said, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaints) == (0, "")
    return said


def test_the_proxy_prints_requests_and_a_table_at_the_end(broker: Broker) -> None:
    with running(broker) as (address, process):
        AdminClient({"bootstrap.servers": address, "client.id": "who"}).list_topics(timeout=PATIENCE_S)
        lines = ended(process).splitlines()
    assert lines[0].startswith("#1 127.0.0.1:") and " who: ApiVersions " in lines[0]
    (row,) = (line for line in lines if line.strip().startswith("Metadata"))
    assert int(row.split()[2]) >= 1


def test_the_proxy_prints_only_requested_exchanges(broker: Broker) -> None:
    with running(broker, "--api", "Metadata") as (address, process):
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_S)
        printed = [line for line in ended(process).splitlines() if line.startswith("#")]
    assert printed and all(": Metadata " in line for line in printed)


def test_the_proxy_loads_faults_from_a_file(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("- {api: DescribeCluster, close: before, times: 1}\n")
    with running(broker, "--faults", str(tmp_path / "faults.yaml")) as (address, process):
        with Client(ClientSettings({"bootstrap.servers": address})) as client, pytest.raises(ClientError):
            client.request(DescribeClusterRequest())
        said = ended(process)
    assert "DescribeCluster 2 lost, api DescribeCluster, close before, times 1" in said


def test_the_proxy_is_controlled_over_http(broker: Broker) -> None:
    with running(broker, "--control", "0", "--control-token", "secret", "--quiet") as (address, process):
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("minibroker is controlled at ").strip()
        assert url.startswith("http://127.0.0.1:")

        def ask(path: str, body: object = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            headers = {"content-type": "application/json", "authorization": "Bearer secret"}
            with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=30) as answer:
                return json.load(answer)

        (fault,) = ask("/v1/faults", {"api": "DescribeCluster", "close": "before", "times": 1})
        with Client(ClientSettings({"bootstrap.servers": address})) as client, pytest.raises(ClientError):
            client.request(DescribeClusterRequest())
        assert ask(f"/v1/faults/{fault['number']}/wait", {})["hits"] == 1
        (seen,) = ask("/v1/requests?api=DescribeCluster")
        assert (seen["outcome"], seen["faults"]) == ("lost", [fault["rule"]])
        ended(process)


@for_each(
    ("options", "reason"),
    [
        (["--upstream", "a:b"], "minibroker: --upstream: 'a:b' is not HOST:PORT"),
        (["--upstream", "a:1,b:1"], "one bootstrap server"),
        (["--upstream", "a:1", "--api", "Nothing"], "is not an API of Kafka"),
        (["--upstream", "a:1", "--quiet", "--api", "Fetch"], "nothing for --api"),
        (["--upstream", "a:1", "--set", "ssl.keystore.location=/nowhere"], "ssl.keystore.password is not"),
        (["--upstream", "a:1", "--client", "security.protocol=NONE"], "security.protocol must be one of"),
        (["--upstream", "a:1", "--faults", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--upstream", "a:1", "--control", "0.0.0.0:0"], "needs a token: --control-token"),
        (["--upstream", "a:1", "--control-token", "t"], "needs --control"),
    ],
)
def test_invalid_proxy_arguments_are_reported_in_one_line(options: list[str], reason: str) -> None:
    run = CliRunner().invoke(main, ["proxy", "--listen", "127.0.0.1:0", *options])
    assert run.exit_code in (1, 2) and reason in run.stderr
    assert len(run.stderr.splitlines()) == 1


def options_of(name: str, **settings: str) -> list[str]:
    return [word for key, value in settings.items() for word in (name, f"{key.replace('_', '.')}={value}")]


LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}


@pytest.mark.parametrize(
    ("listen", "client_auth", "warns"),
    [(":0", "", True), ("0.0.0.0:0", "requested", True), (":0", "required", False), ("[::1]:0", "", False)],
)
def test_the_proxy_warns_if_other_machines_can_use_its_login(
    listen: str, client_auth: str, warns: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = options_of("--client", **LOGIN)
    if client_auth:
        store = str(Authority().sign().write(tmp_path, "server"))
        options += options_of("--set", ssl_keystore_type="PEM", ssl_keystore_location=store)
        options += options_of("--set", ssl_client_auth=client_auth)
    arguments = ["--upstream", "a:1", "--listen", listen, "--faults", str(tmp_path / "missing.yaml"), *options]
    run = CliRunner().invoke(main, ["proxy", *arguments])
    assert "missing.yaml" in run.stderr
    assert ("other machines reach the proxy without authentication" in caplog.text) is warns
