"""`minibroker groups` administers groups of all types of any Kafka, Apache Kafka's among them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from conformance.conftest import Broker
from minibroker.cli.main import main
from minibroker.client.blocking import Client
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest
from tests.clients.share_consumers import share_consumer
from tests.clients.streams_members import streams_member
from tests.testing.support import until


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two records in its only partition."""
    name = request.node.name
    assert run(broker, "topics", "create", name, "--partitions", "1") == f"created {name}\n"
    run(broker, "produce", name, stdin=b"a\nb\n")
    return name


def run(broker: Broker, *arguments: str, stdin: bytes = b"") -> str:
    """What a command prints, AssertionError if it fails."""
    done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap_servers], input=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def groups(broker: Broker, *arguments: str) -> Any:
    return json.loads(run(broker, "groups", *arguments, "--json"))


def listed(broker: Broker) -> dict[str, tuple[str, str, str]]:
    return {each["group"]: (each["type"], each["protocol"], each["state"]) for each in groups(broker, "list")}


def offsets(broker: Broker, group: str) -> list[tuple[object, object]]:
    """Start or committed offset, and lag, of each partition."""
    found = groups(broker, "describe", group)["offsets"]
    return [(each["start"] if "start" in each else each["committed"], each["lag"]) for each in found]


def test_the_groups_command_supports_a_share_group(broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0}
    with share_consumer(settings, topic) as consumer:
        until(lambda: consumer.poll(0.1) or _partitions(broker, group) == [{topic: [0]}])
        assert listed(broker)[group] == ("share", "share", "Stable")
    assert listed(broker)[group] == ("share", "share", "Empty")
    moved = groups(broker, "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert [each["new"] for each in moved["offsets"]] == [0]
    assert offsets(broker, group) == [(0, 2)]
    groups(broker, "reset-offsets", group, "--all-topics", "--shift-by", "1", "--execute")
    assert offsets(broker, group) == [(1, 1)]
    assert groups(broker, "delete-offsets", group, "--topic", topic) == {"group": group, "deleted": [topic]}
    assert offsets(broker, group) == []
    assert groups(broker, "delete", group) == {"deleted": [group]}
    assert group not in listed(broker)


def _partitions(broker: Broker, group: str) -> list[dict[str, list[int]]]:
    if group not in listed(broker):
        return []
    return [each["partitions"] for each in groups(broker, "describe", group)["members"]]


def test_the_groups_command_supports_a_streams_group(broker: Broker, topic: str) -> None:
    group = f"{topic}-group"
    _enable_streams(broker)
    with streams_member(broker.bootstrap_servers, group, topic) as member:
        until(lambda: member.beat() and member.tasks)
        found = groups(broker, "describe", group)
    assert (found["type"], found["state"]) == ("streams", "Stable")
    assert [(each["client"], each["process"], each["active"]) for each in found["members"]] == [
        ("streams", "process", {"0": [0]})
    ]
    assert listed(broker)[group] == ("streams", "streams", "Empty")
    groups(broker, "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    assert offsets(broker, group) == [(2, 0)]
    assert groups(broker, "delete-offsets", group, "--topic", topic)["deleted"] == [topic]
    assert offsets(broker, group) == []
    groups(broker, "delete", group)


def _enable_streams(broker: Broker) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="streams.version", max_version_level=1)
    with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers}, "test")) as client:
        answer = client.request(UpdateFeaturesRequest(feature_updates=[update]), client.fetch_controller_id())
        assert answer.error_code == 0, answer
