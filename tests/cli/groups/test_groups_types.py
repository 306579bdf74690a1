"""`minibroker groups` with a group of Kafka Streams: its tasks and its committed offsets."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Run
from tests.clients.streams_members import streams_member
from tests.running import RunningBroker


def described(run_client: Run, group: str) -> Any:
    return json.loads(run_client("groups", "describe", group, "--json").stdout)


def test_a_streams_group_shows_the_tasks_of_its_members(run_client: Run, broker: RunningBroker) -> None:
    run_client("topics", "create", "words", "--partitions", "2")
    with streams_member(broker.bootstrap_servers, "counting", "words") as member:
        listed = json.loads(run_client("groups", "list", "--type", "streams", "--json").stdout)
        found = described(run_client, "counting")
        text = run_client("groups", "describe", "counting").stdout
    assert listed == [{"group": "counting", "type": "streams", "protocol": "streams", "state": "Stable"}]
    assert (found["state"], found["type"], found["offsets"]) == ("Stable", "streams", [])
    (who,) = found["members"]
    assert (who["member"], who["client"], who["process"]) == (member.member_id, "streams", "process")
    assert (who["active"], who["standby"], who["warmup"]) == ({"0": [0, 1]}, {}, {})
    lines = [line.split() for line in text.splitlines()]
    assert [member.member_id, "streams", "/127.0.0.1", "process", "0:0,1"] in lines


def test_the_offsets_of_a_streams_group_are_reset_and_deleted(run_client: Run, broker: RunningBroker) -> None:
    run_client("topics", "create", "read", "--partitions", "1")
    run_client("produce", "read", stdin=b"a\nb\n")
    with streams_member(broker.bootstrap_servers, "resting", "read"):
        refused = run_client("groups", "reset-offsets", "resting", "--topic", "read", "--to-latest", "--execute")
    assert refused.stderr.endswith("can only be reset while it has no members, and it is Stable\n")
    done = run_client("groups", "reset-offsets", "resting", "--topic", "read", "--to-latest", "--execute")
    assert done.exit_code == 0, done.stderr
    found = described(run_client, "resting")
    (offset,) = found["offsets"]
    assert found["type"] == "streams" and (offset["committed"], offset["end"], offset["lag"]) == (2, 2, 0)
    assert run_client("groups", "delete-offsets", "resting", "--topic", "read").exit_code == 0
    assert described(run_client, "resting")["offsets"] == []
