"""Members on a clock that moves: sessions, rebalance timeouts, delays, static members, and members after a restart.

What Kafka answers to each request is in the conformance tests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.streams.streams_updating import SMALL, make_target_assignments
from minibroker.broker.groups.streams.topology import MAXIMUM_NAMES, MAXIMUM_TASKS, HeartbeatStatus
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.security.operations import CREATE_CLUSTER, CREATE_TOPIC
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.groups import JoinGroupRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from minibroker.protocol.steps import run_all_steps
from tests.broker.groups.streams.driving import (
    BEAT_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    Subtopology,
    Topology,
    configure,
    describe,
    group_of,
    settle,
    topology,
)
from tests.broker.harness import Harness
from tests.storage.support import FailingDisk


@pytest.fixture
def topic(harness: Harness) -> str:
    """A topic with four partitions."""
    harness.create_topic("t", 4)
    return "t"


def statuses(answer: object) -> list[int]:
    return [each.status_code for each in answer.status]  # type: ignore[attr-defined]


# --- timeouts -------------------------------------------------------------------------------------


def test_a_member_without_heartbeats_for_a_session_is_removed(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topology(topic)), Player(harness, "m2", topology(topic))
    first.join()
    second.join()
    settle(first, second)
    for _ in range(SESSION_MS // BEAT_MS - 1):
        harness.clock.advance(BEAT_MS)
        second.beat()
    assert "m1" in group_of(harness).members
    harness.clock.advance(BEAT_MS)
    assert list(group_of(harness).members) == ["m2"]
    settle(second)
    assert second.active == {"0": {0, 1, 2, 3}}
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_tasks_in_time_is_removed(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topology(topic)), Player(harness, "m2", topology(topic))
    first.join()
    second.join()
    had = dict(first.active)
    for waited in range(0, REBALANCE_MS, BEAT_MS):
        assert first.beat().error_code == ErrorCode.NONE, waited
        first.active = had  # it goes on with what it is to give up
        second.beat()
        harness.clock.advance(BEAT_MS)
    assert first.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(second)
    assert second.active == {"0": {0, 1, 2, 3}}


def test_the_initial_rebalance_is_delayed(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    configure(harness, "streams.initial.rebalance.delay.ms", "3000")
    first, second = Player(harness, "m1", topology(topic)), Player(harness, "m2", topology(topic))
    joined = first.join()
    assert (joined.member_epoch, joined.active_tasks, statuses(joined)) == (1, [], [HeartbeatStatus.ASSIGNMENT_DELAYED])
    harness.clock.advance(2999)
    assert statuses(second.join()) == [HeartbeatStatus.ASSIGNMENT_DELAYED]
    harness.clock.advance(1)
    settle(first, second)
    assert (len(first.active["0"]), len(second.active["0"])) == (2, 2)
    assert group_of(harness).assignment_epoch == 3  # one assignment for both


def test_a_later_joining_member_gets_tasks_after_the_assignment_interval(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    configure(harness, "streams.assignment.interval.ms", "1000")
    first, second = Player(harness, "m1", topology(topic)), Player(harness, "m2", topology(topic))
    first.join()
    joined = second.join()
    assert (joined.member_epoch, joined.active_tasks, statuses(joined)) == (2, [], [HeartbeatStatus.ASSIGNMENT_DELAYED])
    harness.clock.advance(1000)
    settle(first, second)
    assert len(second.active["0"]) == 2


def test_joining_an_empty_group_assigns_at_once_despite_the_assignment_interval(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    configure(harness, "streams.assignment.interval.ms", "1000")
    player = Player(harness, "m1", topology(topic))
    player.join()
    player.ask(member_epoch=-1)
    assert (group_of(harness).epoch, group_of(harness).assignment_epoch) == (3, 3)
    harness.restart(crash=True)
    assert group_of(harness).assignment_epoch == 3
    assert statuses(Player(harness, "m2", topology(topic)).join()) == []


def test_the_number_of_standby_replicas_follows_the_groups_config(harness: Harness, topic: str) -> None:
    said = topology(topic, changelog="changelog")
    first, second = Player(harness, "m1", said), Player(harness, "m2", said)
    assert statuses(first.join()) == [HeartbeatStatus.MISSING_INTERNAL_TOPICS]
    second.join()
    settle(first, second)
    assert first.standby == {}
    configure(harness, "streams.num.standby.replicas", "1")
    settle(first, second)
    assert (first.standby, second.standby) == (second.active, first.active)


# --- static members -------------------------------------------------------------------------------


def test_a_returning_static_member_gets_its_tasks_back(harness: Harness, topic: str) -> None:
    first, second = (Player(harness, f"m{n}", topology(topic), f"p{n}", f"i{n}") for n in (1, 2))
    first.join()
    second.join()
    settle(first, second)
    epoch, had = group_of(harness).epoch, dict(first.active)
    other = Player(harness, "m3", topology(topic), "p1", "i1")
    assert other.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    away = first.ask(member_epoch=-2)
    assert (away.error_code, away.member_epoch) == (ErrorCode.NONE, -2)
    assert other.join().error_code == ErrorCode.NONE
    assert (other.active, other.epoch, group_of(harness).epoch) == (had, epoch, epoch)
    assert first.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert sorted(member.instance_id for member in describe(harness).members) == ["i1", "i2"]
    harness.restart(crash=True)
    assert other.beat().error_code == ErrorCode.NONE
    left = other.ask(member_epoch=-1)
    assert left.error_code == ErrorCode.NONE
    settle(second)
    assert second.active == {"0": {0, 1, 2, 3}}


def test_a_static_member_that_does_not_return_in_time_is_removed(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topology(topic), "p", "i")
    player.join()
    player.ask(member_epoch=-2)
    harness.clock.advance(SESSION_MS)
    assert group_of(harness).members == {}
    assert player.ask(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- after a restart ------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [True, False])
def test_streams_group_members_continue_after_a_restart(harness: Harness, topic: str, crash: bool) -> None:
    configure_later = topology(topic, changelog="changelog")
    first, second = Player(harness, "m1", configure_later), Player(harness, "m2", configure_later)
    harness.coordinator(GROUP)
    configure(harness, "streams.num.standby.replicas", "1")
    endpoint = StreamsGroupHeartbeatRequest.Endpoint(host="h", port=65535)
    first.join(user_endpoint=endpoint, client_tags=[StreamsGroupHeartbeatRequest.KeyValue(key="k", value="v")])
    second.join()
    settle(first, second)
    harness.restart(crash=crash)
    for player in (first, second):
        assert player.beat().active_tasks is None
    before = describe(harness)
    harness.restart(crash=crash)
    assert first.beat().error_code == ErrorCode.NONE
    assert describe(harness) == before
    (port,) = (each.user_endpoint.port for each in before.members if each.user_endpoint is not None)
    assert port == 65535


def test_a_restart_during_a_revocation_assigns_no_task_twice(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topology(topic)), Player(harness, "m2", topology(topic))
    first.join()
    second.join()
    kept = first.beat().active_tasks
    assert kept is not None
    harness.restart(crash=True)
    assert second.beat().active_tasks is None
    settle(first, second)
    assert first.active["0"] | second.active["0"] == {0, 1, 2, 3}
    assert first.active["0"] & second.active["0"] == set()


def test_a_deleted_group_leaves_no_trace_after_a_restart(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topology(topic))
    player.join()
    player.ask(member_epoch=-1)
    groups = harness.cluster.groups
    groups.delete_group(groups.get_streams_group(GROUP))
    harness.restart(crash=True)
    assert GROUP not in harness.cluster.groups.groups


# --- other types of groups ------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_a_streams_group_with_its_offsets(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = kind.OffsetCommitRequestPartition(partition_index=1, committed_offset=7)
    harness.request(OffsetCommitRequest(group_id=GROUP, topics=[kind(name=topic, partitions=[partition])]), 9)
    assert isinstance(harness.cluster.groups.groups[GROUP], ClassicGroup)
    player = Player(harness, "m1", topology(topic))
    assert player.join().error_code == ErrorCode.NONE
    player.ask(member_epoch=-1)
    for _ in range(2):
        found = group_of(harness).offsets.find_offset(topic, 1)
        assert found is not None
        assert found.offset == 7
        harness.restart(crash=True)
    made = harness.cluster.groups.find_group_to_join(GROUP, create=True)
    assert isinstance(made, ClassicGroup)
    assert made.offsets.find_offset(topic, 1) is not None
    harness.restart(crash=True)
    assert isinstance(harness.cluster.groups.groups[GROUP], ClassicGroup)


def test_a_consumer_cannot_join_a_streams_group(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topology(topic))
    player.join()
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="c",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        topic_partitions=[],
        subscribed_topic_names=[topic],
    )
    assert harness.request(request).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert player.beat().error_code == ErrorCode.NONE


def test_a_group_with_consumers_cannot_become_a_streams_group(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    harness.request(
        JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol]), 3
    )
    answer = Player(harness, "m1", topology(topic)).join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- limits ---------------------------------------------------------------------------------------


def test_a_topology_that_exceeds_the_limits_is_rejected(harness: Harness, topic: str) -> None:
    names = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"] * (MAXIMUM_NAMES + 1))])
    many = Topology(
        subtopologies=[
            Subtopology(subtopology_id=str(number), source_topics=["t"]) for number in range(MAXIMUM_TASKS // 4 + 1)
        ]
    )
    twice = Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["t"])] * 2)
    for said in (names, many, twice):
        answer = Player(harness, "m1", said).join()
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY, len(said.subtopologies)
    assert GROUP not in harness.cluster.groups.groups


def test_streams_groups_can_be_disabled_for_a_cluster(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.coordinator.rebalance.protocols": "classic,consumer"})
    assert Player(harness, "m", topology(topic)).join().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert describe(harness).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_heartbeat_whose_change_cannot_be_written_is_rejected(tmp_path: Path) -> None:
    with Harness(tmp_path, disk=FailingDisk()) as harness:
        harness.create_topic("t", 4)
        assert Player(harness, "m1", topology("t")).join().error_code == ErrorCode.NONE
        assert isinstance(harness.disk, FailingDisk)
        harness.end_turn()
        harness.disk.failing = {"write"}
        answer = Player(harness, "m2", topology("t")).join()
        assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NOT_COORDINATOR, "", 0)
        assert (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks) == (None, None, None)
        assert not answer.status
        harness.disk.failing = set()


def test_a_streams_group_is_limited_to_its_maximum_size(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"group.streams.max.size": "1"}) as harness:
        harness.create_topic("t")
        for _ in range(2):
            assert Player(harness, "m1", topology("t")).join().error_code == ErrorCode.NONE
        full = Player(harness, "m2", topology("t")).join()
    assert (full.error_code, full.error_message) == (
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        "The streams group has reached its maximum capacity of 1 members.",
    )


def test_the_heartbeat_status_names_an_internal_topic_that_could_not_be_created(harness: Harness, topic: str) -> None:
    said = topology(topic, changelog="changelog")
    info = said.subtopologies[0].state_changelog_topics[0]
    info.topic_configs = [StreamsGroupHeartbeatRequest.KeyValue(key="retention.ms", value="soon")]
    player = Player(harness, "m1", said)
    (status,) = player.join().status
    assert status.status_code == HeartbeatStatus.MISSING_INTERNAL_TOPICS
    assert "; Creation failed: changelog (" in status.status_detail
    tried = harness.cluster.groups.creation_failures
    assert tried.find_failure_of_topic("changelog") is not None
    harness.clock.advance(2 * BEAT_MS)
    assert tried.find_failure_of_topic("changelog") is None


def test_tasks_of_a_large_streams_group_are_assigned_in_the_background(harness: Harness) -> None:
    harness.create_topic("wide", 100)
    many = [Subtopology(subtopology_id=str(number), source_topics=["wide"]) for number in range(SMALL // 100 + 1)]
    first, second = (Player(harness, f"m{number}", Topology(subtopologies=many)) for number in (1, 2))
    assert first.join().active_tasks == []
    assert describe(harness).group_state == "Assigning"
    second.join()
    harness.clock.advance(0)
    assert group_of(harness).assignment_epoch == group_of(harness).epoch
    settle(first, second)
    counts = [sum(map(len, player.active.values())) for player in (first, second)]
    assert counts == [len(many) * 50] * 2
    harness.restart(crash=True)
    assert first.beat().error_code == ErrorCode.NONE
    assert describe(harness).group_state == "Stable"


def test_a_streams_group_that_a_member_joins_during_its_assignment_is_assigned_anew(harness: Harness) -> None:
    harness.create_topic("wide", 100)
    many = [Subtopology(subtopology_id=str(number), source_topics=["wide"]) for number in range(SMALL // 100 + 1)]
    first, second = (Player(harness, f"m{number}", Topology(subtopologies=many)) for number in (1, 2))
    first.join()
    group = group_of(harness)
    steps = make_target_assignments(group)
    next(steps)
    second.join()
    run_all_steps(steps)
    assert group.assignment_epoch == group.epoch
    settle(first, second)
    assert sum(map(len, second.active.values())) == len(many) * 50


def test_the_heartbeat_status_names_internal_topics_that_a_member_may_not_create(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = RequestContext.allows
    monkeypatch.setattr(
        RequestContext,
        "allows",
        lambda context, right, *name, **more: (
            right not in (CREATE_CLUSTER, CREATE_TOPIC) and allowed(context, right, *name, **more)
        ),
    )
    (status,) = Player(harness, "m1", topology(topic, changelog="changelog")).join().status
    assert status.status_code == HeartbeatStatus.MISSING_INTERNAL_TOPICS
    assert status.status_detail == (
        "Internal topics are missing: changelog; Unauthorized to CREATE on topics changelog."
    )
    assert "changelog" not in harness.cluster.image.topics


def test_more_partitions_than_a_request_may_create_are_not_created(harness: Harness, topic: str) -> None:
    infos = [StreamsGroupHeartbeatRequest.TopicInfo(name=f"c{number}") for number in range(120)]
    harness.create_topic("wide", 100)
    one = Subtopology(subtopology_id="0", source_topics=["wide"], state_changelog_topics=infos)
    (status,) = Player(harness, "m1", Topology(subtopologies=[one])).join().status
    assert status.status_detail.endswith("; Creation failed: Excessively large number of partitions per request.")
    assert "c0" not in harness.cluster.image.topics
