"""The two APIs of consumer groups (KIP-848) on the wire: who is served, when, and what is described."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.metadata.features import GROUP_VERSION
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from tests.broker.groups.consumer.driving import GROUP, REBALANCE_MS, Player, describe
from tests.broker.harness import Harness, Waiting, served_versions

HEARTBEATS = served_versions(ConsumerGroupHeartbeatRequest)
DESCRIPTIONS = served_versions(ConsumerGroupDescribeRequest)


def test_consumer_group_apis_are_served_in_the_versions_of_kafka_4_3() -> None:
    assert (list(HEARTBEATS), list(DESCRIPTIONS)) == ([0, 1], [0, 1])


@pytest.mark.parametrize("why", ["feature", "protocol"])
def test_consumer_groups_can_be_disabled_for_a_cluster(harness: Harness, why: str) -> None:
    if why == "feature":
        harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=GROUP_VERSION, feature_level=0)])
    else:
        harness.restart(settings={"group.coordinator.rebalance.protocols": "classic"})
    answer = Player(harness, "m1", "t").join()
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.UNSUPPORTED_VERSION, 0)
    assert describe(harness).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_node_that_is_not_the_coordinator_answers_not_coordinator(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        other = 3 - harness.coordinator(GROUP)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="m1",
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert harness.request(request, node=other).error_code == ErrorCode.NOT_COORDINATOR
        asked = ConsumerGroupDescribeRequest(group_ids=[GROUP])
        (described,) = harness.request(asked, node=other).groups
        assert described.error_code == ErrorCode.NOT_COORDINATOR
        request.member_id = ""  # what is wrong with the request itself, every node says
        assert harness.request(request, node=other).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", DESCRIPTIONS)
def test_each_consumer_group_is_described_separately(harness: Harness, version: int) -> None:
    harness.create_topic("t", 2)
    Player(harness, "m1", "t", instance="i", rack_id="r").join()
    asked = ConsumerGroupDescribeRequest(group_ids=[GROUP, "", "none"], include_authorized_operations=True)
    found, nameless, missing = harness.request(asked, version).groups
    assert (found.error_code, found.group_state, found.authorized_operations) == (0, "Stable", 3400)
    (member,) = found.members
    assert (member.instance_id, member.rack_id, member.client_id) == ("i", "r", "test")
    assert member.member_type == (1 if version >= 1 else -1)
    assert (nameless.error_code, nameless.authorized_operations) == (ErrorCode.INVALID_GROUP_ID, -(1 << 31))
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


def test_classic_group_apis_do_not_describe_a_consumer_group(harness: Harness) -> None:
    Player(harness, "m1", "t").join()
    (old,) = harness.request(DescribeGroupsRequest(groups=[GROUP]), 5).groups
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")
    (new,) = harness.request(DescribeGroupsRequest(groups=[GROUP]), 6).groups
    assert (new.error_code, new.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {GROUP} is not a classic group.",
    )
    (listed,) = harness.request(ListGroupsRequest(types_filter=["consumer"])).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == (GROUP, "consumer", "consumer")


def test_a_heartbeat_waits_for_an_fsync_if_the_topic_requires_it(harness: Harness) -> None:
    harness.create_topic("t")
    player = Player(harness, "m1", "t")
    partition = harness.partition("__consumer_offsets", harness.cluster.groups.log.get_partition_index(GROUP))
    partition.log.update_settings(partition.log.settings._replace(flush_messages=1))
    harness.clock.holds_aside = True
    first = {"rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": [], "subscribed_topic_names": ["t"]}
    asked = harness.request(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m1", **first))
    assert isinstance(asked, Waiting)
    assert not asked.done
    while harness.clock.do_aside():
        pass
    assert asked.response().error_code == ErrorCode.NONE
    assert player.join().error_code == ErrorCode.NONE
