"""`minibroker groups describe` against a broker: members, offsets and lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from tests.cli.conftest import Run
from tests.cli.group_members import member
from tests.running import RunningBroker


def described(run_client: Run, group: str) -> Any:
    return json.loads(run_client("groups", "describe", group, "--json").stdout)


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_a_group_with_members_is_described_with_assignments_and_lag(
    run_client: Run, broker: RunningBroker, protocol: str, assignor: str
) -> None:
    orders, billing = f"orders-{protocol}", f"billing-{protocol}"
    run_client("topics", "create", orders, "--partitions", "2")
    run_client("produce", orders, "--partition", "0", stdin=b"a\nb\nc\n")
    config = {"client.id": "till", "group.instance.id": "one", "group.protocol": protocol}
    with member(broker.bootstrap_servers, billing, orders, 2, **config):
        found = described(run_client, billing)
        text = run_client("groups", "describe", billing).stdout
    assert (found["group"], found["state"], found["type"]) == (billing, "Stable", protocol)
    assert found["assignor"] == assignor
    assert f"{found['coordinator']['host']}:{found['coordinator']['port']}" == broker.bootstrap_servers
    (who,) = found["members"]
    assert (who["instance"], who["client"], who["partitions"]) == ("one", "till", {orders: [0, 1]})
    shown = {"topic": orders, "member": who["member"], "metadata": ""}
    assert found["offsets"] == [
        {**shown, "partition": 0, "committed": 2, "end": 3, "lag": 1},
        {**shown, "partition": 1, "committed": None, "end": 0, "lag": None},
    ]
    lines = [line.split() for line in text.splitlines()]
    assert [billing, "Stable", protocol, assignor, "node", "1,", broker.bootstrap_servers] in lines
    assert [who["member"], "one", "till", "/127.0.0.1", f"{orders}:0,1"] in lines
    assert [orders, "0", "2", "3", "1", who["member"]] in lines


def test_an_empty_group_is_described_with_its_committed_offsets(run_client: Run) -> None:
    run_client("topics", "create", "kept")
    run_client("produce", "kept", "--partition", "1", stdin=b"a\nb\nc\n")
    run_client("groups", "reset-offsets", "gone", "--topic", "kept:1", "--to-offset", "1", "--execute")
    found = described(run_client, "gone")
    assert (found["state"], found["members"]) == ("Empty", [])
    (line,) = found["offsets"]
    assert (line["partition"], line["committed"], line["end"], line["lag"], line["member"]) == (1, 1, 3, 2, None)
    assert "instance" not in run_client("groups", "describe", "gone").stdout


def test_an_unknown_group_is_reported_in_one_line_with_status_1(run_client: Run) -> None:
    result = run_client("groups", "describe", "nobody")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "minibroker: there is no group nobody\n")


def test_a_group_of_another_protocol_type_shows_no_partitions(run_client: Run, broker: RunningBroker) -> None:
    with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers}, "worker")) as client:
        node = client.find_coordinator("group", "connectors")
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="sessioned", metadata=b"worker")
        join = JoinGroupRequest(
            group_id="connectors",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="connect",
            protocols=[protocol],
        )
        joined = client.request(join, node, highest=3)
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"connectors")
        said = {"generation_id": joined.generation_id, "member_id": joined.member_id, "assignments": [assignment]}
        assert client.request(SyncGroupRequest(group_id="connectors", **said), node, highest=3).error_code == 0
        found = described(run_client, "connectors")
    assert (found["state"], found["type"], found["assignor"]) == ("Stable", "classic", "sessioned")
    assert [(each["member"], each["partitions"]) for each in found["members"]] == [(joined.member_id, {})]
    rows = json.loads(run_client("groups", "list", "--json").stdout)
    assert [row["protocol"] for row in rows if row["group"] == "connectors"] == ["connect"]
