"""`minibroker topics` against a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.running import RunningBroker, running_broker


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


def test_topics_are_printed_in_tables(run_client: Run) -> None:
    run_client("topics", "create", "tables", "--config", "retention.ms=5000")
    assert "tables" in run_client("topics", "list").stdout
    described = run_client("topics", "describe", "tables").stdout
    assert "partition" in described and "leader" in described
    assert "retention.ms" in described and "5000" in described


def test_counts_that_are_not_given_are_the_brokers_defaults(run_client: Run) -> None:
    assert json.loads(run_client("topics", "create", "counted", "--json").stdout) == {"created": "counted"}
    described = json.loads(run_client("topics", "describe", "counted", "--json").stdout)
    assert len(described["partitions"]) == 2


def test_the_requested_number_of_replicas_is_created(run_client: Run) -> None:
    refused = run_client("topics", "create", "replicated", "--replication-factor", "2")
    assert refused.exit_code == 1 and "replication factor" in refused.stderr.lower()
    assert run_client("topics", "create", "replicated", "--replication-factor", "1").exit_code == 0


def test_partitions_are_added_to_a_topic(run_client: Run) -> None:
    run_client("topics", "create", "grown", "--partitions", "2")
    assert run_client("topics", "alter", "grown", "--partitions", "3").stdout == "grown has 3 partitions, and had 2\n"
    again = run_client("topics", "alter", "grown", "--partitions", "5", "--json")
    assert json.loads(again.stdout) == {"altered": "grown", "partitions": 5, "before": 3}
    described = json.loads(run_client("topics", "describe", "grown", "--json").stdout)
    assert len(described["partitions"]) == 5


@pytest.mark.parametrize(("count", "complaint"), [("2", "already has 2"), ("1", "would not be an increase")])
def test_partitions_cannot_be_removed(run_client: Run, count: str, complaint: str) -> None:
    run_client("topics", "create", "kept", "--partitions", "2")
    refused = run_client("topics", "alter", "kept", "--partitions", count)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("minibroker: cannot alter kept: ") and complaint in refused.stderr


def configs(run_client: Run, name: str) -> dict[str, dict[str, object]]:
    return {row["config"]: row for row in json.loads(run_client("topics", "config", name, "--json").stdout)}


def test_configs_are_shown_with_source_and_default(run_client: Run) -> None:
    run_client("topics", "create", "shown", "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
    rows = configs(run_client, "shown")
    assert rows["retention.ms"] == {
        "config": "retention.ms",
        "value": "5000",
        "source": "topic",
        "default": "604800000",
        "read_only": False,
    }
    assert (rows["cleanup.policy"]["source"], rows["cleanup.policy"]["default"]) == ("topic", "delete")
    assert (rows["segment.bytes"]["source"], rows["segment.bytes"]["default"]) == ("default", "1073741824")
    lines = run_client("topics", "config", "shown").stdout.splitlines()
    assert lines[0].split() == ["config", "value", "source", "default"]
    assert ["retention.ms", "5000", "topic", "604800000"] in [line.split() for line in lines]


def test_topic_configs_are_set_and_deleted_in_one_command(run_client: Run) -> None:
    run_client("topics", "create", "changed", "--config", "retention.ms=5000")
    changed = run_client(
        "topics", "config", "changed", "--set", "segment.ms=60000", "--set", "flush.ms=7", "--delete", "retention.ms"
    )
    assert changed.stdout.splitlines() == [
        "changed: segment.ms is 60000",
        "changed: flush.ms is 7",
        "changed: retention.ms is no longer set",
    ]
    rows = configs(run_client, "changed")
    assert {name: row["value"] for name, row in rows.items() if row["source"] == "topic"} == {
        "segment.ms": "60000",
        "flush.ms": "7",
    }
    told = run_client("topics", "config", "changed", "--delete", "flush.ms", "--json")
    assert json.loads(told.stdout) == {"name": "changed", "set": {}, "deleted": ["flush.ms"]}


def test_a_config_that_cannot_be_unset_is_reported(run_client: Run) -> None:
    elide = "record.attributes.elide"
    run_client("topics", "create", "eliding", "--config", f"{elide}=true", "--config", "flush.ms=7")
    told = run_client("topics", "config", "eliding", "--delete", elide, "--delete", "flush.ms")
    assert told.stdout.splitlines() == [
        f"eliding: {elide} is now false: once set, it cannot be unset",
        "eliding: flush.ms is no longer set",
    ]
    told = run_client("topics", "config", "eliding", "--delete", elide, "--json")
    assert json.loads(told.stdout) == {"name": "eliding", "set": {elide: "false"}, "deleted": []}


def test_an_unknown_config_cannot_be_deleted(run_client: Run) -> None:
    run_client("topics", "create", "misspelt", "--config", "flush.ms=7")
    result = run_client("topics", "config", "misspelt", "--delete", "flush.ms", "--delete", "retention.m")
    told = "minibroker: misspelt has no config retention.m; did you mean retention.ms?\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", told)
    assert configs(run_client, "misspelt")["flush.ms"]["value"] == "7"


def test_one_rejected_config_prevents_all_changes(run_client: Run) -> None:
    run_client("topics", "create", "refused")
    result = run_client("topics", "config", "refused", "--set", "segment.ms=60000", "--set", "flush.ms=soon")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("minibroker: cannot change the configs of refused: ")
    assert all(row["source"] != "topic" for row in configs(run_client, "refused").values())


@pytest.mark.parametrize("twice", [["--set", "a=1", "--set", "a=2"], ["--set", "a=1", "--delete", "a"]])
def test_a_duplicate_config_is_rejected(run_client: Run, twice: list[str]) -> None:
    result = run_client("topics", "config", "any", *twice)
    assert (result.exit_code, result.stderr) == (2, "minibroker: a is given twice\n")


@pytest.mark.parametrize("command", [["alter", "missing", "--partitions", "2"], ["config", "missing"]])
def test_an_unknown_topic_cannot_be_changed(run_client: Run, command: list[str]) -> None:
    result = run_client("topics", *command)
    assert (result.exit_code, result.stderr) == (1, "minibroker: there is no topic missing\n")


def test_a_failed_operation_is_reported_in_one_line_with_status_1(run_client: Run) -> None:
    run_client("topics", "create", "twice")
    again = run_client("topics", "create", "twice")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.startswith("minibroker: cannot create twice: ") and "already exists" in again.stderr
    config = run_client("topics", "create", "configured", "--config", "segment.bytes=5")
    assert config.exit_code == 1
    assert "Invalid value 5 for configuration segment.bytes" in config.stderr
    misspelt = run_client("topics", "create", "configured", "--config", "segment.byte=5")
    assert misspelt.stderr.endswith("; did you mean segment.bytes?\n")
    missing = run_client("topics", "describe", "missing")
    assert (missing.exit_code, missing.stderr) == (1, "minibroker: there is no topic missing\n")


def test_deletable_topics_are_deleted_and_the_others_reported(run_client: Run) -> None:
    run_client("topics", "create", "known")
    result = run_client("topics", "delete", "known", "unknown", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"deleted": ["known"]})
    assert result.stderr == "minibroker: there is no topic unknown\n"


def test_an_unknown_client_setting_is_rejected(run_client: Run) -> None:
    result = run_client("topics", "list", "--client", "foo=bar")
    assert (result.exit_code, result.stderr) == (2, "minibroker: --client: foo is not known\n")


def test_several_servers_can_be_given(run: Run, broker: RunningBroker) -> None:
    servers = f"127.0.0.1:1,{broker.bootstrap_servers}"
    assert run("topics", "list", "--json", "--bootstrap-server", servers).exit_code == 0


def test_creating_a_topic_on_an_old_broker_requires_its_counts(run: Run, tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--emulate", "2.3")) as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        some = run("topics", "create", "old", "--partitions", "2", *address)
        both = run("topics", "create", "old", "--partitions", "2", "--replication-factor", "1", *address)
    advice = "brokers before 2.4 have no defaults: add --partitions and --replication-factor"
    assert (some.exit_code, some.stderr) == (1, f"minibroker: {advice}\n")
    assert (both.exit_code, both.stdout) == (0, "created old\n")


@pytest.mark.parametrize("release", ["0.10.2", "0.10.0"])
def test_partitions_are_described_for_a_broker_without_describe_configs(run: Run, tmp_path: Path, release: str) -> None:
    with running_broker(tmp_path, options=("--emulate", release)) as broker:
        address = ("--bootstrap-server", broker.bootstrap_servers)
        run("produce", "old", *address, stdin=b"a\n")
        told = run("topics", "describe", "old", *address, "--json")
        plain = run("topics", "describe", "old", *address)
    assert (told.exit_code, plain.exit_code) == (0, 0)
    described = json.loads(told.stdout)
    assert described["configs"] is None
    assert [(row["earliest"], row["latest"]) for row in described["partitions"]] == [(0, 1)]
    assert "partition" in plain.stdout
    assert plain.stderr == "minibroker: configs are not shown, as brokers before 1.1 do not tell them\n"
