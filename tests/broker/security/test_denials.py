"""What a client learns that lacks a right: Kafka's error for exactly that resource, and of others nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.handlers import committed_offsets
from minibroker.broker.handlers import consumer_groups as consumer_group_handlers
from minibroker.broker.handlers import metadata as metadata_handler
from minibroker.broker.security.acls import PatternType, Permission
from minibroker.broker.security.operations import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE,
    NOT_ASKED,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Operation,
    Right,
)
from minibroker.broker.security.principals import Principal
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import consumer_groups, groups, metadata, offsets, replicas, topics, transactions
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker import delaying
from tests.broker.harness import AUTHORIZED, Harness, TopicData, Waiting, batch
from tests.clients.share_requests import fetch_request

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
OPEN, SECRET = "open", "secret"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Two topics with a record; alice may describe the one that is open."""
    with Harness(tmp_path, settings=AUTHORIZED) as made:
        for name in (OPEN, SECRET):
            made.create_topic(name, user="admin")
            made.produce_batch(name, batch("v"), user="admin")
        made.add_acl(DESCRIBE_TOPIC, OPEN)
        yield made


def topic_id(harness: Harness, name: str) -> bytes:
    return harness.cluster.image.topics[name].topic_id


# --- topics -------------------------------------------------------------------------------------


def described(harness: Harness, *asked: Any, user: str = "alice", host: str = "127.0.0.1") -> list[Any]:
    request = metadata.MetadataRequest(topics=list(asked) or None, include_topic_authorized_operations=True)
    answer = harness.request(request, user=user, host=host)
    return [(topic.error_code, topic.name, topic.topic_authorized_operations) for topic in answer.topics]


def asked(**key: Any) -> Any:
    return metadata.MetadataRequest.MetadataRequestTopic(**key)


def test_metadata_of_all_topics_contains_only_those_the_client_may_describe(harness: Harness) -> None:
    harness.add_acl(READ_TOPIC, SECRET, user="bob", host="10.0.0.1")
    for _ in range(2):  # the second answer is one that was kept
        assert [name for _, name, _ in described(harness, user="admin")] == [OPEN, SECRET]
        assert described(harness) == [(0, OPEN, 1 << Operation.DESCRIBE)]
        assert described(harness, user="bob") == []
        operations = 1 << Operation.DESCRIBE | 1 << Operation.READ
        assert described(harness, user="bob", host="10.0.0.1") == [(0, SECRET, operations)]


def test_a_topic_is_no_longer_described_after_the_permission_is_removed(harness: Harness) -> None:
    assert described(harness) == described(harness) != []
    harness.add_acl(DESCRIBE_TOPIC, OPEN, user="*", permission=Permission.DENY)
    assert described(harness) == []


@pytest.mark.parametrize("name", [SECRET, "absent"])
def test_a_topic_without_describe_permission_appears_unknown(harness: Harness, name: str) -> None:
    assert described(harness, asked(name=name)) == [(DENIED, name, NOT_ASKED)]
    page = metadata.DescribeTopicPartitionsRequest
    (answer,) = harness.request(page(topics=[page.TopicRequest(name=name)]), user="alice").topics
    assert (answer.error_code, answer.topic_id, answer.topic_authorized_operations) == (DENIED, ZERO_UUID, NOT_ASKED)
    assert harness.produce_batch(OPEN, batch("v"), user="alice").error_code == DENIED
    shape = topics.DeleteTopicsRequest.DeleteTopicState
    (deleted,) = harness.request(topics.DeleteTopicsRequest(topics=[shape(name=name)]), user="alice").responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (DENIED, name, ZERO_UUID)


def test_a_topic_id_does_not_reveal_the_name(harness: Harness) -> None:
    id = topic_id(harness, SECRET)
    assert described(harness, asked(name=None, topic_id=id)) == [(DENIED, None, NOT_ASKED)]
    shape = topics.DeleteTopicsRequest.DeleteTopicState
    request = topics.DeleteTopicsRequest(topics=[shape(name=None, topic_id=id)])
    (deleted,) = harness.request(request, user="alice").responses
    assert (deleted.error_code, deleted.name) == (DENIED, None)
    harness.add_acl(DESCRIBE_TOPIC, SECRET)
    (deleted,) = harness.request(request, user="alice").responses
    assert (deleted.error_code, deleted.name) == (DENIED, SECRET)


def test_delete_topics_returns_unknown_before_unauthorized_with_describe_permission(
    harness: Harness,
) -> None:
    harness.add_acl(DESCRIBE_TOPIC, "absent")

    def delete(name: str) -> int:
        shape = topics.DeleteTopicsRequest.DeleteTopicState
        request = topics.DeleteTopicsRequest(topics=[shape(name=name)])
        return int(harness.request(request, user="alice").responses[0].error_code)

    assert [delete("absent"), delete(OPEN)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, DENIED]
    harness.add_acl(DELETE_TOPIC, OPEN)
    assert delete(OPEN) == ErrorCode.NONE


def test_a_prefixed_acl_allows_creating_matching_topics_only(harness: Harness) -> None:
    harness.add_acl(CREATE_TOPIC, "mine-", pattern=PatternType.PREFIXED)

    def create(name: str) -> int:
        shape = topics.CreateTopicsRequest.CreatableTopic
        request = topics.CreateTopicsRequest(topics=[shape(name=name, num_partitions=1, replication_factor=1)])
        (created,) = harness.request(request, user="alice").topics
        return int(created.error_code)

    assert [create("mine-1"), create("other")] == [ErrorCode.NONE, DENIED]
    assert create("__cluster_metadata") == ErrorCode.INVALID_REQUEST  # whoever asks


def test_each_partition_of_an_unauthorized_reassignment_is_rejected(harness: Harness) -> None:
    shape = replicas.AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = [shape(name=SECRET, partitions=[shape.ReassignablePartition(partition_index=0, replicas=[1])])]
    answer = harness.request(replicas.AlterPartitionReassignmentsRequest(topics=wanted), user="alice")
    codes = [answer.error_code, answer.responses[0].partitions[0].error_code]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


# --- records ------------------------------------------------------------------------------------


def fetch(harness: Harness, *keys: dict[str, Any], version: int, max_wait_ms: int = 0) -> Any:
    shape = FetchRequest.FetchTopic
    partition = shape.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    wanted = [shape(partitions=[partition], **key) for key in keys]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=wanted)
    return harness.request(request, version, user="alice")


def test_fetch_requires_read_on_the_topic(harness: Harness) -> None:
    harness.add_acl(READ_TOPIC, OPEN)
    answer = fetch(harness, {"topic": OPEN}, {"topic": SECRET}, {"topic": "absent"}, version=12)
    first, *others = [topic.partitions[0] for topic in answer.responses]
    assert (first.error_code, first.high_watermark, bool(first.records)) == (0, 1, True)
    assert {(one.error_code, one.high_watermark, bytes(one.records)) for one in others} == {(DENIED, -1, b"")}
    answer = fetch(harness, {"topic_id": topic_id(harness, SECRET)}, version=17)
    assert answer.responses[0].partitions[0].error_code == DENIED


def test_a_fetch_waits_only_for_readable_topics(harness: Harness) -> None:
    harness.create_topic("empty", user="admin")
    harness.add_acl(READ_TOPIC, "empty")
    assert not isinstance(fetch(harness, {"topic": SECRET}, version=12, max_wait_ms=1000), Waiting)
    waiting = fetch(harness, {"topic": SECRET}, {"topic": "empty"}, version=12, max_wait_ms=1000)
    assert isinstance(waiting, Waiting) and not waiting.done
    harness.produce_batch("empty", batch("v"), user="admin")
    codes = {topic.topic: topic.partitions[0].error_code for topic in waiting.response().responses}
    assert codes == {SECRET: DENIED, "empty": ErrorCode.NONE}


def test_a_share_group_does_not_learn_the_end_offset_of_an_unreadable_topic(harness: Harness) -> None:
    harness.add_acl(READ_GROUP, "s")
    wanted = topic_id(harness, SECRET)

    def fetch_shared(epoch: int) -> tuple[int, int]:
        request = fetch_request(wanted, (), group_id="s", member_id="m", share_session_epoch=epoch)
        client.send(request)
        ((_, answer),) = client.responses()
        return answer.error_code, answer.responses[0].partitions[0].error_code

    client = harness.client()
    client.connection.principal = Principal("User", "alice")
    harness.add_acl(READ_TOPIC, SECRET)
    assert fetch_shared(0) != (0, DENIED)
    harness.add_acl(READ_TOPIC, SECRET, permission=Permission.DENY)
    harness.request(
        topics.DeleteTopicsRequest(topics=[topics.DeleteTopicsRequest.DeleteTopicState(name=SECRET)]), user="admin"
    )
    assert fetch_shared(1) == (0, DENIED)


def test_a_removed_permission_rejects_the_next_produce_of_a_connection(harness: Harness) -> None:
    harness.add_acl(WRITE_TOPIC, OPEN)
    client = harness.client()
    client.connection.principal = Principal("User", "alice")
    data = TopicData(name=OPEN, partition_data=[TopicData.PartitionProduceData(index=0, records=batch("v"))])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    codes = []
    for number in range(5):
        if number == 3:
            assert client.connection.template is not None
            harness.add_acl(WRITE_TOPIC, OPEN, permission=Permission.DENY)
        client.send(request, 9)
        codes += [answer.responses[0].partition_responses[0].error_code for _, answer in client.responses()]
    assert codes == [0, 0, 0, DENIED, DENIED]


def test_write_permission_on_any_topic_allows_a_producer_id(harness: Harness) -> None:
    def init(user: str) -> int:
        request = transactions.InitProducerIdRequest(transactional_id=None)
        return int(harness.request(request, user=user).error_code)

    assert init("alice") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    harness.add_acl(WRITE_TOPIC, "any", pattern=PatternType.PREFIXED)
    harness.add_acl(IDEMPOTENT_WRITE, "kafka-cluster", user="bob")
    assert [init("alice"), init("bob"), init("carol")] == [0, 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_producers_cannot_add_an_internal_topic_to_a_transaction(harness: Harness) -> None:
    harness.add_acl(WRITE_TRANSACTIONAL_ID, "id")
    harness.add_acl(WRITE_TOPIC, "*")
    harness.request(groups.FindCoordinatorRequest(key_type=1, coordinator_keys=["id"]), user="alice")
    harness.request(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")
    shape = transactions.AddPartitionsToTxnRequest
    request = shape(
        v3_and_below_transactional_id="id",
        v3_and_below_topics=[shape.AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0])],
    )
    (result,) = harness.request(request, 3, user="alice").results_by_topic_v3_and_below
    assert result.results_by_partition[0].partition_error_code == DENIED


@pytest.mark.parametrize("right", [ALTER_CLUSTER, CLUSTER_ACTION])
def test_either_of_two_permissions_allows_to_write_transaction_markers(harness: Harness, right: Right) -> None:
    shape = transactions.WriteTxnMarkersRequest.WritableTxnMarker
    topic = shape.WritableTxnMarkerTopic(name=OPEN, partition_indexes=[0])
    request = transactions.WriteTxnMarkersRequest(markers=[shape(producer_id=1, topics=[topic])])

    def write_marker() -> int:
        return int(harness.request(request, user="alice").markers[0].topics[0].partitions[0].error_code)

    assert write_marker() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    harness.add_acl(right, "kafka-cluster")
    assert write_marker() == ErrorCode.NONE


# --- groups -------------------------------------------------------------------------------------


def commit(harness: Harness, group: str, topic: str, user: str) -> int:
    shape = offsets.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = shape.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = offsets.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, topics=[shape(name=topic, partitions=[partition])]
    )
    answer = harness.request(request, 9, user=user)
    return int(answer.topics[0].partitions[0].error_code)


def test_groups_and_offsets_are_listed_only_with_describe_permission(harness: Harness) -> None:
    for group in ("mine", "theirs"):
        request = groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        harness.request(request, user="admin")
        assert [commit(harness, group, name, "admin") for name in (OPEN, SECRET)] == [0, 0]
    harness.add_acl(DESCRIBE_GROUP, "mine")
    listed = harness.request(groups.ListGroupsRequest(), user="alice").groups
    assert [group.group_id for group in listed] == ["mine"]
    shape = offsets.OffsetFetchRequest.OffsetFetchRequestGroup
    asked_for = [shape(group_id=group, topics=None) for group in ("mine", "theirs", "absent")]
    answer = harness.request(offsets.OffsetFetchRequest(groups=asked_for), 9, user="alice")
    told = [(group.error_code, [topic.name for topic in group.topics]) for group in answer.groups]
    refused = (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    assert told == [(0, [OPEN]), refused, refused]


def test_committing_offsets_requires_read_on_group_and_topic(harness: Harness) -> None:
    harness.request(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")
    assert commit(harness, "g", OPEN, "alice") == ErrorCode.GROUP_AUTHORIZATION_FAILED
    harness.add_acl(READ_GROUP, "g")
    assert commit(harness, "g", OPEN, "alice") == DENIED
    harness.add_acl(READ_TOPIC, OPEN)
    assert commit(harness, "g", OPEN, "alice") == ErrorCode.NONE


def test_a_regex_matches_only_topics_that_the_subscriber_may_describe(harness: Harness) -> None:
    harness.add_acl(READ_GROUP, "g")
    harness.request(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")
    epoch, member = 0, "m"

    def assigned() -> set[bytes] | None:
        """Send a heartbeat, and let a turn pass in which patterns are matched; None if nothing has changed."""
        nonlocal epoch
        joins = epoch == 0
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_names=None,
            subscribed_topic_regex=".*e.*" if joins else None,
            topic_partitions=[] if joins else None,
        )
        answer = harness.request(request, user="alice")
        assert answer.error_code == ErrorCode.NONE, answer
        epoch = answer.member_epoch
        harness.clock.advance(100)
        return None if answer.assignment is None else {part.topic_id for part in answer.assignment.topic_partitions}

    assigned()
    assert assigned() == {topic_id(harness, OPEN)}
    harness.add_acl(READ_TOPIC, SECRET)
    assert [assigned(), assigned()][-1] == {topic_id(harness, OPEN), topic_id(harness, SECRET)}
    harness.add_acl(READ_TOPIC, SECRET, permission=Permission.DENY)
    harness.add_acl(DESCRIBE_TOPIC, SECRET, permission=Permission.DENY)
    assert [assigned(), assigned()][-1] == {topic_id(harness, OPEN)}


# --- how long it takes --------------------------------------------------------------------------


def steps_of(harness: Harness, request: Any, handler: Any, version: int) -> int:
    """How many steps a request of alice takes."""
    connection = harness.client().connection
    connection.principal = Principal("User", "alice")
    outcome = handler(harness.make_context(request.api_key, version, connection), request)
    return sum(1 for _ in delaying.steps_of(outcome))


def test_topics_without_describe_permission_are_omitted_in_steps(harness: Harness) -> None:
    for number in range(50):
        harness.create_topic(f"hidden-{number}", user="admin")
    assert steps_of(harness, metadata.MetadataRequest(topics=None), metadata_handler.metadata, 12) >= 52
    harness.request(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")
    harness.add_acl(DESCRIBE_GROUP, "g")
    for number in range(50):
        assert commit(harness, "g", f"hidden-{number}", "admin") == ErrorCode.NONE
    shape = offsets.OffsetFetchRequest.OffsetFetchRequestGroup
    request = offsets.OffsetFetchRequest(groups=[shape(group_id="g", topics=None)])
    assert steps_of(harness, request, committed_offsets.offset_fetch, 9) >= 50


def test_permissions_for_many_subscribed_topics_are_checked_in_steps(harness: Harness) -> None:
    harness.add_acl(READ_GROUP, "g")
    harness.add_acl(DESCRIBE_TOPIC, "many-", pattern=PatternType.PREFIXED)
    harness.request(groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), user="admin")

    def codes(names: list[str]) -> int:
        request = consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_names=names, topic_partitions=[]
        )
        assert steps_of(harness, request, consumer_group_handlers.consumer_group_heartbeat, 1) >= 200
        return int(harness.request(request, user="alice").error_code)

    names = [f"many-{number}" for number in range(200)]
    assert codes(names) == ErrorCode.NONE
    with pytest.raises(KafkaError):
        codes([*names, SECRET])
