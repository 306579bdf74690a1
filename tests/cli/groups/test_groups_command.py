"""`minibroker groups list` and `delete` against a broker."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run
from tests.cli.group_members import member
from tests.running import RunningBroker


def commit(run_client: Run, group: str, topic: str) -> None:
    """Commit something for a group without members."""
    run_client("topics", "create", topic)
    done = run_client("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert done.exit_code == 0, done.stderr


def listed(run_client: Run, *options: str) -> dict[str, tuple[str, str]]:
    rows = json.loads(run_client("groups", "list", "--json", *options).stdout)
    return {row["group"]: (row["type"], row["state"]) for row in rows}


def test_groups_are_listed_by_state_and_type(run_client: Run, broker: RunningBroker) -> None:
    commit(run_client, "resting", "t")
    run_client("produce", "t", stdin=b"hello\n")
    with member(broker.bootstrap_servers, "reading", "t", 1):
        found = listed(run_client)
        assert found["resting"] == ("classic", "Empty") and found["reading"] == ("classic", "Stable")
        assert "resting" not in listed(run_client, "--state", "stable")
        both = listed(run_client, "--state", "Stable", "--state", "Empty", "--type", "classic")
        assert {"resting", "reading"} <= both.keys()
        assert not {"resting", "reading"} & listed(run_client, "--type", "consumer").keys()
        lines = [line.split() for line in run_client("groups", "list").stdout.splitlines()]
        assert lines[0] == ["group", "type", "protocol", "state"]
        assert ["reading", "classic", "consumer", "Stable"] in lines


def test_deletable_groups_are_deleted_and_the_others_reported(run_client: Run, broker: RunningBroker) -> None:
    commit(run_client, "old", "d")
    run_client("produce", "d", stdin=b"hello\n")
    with member(broker.bootstrap_servers, "busy", "d", 1):
        result = run_client("groups", "delete", "old", "busy", "unknown", "old", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"deleted": ["old"]})
    assert result.stderr.startswith("minibroker: cannot delete busy: ") and result.stderr.count("\n") == 1
    assert "there is no group unknown\n" in result.stderr
    assert "old" not in listed(run_client)
    assert run_client("groups", "delete", "busy").stdout == "deleted busy\n"


@pytest.mark.parametrize("option", [["--state", "Lazy"], ["--type", "Lazy"]])
def test_an_unknown_state_or_type_is_rejected(run_client: Run, option: list[str]) -> None:
    result = run_client("groups", "list", *option)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"minibroker: {option[0]}: 'Lazy' is not one of ")
