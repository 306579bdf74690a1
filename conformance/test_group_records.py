"""Apache Kafka's own tools read what groups have left in `__consumer_offsets`, also after a kill.

Groups are made by confluent-kafka and by requests of old versions; what the coordinator answers is asked in `wire/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.conftest import Broker
from conformance.kafka_tools import Tool
from conformance.wire.connection import Connection
from conformance.wire.groups import commit, find_coordinator
from conformance.wire.requests import end_offset, metadata_of
from minibroker.protocol.messages.offsets import OffsetDeleteRequest

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
FORMATTERS = "org.apache.kafka.tools.consumer"
TOPIC = "__consumer_offsets"
DAY_MS = 86_400_000
PATIENCE_S = 60

Key = tuple[Any, ...]


class Left(NamedTuple):
    """A broker that was killed and runs again, and what was done before: ids as clients saw them."""

    broker: Broker
    member_id: str


@pytest.fixture(scope="module")
def left(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Left]:
    with start_broker(tmp_path_factory.mktemp("records")) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result()
        producer = Producer(servers)
        for number in range(10):
            producer.produce("orders", b"%d" % number, partition=0)
        producer.flush()
        member_id = read_and_commit({**servers, "group.id": "billing", "client.id": "till"})
        commit_by_hand(broker)
        broker.kill()
        broker.start()
        yield Left(broker, member_id)


def read_and_commit(config: dict[str, Any]) -> str:
    """A member that commits an offset with a note, and leaves: its id."""
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    assert consumer.poll(PATIENCE_S) is not None
    consumer.commit(offsets=[TopicPartition("orders", 0, 7, "a note")], asynchronous=False)
    member_id: str = consumer.memberid()
    consumer.close()
    return member_id


def commit_by_hand(broker: Broker) -> None:
    """A group without members, of an old client that says how long to keep its offset; another that takes one back."""
    with Connection(broker.bootstrap_servers) as connection:
        for group in ("old", "fickle"):
            find_coordinator(connection, group)
        asked = ("orders", 1, 3)
        assert commit(connection, "old", asked, version=2, retention_time_ms=DAY_MS) == {("orders", 1): 0}
        assert commit(connection, "fickle", asked) == {("orders", 1): 0}
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = topic.OffsetDeleteRequestPartition(partition_index=1)
        deletion = OffsetDeleteRequest(group_id="fickle", topics=[topic(name="orders", partitions=[partition])])
        assert connection.ask(deletion, 0).error_code == 0


def consumed(kafka_tool: Tool, broker: Broker, formatter: str) -> list[tuple[Any, Any]]:
    """Key and value of each record in `__consumer_offsets`, as the formatter shows them."""
    with Connection(broker.bootstrap_servers) as connection:
        partitions = range(len(metadata_of(connection, TOPIC).partitions))
        ends = {partition: end_offset(connection, TOPIC, partition) for partition in partitions}
    found = []
    for partition in (partition for partition, end in ends.items() if end):
        printed = kafka_tool(
            CONSOLE,
            *("--bootstrap-server", broker.bootstrap_servers),
            # Without a group, whose records it would see too.
            *("--topic", TOPIC, "--partition", str(partition), "--offset", "earliest"),
            *("--max-messages", str(ends[partition]), "--timeout-ms", str(1000 * PATIENCE_S)),
            *("--formatter", f"{FORMATTERS}.{formatter}"),
        )
        found += [(record["key"], record["value"]) for record in documents(printed)]
    return found


def documents(text: str) -> Iterator[Any]:
    """The JSON documents that stand one behind the other, before a line of words."""
    position = 0
    while text.startswith("{", position):
        document, position = json.JSONDecoder().raw_decode(text, position)
        yield document


def test_the_offsets_formatter_reads_every_commit(left: Left, kafka_tool: Tool) -> None:
    found: dict[Key, list[Any]] = {}
    for key, value in consumed(kafka_tool, left.broker, "OffsetsMessageFormatter"):
        data = key["data"]
        found.setdefault((data["group"], data["topic"], data["partition"]), []).append(value)
    billing = found["billing", "orders", 0][-1]
    assert billing["version"] == 4
    note = billing["data"]["metadata"].rstrip("\0")  # confluent-kafka commits the end of its C string too
    assert (billing["data"]["offset"], note) == (7, "a note")
    (old,) = found["old", "orders", 1]
    assert (old["version"], old["data"]["offset"]) == (1, 3)
    assert old["data"]["expireTimestamp"] - old["data"]["commitTimestamp"] == DAY_MS
    first, tombstone = found["fickle", "orders", 1]
    assert first["data"]["offset"] == 3 and tombstone is None


def test_the_group_metadata_formatter_reads_the_members(left: Left, kafka_tool: Tool) -> None:
    values = [
        value["data"]
        for key, value in consumed(kafka_tool, left.broker, "GroupMetadataMessageFormatter")
        if key["data"] == {"group": "billing"} and value is not None
    ]
    members = [member for value in values for member in value["members"]]
    assert {(member["memberId"], member["clientId"]) for member in members} == {(left.member_id, "till")}
    assert (values[-1]["protocolType"], values[-1]["members"]) == ("consumer", [])


def test_kafkas_groups_tool_describes_resets_and_deletes_consumer_groups(left: Left, kafka_tool: Tool) -> None:
    def groups(*arguments: str) -> list[list[str]]:
        printed = kafka_tool(GROUPS, "--bootstrap-server", left.broker.bootstrap_servers, *arguments)
        return [line.split() for line in printed.splitlines() if line.strip()]

    assert {"billing", "old"} <= {line[0] for line in groups("--list")}
    described = groups("--describe", "--group", "billing")
    assert ["billing", "orders", "0", "7", "10", "3"] in [line[:6] for line in described]
    where = ("--group", "billing", "--topic", "orders:0", "--reset-offsets")
    assert ["billing", "orders", "0", "2"] in groups(*where, "--shift-by", "-5", "--dry-run")
    assert ["billing", "orders", "0", "0"] in groups(*where, "--to-earliest", "--execute")
    described = groups("--describe", "--group", "billing")
    assert ["billing", "orders", "0", "0", "10", "10"] in [line[:6] for line in described]
    deletion = groups("--delete-offsets", "--group", "old", "--topic", "orders:1")
    assert ["orders", "1", "Successful"] in deletion
    groups("--delete", "--group", "billing")
    assert "billing" not in {line[0] for line in groups("--list")}
