"""What the context of a request has for handlers: topics and partitions, rights, throttling, log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.security.operations import READ_GROUP, READ_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.groups import HeartbeatRequest
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.replicas import AlterReplicaLogDirsRequest
from minibroker.protocol.messages.security import SaslHandshakeRequest
from tests.broker.harness import Harness, Verdicts, batch

Data = ProduceRequest.TopicProduceData
Deletion = DeleteRecordsRequest.DeleteRecordsTopic
Move = AlterReplicaLogDirsRequest.AlterReplicaLogDir

Lines = Callable[[], list[Any]]
COUNT = 5_000


def context_on(harness: Harness, node: int = 1) -> RequestContext:
    """The context of a request that came to this node."""
    return harness.make_context(ApiKey.DESCRIBE_GROUPS, 0, harness.client(node=node).connection)


def test_a_client_is_anonymous_until_it_has_authenticated(harness: Harness) -> None:
    assert str(context_on(harness).principal) == "User:ANONYMOUS"


def test_a_topic_is_found_by_its_name_and_by_its_id(harness: Harness) -> None:
    harness.create_topic("t", partitions=2)
    context, topic = context_on(harness), harness.cluster.image.topics["t"]
    for key in ("t", topic.topic_id):
        assert context.get_topic(key) is context.find_topic(key) is topic
        assert context.get_led_partition(key, 1) is context.find_partition(key, 1) is topic.partitions[1]
        assert context.find_partition(key, 2) is None


@pytest.mark.parametrize(
    ("key", "code"),
    [("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (bytes(range(16)), ErrorCode.UNKNOWN_TOPIC_ID)],
)
def test_an_unknown_topic_has_the_error_code_for_names_or_ids(
    harness: Harness, key: str | bytes, code: ErrorCode
) -> None:
    context = context_on(harness)
    assert (context.find_topic(key), context.find_partition(key, 0)) == (None, None)
    with pytest.raises(KafkaError) as of_topic:
        context.get_topic(key, "Where is it?")
    assert (of_topic.value.code, of_topic.value.message) == (code, "Where is it?")
    with pytest.raises(KafkaError) as of_partition:
        context.get_led_partition(key, 0)
    assert of_partition.value.code == code


def test_a_partition_is_served_by_its_leader_while_its_log_is_usable(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        partition = harness.partition("t")
        with pytest.raises(KafkaError) as elsewhere:
            context_on(harness, 3 - partition.leader_id).get_led_partition("t", 0)
        assert elsewhere.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        context = context_on(harness, partition.leader_id)
        with pytest.raises(KafkaError) as unknown:
            context.get_led_partition("t", 1)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert context.get_led_partition("t", 0) is partition
        partition.log.offline = "The disk has gone."
        with pytest.raises(KafkaError) as offline:
            context.get_led_partition("t", 0)
        assert offline.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_missing_permission_has_the_error_code_of_its_resource_type(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    authorizer = Verdicts(lambda right, name: (right, name) == (READ_GROUP, "mine"))
    monkeypatch.setattr(harness.cluster, "authorizer", authorizer)
    context = context_on(harness)
    context.authorize(READ_GROUP, "mine")
    with pytest.raises(KafkaError) as of_group:
        context.authorize(READ_GROUP, "another's")
    assert of_group.value.code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    for key in ("t", "none", harness.cluster.image.topics["t"].topic_id):  # whether there is one or not
        with pytest.raises(KafkaError) as of_topic:
            context.authorize_topic(READ_TOPIC, key)
        assert of_topic.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_response_contains_the_throttle_time_of_its_client(harness: Harness) -> None:
    harness.cluster.image.quotas[frozenset({("client-id", None)})] = {"request_percentage": 1e-6}
    assert harness.request(HeartbeatRequest(group_id="g")).throttle_time_ms == 1000
    assert harness.request(MetadataRequest(topics=[])).throttle_time_ms == 1000
    assert harness.request(ApiVersionsRequest(), 1).throttle_time_ms == 1000
    assert harness.request(SaslHandshakeRequest()).error_code == ErrorCode.ILLEGAL_SASL_STATE  # it has no such field


def produce(acks: int = -1) -> ProduceRequest:
    """To partitions that are not there, and to one that is, whose records are none."""
    asked = [Data.PartitionProduceData(index=index, records=memoryview(b"")) for index in range(COUNT + 1)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[Data(name="t", partition_data=asked)])


def delete_records() -> DeleteRecordsRequest:
    asked = [Deletion.DeleteRecordsPartition(partition_index=index, offset=7) for index in range(1, COUNT + 1)]
    return DeleteRecordsRequest(topics=[Deletion(name="t", partitions=asked)], timeout_ms=1000)


def metadata() -> MetadataRequest:
    """Creation on demand of names that collide with the topic's."""
    names = ["t_u", *(f"t.u{number}" for number in range(3))]
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])


def move() -> AlterReplicaLogDirsRequest:
    topics = [Move.AlterReplicaLogDirTopic(name="t", partitions=list(range(1, COUNT + 1)))]
    return AlterReplicaLogDirsRequest(dirs=[Move(path="/nowhere", topics=topics)])


@pytest.fixture
def topics(harness: Harness) -> Harness:
    for name in ("t", "t.u", "t_u0", "t_u1", "t_u2"):
        harness.create_topic(name)
    return harness


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    caplog.set_level(logging.INFO)
    return lambda: caplog.records


def test_a_rejected_produce_logs_one_line_for_each_reason(topics: Harness, lines: Lines) -> None:
    topics.request(produce(), 9, client_id="mine")
    assert [line.getMessage().partition(": ")[0] for line in lines()] == [
        "Produce from mine refused for t-0",
        "Produce from mine refused for t-1 and 4999 more",
    ]
    unknown = lines()[1]
    assert (unknown.api, unknown.client, unknown.topic, unknown.partition) == ("Produce", "mine", "t", 1)
    assert (unknown.code, unknown.count, unknown.name) == ("UNKNOWN_TOPIC_OR_PARTITION", COUNT, "minibroker.produce")


def test_a_rejected_produce_with_acks_0_logs_its_reasons(topics: Harness, lines: Lines) -> None:
    with pytest.raises(UnanswerableRequest):
        topics.request(produce(acks=0), 9)
    assert len(lines()) == 2


def test_a_successful_produce_logs_nothing(topics: Harness, lines: Lines) -> None:
    topics.produce_batch("t", batch("a"))
    assert lines() == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (delete_records(), "DeleteRecords from test refused for t-1 and 4999 more: UNKNOWN_TOPIC_OR_PARTITION"),
        (move(), "AlterReplicaLogDirs from test refused for t-1 and 4999 more: LOG_DIR_NOT_FOUND"),
        (metadata(), "Metadata from test refused for t_u and 3 more: INVALID_TOPIC_EXCEPTION: Topic 't_u' collides"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_requests_other_than_produce_log_one_line_for_each_reason_of_a_rejection(
    topics: Harness, lines: Lines, request_: Message, said: str
) -> None:
    topics.request(request_)
    (line,) = lines()
    assert line.getMessage().startswith(said)
