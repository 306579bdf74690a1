"""`minibroker schemas` and `consume --decode --registry`, against a registry of this process."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.testing import Broker
from tests.cli.conftest import Run
from tests.registry.asking import record

USER = record("User", ("name", "string"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    """Return a broker with a registry for all tests of this file."""
    with Broker(registry=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Return it empty; commands find its registry."""
    shared.reset()
    monkeypatch.setenv("MINIBROKER_REGISTRY_URL", shared.registry_url)
    return shared


def test_schemas_are_registered_listed_shown_checked_and_deleted(run: Run, broker: Broker, tmp_path: Path) -> None:
    file, other = tmp_path / "user.avsc", tmp_path / "other.avsc"
    file.write_text(json.dumps(USER))
    other.write_text(json.dumps(record("User", ("name", "string"), ("age", "int"))))
    assert run("schemas", "register", "users-value", str(file)).stdout == "1\n"
    listed = run("schemas", "list").stdout.splitlines()
    assert [line.split() for line in listed][-1] == ["users-value", "1", "1", "AVRO"]
    assert json.loads(run("schemas", "list", "--json").stdout)[0]["subject"] == "users-value"
    for name in ("users-value", "1"):
        assert json.loads(run("schemas", "show", name).stdout) == USER
    assert run("schemas", "check", "users-value", str(file)).stdout == "compatible\n"
    refused = run("schemas", "check", "users-value", str(other))
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.stderr
    assert run("schemas", "delete", "users-value", "--permanent").stdout == "1\n"
    assert broker.registry.subjects() == []


def test_schemas_of_several_response_pages_are_listed(run: Run, broker: Broker) -> None:
    broker.registry.set_compatibility("NONE")
    for number in range(1001):  # a thousand are in an answer
        broker.registry.register("s", f'{{"type":"fixed","name":"F","size":{number}}}')
    assert len(json.loads(run("schemas", "list", "--json").stdout)) == 1001


def test_schemas_are_registered_with_references_and_by_the_suffix_of_their_file(
    run: Run, broker: Broker, tmp_path: Path
) -> None:
    broker.registry.register("money", record("Money", ("cents", "long")))
    order = json.dumps(record("Order", ("price", "Money"))).encode()
    run("schemas", "register", "order", "-", "--reference", "Money=money:1", stdin=order)
    (tmp_path / "a.json").write_text('{"type": "object"}')
    run("schemas", "register", "json", str(tmp_path / "a.json"))
    found = json.loads(run("schemas", "list", "--json").stdout)
    assert [(each["subject"], each["schemaType"]) for each in found] == [
        *(("json", "JSON"), ("money", "AVRO"), ("order", "AVRO"))
    ]


def test_errors_of_the_registry_end_with_status_1_and_an_unreachable_one_with_2(run: Run, broker: Broker) -> None:
    result = run("schemas", "show", "nope")
    assert (result.exit_code, result.stderr) == (1, "minibroker: Subject 'nope' not found. (40401)\n")
    result = run("schemas", "list", "--registry", "http://127.0.0.1:1")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert run("schemas", "register", "x", "-", "--reference", "x", stdin=b"").exit_code == 2


def test_consume_decodes_values_by_their_registered_schemas(run: Run, broker: Broker) -> None:
    broker.registry.register("users-value", USER)
    broker.produce("users", b"\0\0\0\0\1\x06ann", b"ann", key="k")
    arguments = ["consume", "users", "--decode", "-b", broker.bootstrap_servers]
    result = run(*arguments)
    assert result.stdout == '{"name": "ann"}\nann\n'
    assert "users-0 at 1: it names no schema" in result.stderr
    first, second = map(json.loads, run(*arguments, "--json").stdout.splitlines())
    assert (first["decoded"], first["key"], "decoded" in second) == ({"name": "ann"}, "k", False)


def test_a_registry_over_tls_is_trusted_by_its_own_authority(run: Run, tmp_path: Path) -> None:
    with Broker(security="SASL_SSL", users={"ann": "secret"}, registry=True) as broker:
        config = broker.client_config("confluent", user="ann")
        authority = tmp_path / "ca.pem"
        authority.write_text(config["ssl.ca.pem"])
        broker.registry.register("users-value", USER)
        broker.produce("users", b"\0\0\0\0\1\x06ann")
        place = ["--registry", broker.registry_url.replace("//", "//ann:secret@"), "--registry-ca", str(authority)]
        assert "users-value" in run("schemas", "list", *place).stdout
        settings = {name: value for name, value in config.items() if name != "ssl.ca.pem"}
        (tmp_path / "client.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in (settings | {"ssl.ca.location": authority}).items())
        )
        connection = ["--command-config", str(tmp_path / "client.properties")]
        assert run("consume", "users", "--decode", *place, *connection).stdout == '{"name": "ann"}\n'


def test_the_error_names_a_certificate_file_that_is_invalid(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    for command in (["schemas", "list"], ["consume", "users", "--decode"]):
        arguments = [*command, "--registry", "https://localhost:1", "--registry-ca", str(file)]
        file.unlink(missing_ok=True)
        result = run(*arguments)
        said = f"minibroker: --registry-ca: {file}: No such file or directory\n"
        assert (result.exit_code, result.stderr) == (2, said)
        file.write_text("no certificate")
        result = run(*arguments)
        said = f"minibroker: --registry-ca: {file} has no certificates in PEM\n"
        assert (result.exit_code, result.stderr) == (2, said)


def test_a_silent_registry_times_out(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        result = run("schemas", "list", "--registry", url, "--registry-timeout", "0.1")
    assert (result.exit_code, result.stderr) == (2, f"minibroker: cannot connect to {url}: no answer in 0.1 s\n")
