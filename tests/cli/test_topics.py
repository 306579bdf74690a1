"""`minibroker topics` against a broker."""

from __future__ import annotations

import json

from tests.cli.conftest import Run
from tests.running import RunningBroker


def test_a_topic_is_created_listed_described_and_deleted(run_client: Run) -> None:
    created = run_client("topics", "create", "life", "--partitions", "3", "--config", "segment.bytes=2000000")
    assert (created.exit_code, created.stdout) == (0, "created life\n")
    listed = json.loads(run_client("topics", "list", "--json").stdout)
    assert {"name": "life", "partitions": 3, "replication_factor": 1} in listed
    described = json.loads(run_client("topics", "describe", "life", "--json").stdout)
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert {(row["earliest"], row["latest"]) for row in described["partitions"]} == {(0, 0)}
    assert described["configs"] == {"segment.bytes": "2000000"}
    assert run_client("topics", "delete", "life").stdout == "deleted life\n"
    assert "life" not in run_client("topics", "list").stdout


def test_a_person_gets_tables(run_client: Run) -> None:
    run_client("topics", "create", "tables", "--config", "retention.ms=5000")
    assert "tables" in run_client("topics", "list").stdout
    described = run_client("topics", "describe", "tables").stdout
    assert "partition" in described and "leader" in described
    assert "retention.ms" in described and "5000" in described


def test_a_count_that_is_not_given_is_the_brokers(run_client: Run) -> None:
    assert json.loads(run_client("topics", "create", "counted", "--json").stdout) == {"created": "counted"}
    described = json.loads(run_client("topics", "describe", "counted", "--json").stdout)
    assert len(described["partitions"]) == 2


def test_an_operation_that_fails_is_one_line_and_status_1(run_client: Run) -> None:
    run_client("topics", "create", "twice")
    again = run_client("topics", "create", "twice")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith("minibroker: cannot create twice: ") and "already exists" in again.stderr
    config = run_client("topics", "create", "configured", "--config", "segment.bytes=5")
    assert config.exit_code == 1
    assert "Invalid value 5 for configuration segment.bytes" in config.stderr
    missing = run_client("topics", "describe", "missing")
    assert (missing.exit_code, missing.stderr) == (1, "minibroker: there is no topic missing\n")


def test_what_can_be_deleted_is_and_the_rest_is_said(run_client: Run) -> None:
    run_client("topics", "create", "known")
    result = run_client("topics", "delete", "known", "unknown", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"deleted": ["known"]})
    assert result.stderr.startswith("minibroker: cannot delete unknown: ")


def test_a_setting_the_client_library_does_not_have_is_bad_input(run_client: Run) -> None:
    result = run_client("topics", "list", "--client", "foo=bar")
    assert (result.exit_code, result.stderr) == (2, 'minibroker: No such configuration property: "foo"\n')


def test_several_servers_can_be_given(run: Run, broker: RunningBroker) -> None:
    servers = f"127.0.0.1:1,{broker.bootstrap_servers}"
    assert run("topics", "list", "--json", "--bootstrap-server", servers).exit_code == 0
