"""Metadata: several nodes, creation on demand by the settings, and partitions without a leader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.handlers.metadata import metadata
from minibroker.broker.security.operations import OPERATIONS, ResourceType, Right
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.delaying import steps_of
from tests.broker.harness import Harness, Verdicts, served_versions

VERSIONS = served_versions(MetadataRequest)
BY_ID = 12
NOT_ASKED = -2147483648
UNKNOWN_ID = bytes(range(16))

Asked = MetadataRequest.MetadataRequestTopic


def by_name(*names: str | None, create: bool = False, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[Asked(name=name) for name in names], allow_auto_topic_creation=create, **more)


def by_id(*ids: bytes, name: str | None = None) -> MetadataRequest:
    return MetadataRequest(topics=[Asked(name=name, topic_id=topic_id) for topic_id in ids])


def topics_in(answer: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


def id_of(harness: Harness, topic: str) -> bytes:
    return harness.cluster.image.topics[topic].topic_id


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """Topics "t" with two partitions and "u" with one."""
    harness.create_topic("t", 2)
    harness.create_topic("u")
    return harness


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_controller_and_cluster_id_are_returned(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        answer = harness.request(by_name(), version, node=2)
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (1, "node1.test", 9001),
            (2, "node2.test", 9002),
            (3, "node3.test", 9003),
        ]
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == harness.cluster.cluster_id


def test_broker_addresses_are_those_of_the_clients_listener(harness: Harness) -> None:
    (broker,) = harness.request(by_name(), listener="INTERNAL").brokers
    assert broker.port == 19001


# --- by id --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= BY_ID])
def test_a_topic_id_in_a_metadata_request_overrides_the_name(filled: Harness, version: int) -> None:
    request = by_id(id_of(filled, "t"), name="nope")
    request.topics += [Asked(name="u")]
    assert topics_in(filled.request(request, version)) == [("t", 0)]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "t"])
def test_topic_ids_in_an_older_version_are_rejected(filled: Harness, version: int, name: str | None) -> None:
    request = by_id(id_of(filled, "t"), name=name)
    request.topics += [Asked(name="u")]
    first, second = filled.request(request, version).topics
    assert (first.name, first.error_code, first.topic_id) == (name or "", ErrorCode.INVALID_REQUEST, id_of(filled, "t"))
    assert (second.name, second.error_code) == ("u", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("version", [10, 11])
def test_a_null_name_in_an_older_version_is_rejected(filled: Harness, version: int) -> None:
    assert topics_in(filled.request(by_name(None), version)) == [("", ErrorCode.INVALID_REQUEST)]


# --- what is not there --------------------------------------------------------------------------


def test_an_auto_created_topic_uses_the_broker_settings(tmp_path: Path) -> None:
    settings = {"num.partitions": "4", "default.replication.factor": "2"}
    with Harness(tmp_path, nodes=2, settings=settings) as harness:
        harness.request(by_name("new", create=True))
        (topic,) = harness.request(by_name("new")).topics
        assert [len(partition.replica_nodes) for partition in topic.partitions] == [2] * 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_can_disable_auto_creation(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, settings={"auto.create.topics.enable": "false"}) as harness:
        answer = harness.request(by_name("new", create=True), version)
        assert topics_in(answer) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_coordinator_topic_is_auto_created_with_the_coordinators_settings(harness: Harness, name: str) -> None:
    (first,) = harness.request(by_name(name, create=True)).topics
    assert (first.error_code, first.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    (second,) = harness.request(by_name(name)).topics
    assert (second.error_code, second.is_internal, len(second.partitions)) == (ErrorCode.NONE, True, 5)
    assert harness.cluster.image.topics[name].overrides["cleanup.policy"] == "compact"


@pytest.mark.parametrize(("name", "internal"), [("__share_group_state", True), ("__cluster_metadata", False)])
def test_kafkas_internal_topics_that_are_not_used_here_are_not_auto_created(
    harness: Harness, name: str, internal: bool
) -> None:
    (topic,) = harness.request(by_name(name, create=True)).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, internal)
    assert harness.cluster.image.topics == {}


def test_a_topic_that_cannot_be_created_is_unknown_and_logged(
    filled: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    filled.create_topic("a.b")
    with caplog.at_level(logging.WARNING):
        answer = filled.request(by_name("a_b", create=True))
    assert topics_in(answer) == [("a_b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert "Topic 'a_b' collides with existing topic: a.b" in caplog.text


def test_a_replication_factor_above_the_broker_count_leaves_the_topic_unknown(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"default.replication.factor": "3"}) as harness:
        answer = harness.request(by_name("t", create=True))
        assert topics_in(answer) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


# --- leaders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_whose_nodes_are_offline_has_no_leader(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        away = harness.partition("t", 0).leader_id
        harness.restart(nodes=[3 - away])
        (topic,) = harness.request(by_name("t"), version, node=3 - away).topics
        lost, kept = topic.partitions
        assert (lost.error_code, lost.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (kept.error_code, kept.leader_id) == (ErrorCode.NONE, 3 - away)
        if version >= 5:
            assert (lost.offline_replicas, kept.offline_replicas) == ([away], [])


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_version_0_lists_only_online_replicas_and_reports_missing_ones(tmp_path: Path, version: int) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", replicas=3)
        harness.restart(nodes=[1, 2])
        (partition,) = harness.request(by_name("t"), version, node=1).topics[0].partitions
        all_told = version > 0
        assert sorted(partition.replica_nodes) == ([1, 2, 3] if all_told else [1, 2])
        assert partition.error_code == (ErrorCode.NONE if all_told else ErrorCode.REPLICA_NOT_AVAILABLE)
        assert partition.leader_id in (1, 2)


def test_leaders_are_spread_over_the_nodes(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 6, 3)
        (topic,) = harness.request(by_name("t")).topics
        leaders = [partition.leader_id for partition in topic.partitions]
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        assert all(sorted(partition.replica_nodes) == [1, 2, 3] for partition in topic.partitions)


# --- operations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("with_operations", [False, True])
def test_permissions_for_many_topics_are_looked_up_in_steps(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, with_operations: bool
) -> None:
    for number in range(20):
        harness.create_topic(f"t{number}")
    context = harness.make_context(ApiKey.METADATA, VERSIONS[-1])
    looked_up: list[str] = []

    def allows(right: Right, name: str) -> bool:
        looked_up.append(name)
        return True

    monkeypatch.setattr(harness.cluster, "authorizer", Verdicts(allows))
    request = MetadataRequest(topics=None, include_topic_authorized_operations=with_operations)
    in_steps = []
    for _ in steps_of(metadata(context, request)):
        in_steps.append(len(looked_up))
        looked_up.clear()
    operations = len(OPERATIONS[ResourceType.TOPIC]) if with_operations else 0
    assert sum(in_steps) == 20 * (1 + operations)
    assert max(in_steps) == max(1, operations)


def test_an_unknown_topic_id_has_no_authorized_operations(filled: Harness) -> None:
    request = by_id(UNKNOWN_ID)
    request.include_topic_authorized_operations = True
    (topic,) = filled.request(request).topics
    assert topic.topic_authorized_operations == NOT_ASKED
