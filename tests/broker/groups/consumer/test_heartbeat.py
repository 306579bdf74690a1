"""ConsumerGroupHeartbeat: members join, get their share, give up before others get, and are fenced if need be.

What they may subscribe to is in `test_subscriptions.py`, what a heartbeat must say in `test_heartbeat_checks.py`, and
what time does to members in `test_expiring.py`.
"""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.driving import (
    BEAT_MS,
    REBALANCE_MS,
    Player,
    TopicPartitions,
    all_of,
    describe,
    owners,
    settle,
)
from tests.broker.harness import Harness

# --- joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_the_first_member_gets_all_partitions_with_its_first_heartbeat(
    harness: Harness, topic: str, version: int
) -> None:
    player = Player(harness, "m1", topic)
    answer = player.join(version=version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 2)
    assert answer.heartbeat_interval_ms == BEAT_MS
    assert player.owned == all_of(topic, 4)
    described = describe(harness)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)


def test_a_member_of_version_0_without_an_id_is_given_one(harness: Harness, topic: str) -> None:
    player = Player(harness, "", topic)
    assert player.join(version=0).error_code == ErrorCode.NONE
    assert len(player.member_id) == 22
    assert player.beat().error_code == ErrorCode.NONE


def test_an_assignment_is_sent_once_unless_the_member_requests_it_in_full(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    assert player.beat().assignment is None
    full = player.beat(rebalance_timeout_ms=REBALANCE_MS, **player.said)
    assert full.assignment is not None
    assert player.owned == all_of(topic, 4)


def test_heartbeats_of_unknown_members_are_rejected_unless_they_join(harness: Harness, topic: str) -> None:
    stranger = Player(harness, "m2", topic)
    assert stranger.ask(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Player(harness, "m1", topic).join()
    assert stranger.ask(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- what members get -----------------------------------------------------------------------------


def test_a_partition_is_assigned_only_after_its_owner_has_revoked_it(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert second.join().member_epoch == 3
    assert second.owned == set()
    state = describe(harness)
    assert {member.member_id: member.member_epoch for member in state.members} == {"m1": 2, "m2": 3}
    assert state.group_state == "Reconciling"
    told = first.beat()
    assert told.member_epoch == 2  # it is told what to give up, in its old epoch
    assert second.beat().assignment is None  # and until it says that it has, nobody gets that
    assert second.owned == set()
    assert first.beat().member_epoch == 3
    second.beat()
    assert len(first.owned) == len(second.owned) == 2
    assert owners([first, second]).keys() == all_of(topic, 4)
    assert describe(harness).group_state == "Stable"


def test_a_member_that_does_not_report_its_partitions_keeps_them(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    first.ask()
    for _ in range(3):
        assert first.ask().member_epoch == 2
        second.beat()
    assert second.owned == set()


def test_partitions_of_a_member_that_leaves_go_to_the_others(harness: Harness, topic: str) -> None:
    players = [Player(harness, f"m{number}", topic) for number in range(3)]
    for player in players:
        player.join()
    settle(*players)
    assert owners(players).keys() == all_of(topic, 4)
    assert players[0].leave().member_epoch == -1
    settle(*players[1:])
    assert owners(players[1:]).keys() == all_of(topic, 4)


# --- fencing --------------------------------------------------------------------------------------


def test_a_wrong_member_epoch_is_fenced(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    greater, smaller = player.ask(member_epoch=3), player.ask(member_epoch=1)
    assert greater.error_code == smaller.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert greater.error_message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )
    assert "smaller member epoch (1)" in (smaller.error_message or "")
    assert player.beat().error_code == ErrorCode.NONE


def test_the_previous_epoch_is_accepted_from_a_member_within_its_assignment(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    first.beat()
    kept = first.reported()
    first.beat()
    assert first.epoch == 3
    lost_answer = first.ask(member_epoch=2, topic_partitions=kept)
    assert (lost_answer.error_code, lost_answer.member_epoch) == (ErrorCode.NONE, 3)
    assert first.ask(member_epoch=2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    topic_id = harness.cluster.image.topics[topic].topic_id
    everything = [TopicPartitions(topic_id=topic_id, partitions=[0, 1, 2, 3])]
    assert first.ask(member_epoch=2, topic_partitions=everything).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_rejoin_with_its_id_and_keeps_its_partitions(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    assert player.join().member_epoch == 2
    assert player.owned == all_of(topic, 4)
