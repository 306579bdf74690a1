"""What handlers ask the context of a request for: topics and partitions, rights, and the time of throttling."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.security.operations import READ_GROUP, READ_TOPIC, Right
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.groups import HeartbeatRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslHandshakeRequest
from tests.broker.harness import Harness


def context_on(harness: Harness, node: int = 1) -> RequestContext:
    """The context of a request that came to this node."""
    return RequestContext(harness.cluster, harness.client(node=node).connection, 0, "test", Slicer())


def test_a_client_is_anonymous_until_it_has_authenticated(harness: Harness) -> None:
    assert str(context_on(harness).principal) == "User:ANONYMOUS"


def test_a_topic_is_found_by_its_name_and_by_its_id(harness: Harness) -> None:
    harness.create_topic("t", partitions=2)
    context, topic = context_on(harness), harness.cluster.image.topics["t"]
    for key in ("t", topic.topic_id):
        assert context.topic(key) is context.find_topic(key) is topic
        assert context.partition(key, 1) is context.find_partition(key, 1) is topic.partitions[1]
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
        context.topic(key, "Where is it?")
    assert (of_topic.value.code, of_topic.value.message) == (code, "Where is it?")
    with pytest.raises(KafkaError) as of_partition:
        context.partition(key, 0)
    assert of_partition.value.code == code


def test_a_partition_is_served_by_its_leader_while_its_log_is_usable(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        partition = harness.partition("t")
        with pytest.raises(KafkaError) as elsewhere:
            context_on(harness, 3 - partition.leader_id).partition("t", 0)
        assert elsewhere.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        context = context_on(harness, partition.leader_id)
        with pytest.raises(KafkaError) as unknown:
            context.partition("t", 1)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert context.partition("t", 0) is partition
        partition.log.offline = "The disk has gone."
        with pytest.raises(KafkaError) as offline:
            context.partition("t", 0)
        assert offline.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_missing_permission_has_the_error_code_of_its_resource_type(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allows(_: RequestContext, right: Right, name: str, **__: bool) -> bool:
        return (right, name) == (READ_GROUP, "mine")

    harness.create_topic("t")
    monkeypatch.setattr(RequestContext, "allows", allows)
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
