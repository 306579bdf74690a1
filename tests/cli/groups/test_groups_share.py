"""`minibroker groups` with share groups: listed, described, reset and deleted."""

from __future__ import annotations

import itertools
import json
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from tests.cli.conftest import Run
from tests.cli.group_members import member
from tests.clients.share_consumers import share_consumer
from tests.running import RunningBroker
from tests.testing.support import until

NUMBERS = itertools.count()


def sharer(servers: str, group: str, *topics: str) -> AbstractContextManager[ShareConsumer]:
    """A member of a share group."""
    return share_consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0}, *topics)


def described(run_client: Run, group: str) -> Any:
    done = run_client("groups", "describe", group, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def group(run_client: Run, broker: RunningBroker) -> tuple[str, str]:
    """A share group without members, and its topic of two partitions; it begins at the end of two records."""
    name = f"shared-{next(NUMBERS)}"
    run_client("topics", "create", name, "--partitions", "2")
    run_client("produce", name, "--partition", "0", stdin=b"a\nb\n")
    with sharer(broker.bootstrap_servers, name, name) as consumer:
        until(lambda: consumer.poll(0.1) or len(_starts(run_client, name)) == 2)
    # As in Kafka, it has no start offsets before anything is acknowledged.
    assert _starts(run_client, name) == {0: None, 1: None}
    run_client("groups", "reset-offsets", name, "--all-topics", "--to-latest", "--execute")
    return name, name


def _starts(run_client: Run, group: str) -> dict[int, int | None]:
    shown = run_client("groups", "describe", group, "--json")
    offsets = json.loads(shown.stdout)["offsets"] if shown.exit_code == 0 else []
    return {each["partition"]: each.get("start") for each in offsets}


def test_groups_of_all_types_are_listed(run_client: Run, broker: RunningBroker, group: tuple[str, str]) -> None:
    name, topic = group
    with member(broker.bootstrap_servers, "consuming", topic, 1):
        rows = json.loads(run_client("groups", "list", "--json").stdout)
        found = {row["group"]: (row["type"], row["protocol"], row["state"]) for row in rows}
        assert found[name] == ("share", "share", "Empty") and found["consuming"] == ("classic", "consumer", "Stable")
        shared = json.loads(run_client("groups", "list", "--type", "share", "--json").stdout)
        assert name in {row["group"] for row in shared} and {row["type"] for row in shared} == {"share"}
        lines = [line.split() for line in run_client("groups", "list").stdout.splitlines()]
        assert lines[0] == ["group", "type", "protocol", "state"] and [name, "share", "share", "Empty"] in lines


def test_a_share_group_is_described_with_members_and_start_offsets(
    run_client: Run, broker: RunningBroker, group: tuple[str, str]
) -> None:
    name, topic = group
    run_client("produce", topic, "--partition", "1", stdin=b"c\n")
    with sharer(broker.bootstrap_servers, name, topic) as consumer:
        until(lambda: consumer.poll(0.1) or described(run_client, name)["members"])
        found = described(run_client, name)
    assert (found["group"], found["state"], found["type"], found["assignor"]) == (name, "Stable", "share", "simple")
    (who,) = found["members"]
    assert (who["client"], who["instance"], who["partitions"]) == ("rdkafka", None, {topic: [0, 1]})
    empty = described(run_client, name)
    assert (empty["state"], empty["members"]) == ("Empty", [])
    first = empty["offsets"][0]
    assert first == {"topic": topic, "partition": 0, "start": 2, "lag": 0}
    lines = [line.split() for line in run_client("groups", "describe", name).stdout.splitlines()]
    assert ["topic", "partition", "start", "lag"] in lines and [topic, "0", "2", "0"] in lines


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 2, 1: 0}),
        (["--to-offset", "1"], {0: 1, 1: 0}),
        (["--shift-by", "-1"], {0: 1, 1: 0}),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_start_offsets_of_a_share_group_are_reset(
    run_client: Run, group: tuple[str, str], options: list[str], expected: dict[int, int]
) -> None:
    name, topic = group
    shown = run_client("groups", "reset-offsets", name, "--all-topics", *options)
    assert shown.exit_code == 0 and shown.stdout.endswith("\nnothing was changed; add --execute to do it\n")
    assert _starts(run_client, name) == {0: 2, 1: 0}
    done = run_client("groups", "reset-offsets", name, "--topic", topic, *options, "--execute", "--json")
    moves = {each["partition"]: (each["current"], each["new"]) for each in json.loads(done.stdout)["offsets"]}
    assert moves == {0: (2, expected[0]), 1: (0, expected[1])}
    assert _starts(run_client, name) == expected


def test_start_offsets_of_a_share_group_are_deleted_by_topic(run_client: Run, group: tuple[str, str]) -> None:
    name, topic = group
    done = run_client("groups", "delete-offsets", name, "--topic", topic, "--topic", "missing", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"group": name, "deleted": [topic]})
    assert done.stderr == f"minibroker: cannot delete the offsets of {name}: missing: UNKNOWN_TOPIC_OR_PARTITION\n"
    assert _starts(run_client, name) == {}
    again = run_client("groups", "reset-offsets", name, "--all-topics", "--to-latest")
    assert again.stderr == f"minibroker: {name} has no offsets: choose topics with --topic\n"


def test_a_share_group_with_members_is_not_reset(
    run_client: Run, broker: RunningBroker, group: tuple[str, str]
) -> None:
    name, topic = group
    with sharer(broker.bootstrap_servers, name, topic) as consumer:
        until(lambda: consumer.poll(0.1) or described(run_client, name)["state"] == "Stable")
        reset = run_client("groups", "reset-offsets", name, "--all-topics", "--to-latest", "--execute")
        deleted = run_client("groups", "delete-offsets", name, "--topic", topic)
        gone = run_client("groups", "delete", name)
    complaint = f"the offsets of {name} can only be reset while it has no members, and it is Stable"
    assert (reset.exit_code, reset.stderr) == (1, f"minibroker: {complaint}\n")
    assert (deleted.exit_code, deleted.stdout) == (1, "") and "NON_EMPTY_GROUP" in deleted.stderr
    assert gone.exit_code == 1 and "NON_EMPTY_GROUP" in gone.stderr
    assert run_client("groups", "delete", name).stdout == f"deleted {name}\n"


def test_committed_offsets_of_topics_are_deleted(run_client: Run) -> None:
    run_client("topics", "create", "left", "--partitions", "2")
    run_client("groups", "reset-offsets", "billing", "--topic", "left", "--to-earliest", "--execute")
    assert len(described(run_client, "billing")["offsets"]) == 2
    done = run_client("groups", "delete-offsets", "billing", "--topic", "left", "--topic", "other")
    assert (done.exit_code, done.stdout) == (1, "deleted the offsets of billing in left\n")
    assert done.stderr == "minibroker: cannot delete the offsets of billing: other: UNKNOWN_TOPIC_OR_PARTITION\n"
    assert run_client("groups", "delete-offsets", "nobody", "--topic", "left").stderr.endswith(
        "there is no group nobody\n"
    )
