"""Apache Kafka's own tools for share groups: consumers, the administration of groups, and readers of their state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conformance.conftest import Broker
from conformance.kafka_tools import Tool
from conformance.share.brokers import share_broker
from conformance.test_group_records import documents
from conformance.wire.batches import batch
from conformance.wire.connection import Connection
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, end_offset, metadata_of, produce, repeated, topic
from conformance.wire.share_members import Member, configure, start_offset
from minibroker.protocol.primitives import format_uuid
from tests.clients.share_requests import ACCEPT, REJECT, RELEASE

TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
PATIENCE_MS = 20_000
NOW_MS = 1_700_000_000_000
RECORDS = 100
TOPIC, STATE_TOPIC, GROUPS_TOPIC = "orders", "__share_group_state", "__consumer_offsets"
MEMBER = 10  # the type of the records of share groups' members
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's directory."""
    return tmp_path_factory.mktemp("share-tools")


@pytest.fixture(scope="module")
def broker(against: str, directory: Path) -> Iterator[Broker]:
    with share_broker(directory, against) as running:
        yield running


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def written(connection: Connection) -> None:
    """A topic with the numbers as its records."""
    assert connection.ask(create_request(topic(TOPIC)), 7).topics[0].error_code == 0
    repeated(lambda: end_offset(connection, TOPIC), lambda offset: offset == 0)
    records = batch([b"%d" % number for number in range(RECORDS)], timestamp=NOW_MS)
    assert produce(connection, TOPIC, records).error_code == 0


@pytest.fixture(scope="module")
def tool(broker: Broker, written: None, kafka_tool: Tool) -> Tool:
    """Runs a tool that asks the broker."""
    return lambda name, *arguments: kafka_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)


@pytest.fixture
def group(request: pytest.FixtureRequest, connection: Connection) -> str:
    """A group that reads from the start, named after the test."""
    name = f"{request.node.name[5:30]}"
    look_up(connection, name)
    configure(connection, name, auto_offset_reset="earliest")
    return name


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.strip()]


def test_the_verifiable_share_consumer_acknowledges_all_records(tool: Tool, connection: Connection, group: str) -> None:
    how = "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--max-messages", str(RECORDS)
    printed = tool(f"{TOOLS}.VerifiableShareConsumer", "--topic", TOPIC, "--group-id", group, *how)
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event["name"] for event in events][:2] == ["startup_complete", "offset_reset_strategy_set"]
    for name in ("records_consumed", "offsets_acknowledged"):
        assert sum(event["count"] for event in events if event["name"] == name) == RECORDS
    assert all(event["success"] for event in events if event["name"] == "offsets_acknowledged")
    assert start_offset(connection, group, TOPIC)[1] == 0


def test_the_performance_tool_reads_all_records(tool: Tool, connection: Connection, group: str) -> None:
    how = "--group", group, "--num-records", str(RECORDS), "--reporting-interval", "1000", "--hide-header"
    printed = tool(f"{TOOLS}.ShareConsumerPerformance", "--topic", TOPIC, *how)
    assert str(RECORDS) in [word.strip() for word in printed.split(",")], printed
    assert repeated(lambda: start_offset(connection, group, TOPIC)[1], lambda lag: lag == 0) == 0


def test_the_console_share_consumer_accepts_releases_and_rejects_records(
    tool: Tool, connection: Connection, group: str
) -> None:
    console = f"{TOOLS}.consumer.ConsoleShareConsumer"
    where = "--topic", TOPIC, "--group", group, "--timeout-ms", str(PATIENCE_MS)
    printed = tool(console, *where, "--max-messages", "3", "--formatter-property", "print.delivery=true", "--release")
    assert [line.split()[-1] for line in printed.splitlines()] == ["0", "1", "2"]
    assert all("Delivery:1" in line for line in printed.splitlines()), printed
    printed = tool(console, *where, "--max-messages", str(RECORDS), "--reject")
    assert printed.split() == [str(number) for number in range(RECORDS)]
    assert repeated(lambda: start_offset(connection, group, TOPIC)[1], lambda lag: lag == 0) == 0


def test_the_groups_tool_describes_resets_and_deletes_share_groups(
    tool: Tool, connection: Connection, group: str
) -> None:
    member = Member(connection, group, TOPIC, metadata_of(connection, TOPIC).topic_id)
    member.join()
    assert member.fetch_some(max_records=RECORDS) == [(0, RECORDS - 1, 1)]
    assert member.outcome((0, 39, [ACCEPT])) == 0
    assert member.outcome((40, 41, [ACCEPT])) == 0  # tells of the first ones
    assert [group, "Stable"] in [[line[0], line[-1]] for line in rows(tool(GROUPS, "--list", "--state"))]
    described = rows(tool(GROUPS, "--describe", "--group", group))
    assert [group, TOPIC, "0", "40", "58"] in [line[:5] for line in described], described
    described = rows(tool(GROUPS, "--describe", "--group", group, "--members"))
    assert member.member_id in described[1] and f"{TOPIC}:0" in described[1], described
    assert "Stable" in rows(tool(GROUPS, "--describe", "--group", group, "--state"))[1]
    assert member.acknowledge(share_session_epoch=-1).error_code == 0
    assert member.beat(member_epoch=-1).error_code == 0
    where = "--group", group, "--topic", TOPIC, "--reset-offsets", "--to-earliest"
    assert [group, TOPIC, "0", "0"] in rows(tool(GROUPS, *where, "--dry-run"))
    assert start_offset(connection, group, TOPIC)[0] > 0
    assert [group, TOPIC, "0", "0"] in rows(tool(GROUPS, *where, "--execute"))
    assert start_offset(connection, group, TOPIC) == (0, RECORDS)
    assert [TOPIC, "Successful"] in rows(tool(GROUPS, "--delete-offsets", "--group", group, "--topic", TOPIC))
    assert start_offset(connection, group, TOPIC) == (-1, -1)
    tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list")


# --- readers of the groups' state -----------------------------------------------------------------------------------


class Left(NamedTuple):
    """A share group that has said something of ten records; `records` is how many the coordinators of groups have."""

    group: str
    topic_id: bytes
    records: int


@pytest.fixture(scope="module")
def left(connection: Connection, written: None) -> Left:
    """A group that has accepted, released and rejected, and that has got some of it again."""
    group, topic_id = "left", metadata_of(connection, TOPIC).topic_id
    look_up(connection, group)
    configure(connection, group, auto_offset_reset="earliest")
    member = Member(connection, group, TOPIC, topic_id)
    member.join()
    assert member.fetch_some(max_records=10, share_acquire_mode=1) == [(0, 9, 1)]
    assert member.outcome((0, 9, [*[ACCEPT] * 3, RELEASE, RELEASE, REJECT, *[ACCEPT] * 4])) == 0
    assert member.fetch(max_records=2, share_acquire_mode=1) == [(3, 4, 2)]
    assert member.outcome((3, 4, [RELEASE, ACCEPT])) == 0
    assert member.acknowledge(share_session_epoch=-1).error_code == 0
    assert member.beat(member_epoch=-1).error_code == 0
    return Left(group, topic_id, end_offset(connection, GROUPS_TOPIC))


STATES = [(3, 3, AVAILABLE, 2), (4, 4, ACKNOWLEDGED, 2), (5, 5, ARCHIVED, 1), (6, 9, ACKNOWLEDGED, 1)]


def said(start: int, complete: int, *batches: tuple[int, int, int, int]) -> dict[str, Any]:
    """What a record says of a share partition, without epochs and times."""
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    states = [dict(zip(names, each, strict=True)) for each in batches]
    return {"startOffset": start, "deliveryCompleteCount": complete, "stateBatches": states}


STATES = [
    said(0, 8, (0, 2, ACKNOWLEDGED, 1), (3, 4, AVAILABLE, 1), (5, 5, ARCHIVED, 1), (6, 9, ACKNOWLEDGED, 1)),
    said(3, 6, (3, 3, AVAILABLE, 2), (4, 4, ACKNOWLEDGED, 2)),
]


def states_of(records: Iterable[tuple[Any, Any]], left: Left) -> list[dict[str, Any]]:
    """What the records say that the group has said."""
    asked = {"groupId": left.group, "topicId": format_uuid(left.topic_id), "partition": 0}
    found = [value["data"] for key, value in records if key["data"] == asked]
    return [{name: data[name] for name in STATES[0]} for data in found if data["stateBatches"]]


def test_the_share_state_formatter_reads_our_records(tool: Tool, connection: Connection, left: Left) -> None:
    printed = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", STATE_TOPIC, "--from-beginning", "--timeout-ms", str(PATIENCE_MS)),
        *("--max-messages", str(end_offset(connection, STATE_TOPIC))),
        *("--formatter", f"{TOOLS}.consumer.group.share.ShareGroupStateMessageFormatter"),
    )
    assert states_of(((each["key"], each["value"]) for each in documents(printed)), left) == STATES


def test_the_log_segment_decoder_reads_our_share_states(kafka_tool: Tool, directory: Path, left: Left) -> None:
    (log,) = directory.rglob(f"{STATE_TOPIC}-0/*.log")
    printed = kafka_tool(f"{TOOLS}.DumpLogSegments", "--share-group-state-decoder", "--files", str(log))
    found = re.findall("key: ({.*}) payload: ({.*})", printed)
    assert states_of(((json.loads(key), json.loads(value)) for key, value in found), left) == STATES


def test_the_group_formatter_reads_our_share_groups(tool: Tool, connection: Connection, left: Left) -> None:
    printed = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", GROUPS_TOPIC, "--partition", "0", "--offset", "earliest", "--timeout-ms", str(PATIENCE_MS)),
        *("--max-messages", str(left.records)),
        *("--formatter", f"{TOOLS}.consumer.ShareGroupMessageFormatter"),
    )
    found = [each for each in documents(printed) if each["key"]["data"]["groupId"] == left.group]
    names = [each["value"]["data"] for each in found if each["value"] and each["key"]["type"] == MEMBER]
    assert [each["subscribedTopicNames"] for each in names] == [[TOPIC]]
    assert [each["value"] for each in found if each["key"]["type"] == MEMBER][-1] is None
