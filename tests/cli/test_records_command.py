"""`minibroker records`: what it deletes, and that it only does so when told to."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FOR_EVER, Run


@pytest.fixture
def topic(run_client: Run, request: pytest.FixtureRequest) -> str:
    """A topic with three records in each of two partitions."""
    name: str = request.node.name
    run_client("topics", "create", name, "--partitions", "2", *FOR_EVER)
    for partition in ("0", "1"):
        run_client("produce", name, "--partition", partition, "--timestamp", "@5000", stdin=b"a\nb\nc\n")
    return name


def left(run_client: Run, topic: str) -> list[tuple[int, int]]:
    """The partition and offset of each record."""
    found = map(json.loads, run_client("consume", topic, "--json").stdout.splitlines())
    return sorted((each["partition"], each["offset"]) for each in found)


def test_nothing_is_deleted_without_execute(run_client: Run, topic: str) -> None:
    result = run_client("records", "delete", topic, "--before", "2", "--json")
    document = json.loads(result.stdout)
    assert not document["executed"] and [each["records"] for each in document["partitions"]] == [2, 2]
    assert "add --execute" in run_client("records", "delete", topic, "--before", "2").stdout
    assert len(left(run_client, topic)) == 6


def test_records_before_an_offset_are_deleted(run_client: Run, topic: str) -> None:
    result = run_client("records", "delete", f"{topic}:1", "--before", "2", "--execute")
    assert result.exit_code == 0 and "2 records deleted" in result.stdout
    assert left(run_client, topic) == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_each_partition_can_have_its_own_position(run_client: Run, topic: str) -> None:
    run_client("records", "delete", topic, "--before", "0=1", "--before", "1=latest", "--execute")
    assert left(run_client, topic) == [(0, 1), (0, 2)]


def test_records_before_a_timestamp_are_deleted(run_client: Run, topic: str) -> None:
    run_client("records", "delete", topic, "--before", "@5000", "--execute")
    assert len(left(run_client, topic)) == 6
    run_client("records", "delete", topic, "--before", "now", "--execute")
    assert left(run_client, topic) == []


def test_a_rejection_by_the_broker_is_reported(run_client: Run) -> None:
    run_client("topics", "create", "compacted", "--config", "cleanup.policy=compact", "--partitions", "1")
    run_client("produce", "compacted", "--key", "k", stdin=b"a\n")
    result = run_client("records", "delete", "compacted", "--before", "latest", "--execute")
    assert result.exit_code == 1 and "cannot delete records of compacted-0: POLICY_VIOLATION" in result.stderr


def test_records_delete_requires_a_position(run: Run) -> None:
    result = run("records", "delete", "t")
    assert result.exit_code == 2 and "--before" in result.stderr
