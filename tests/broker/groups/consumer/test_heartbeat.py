"""ConsumerGroupHeartbeat: members join, get their share, give up before others get, and are fenced if need be."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.groups.consumer.patterns import program
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from tests.broker.groups.consumer.driving import (
    BEAT_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    TopicPartitions,
    describe,
    group_of,
    owners,
    settle,
)
from tests.broker.harness import Harness


@pytest.fixture
def topic(harness: Harness) -> str:
    harness.create_topic("t", 4)
    return "t"


def all_of(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


# --- joining ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_the_first_member_gets_everything_with_its_first_heartbeat(harness: Harness, topic: str, version: int) -> None:
    player = Player(harness, "m1", topic)
    answer = player.join(version=version)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "m1", 2)
    assert answer.heartbeat_interval_ms == BEAT_MS
    assert player.owned == all_of(topic, 4)
    described = describe(harness)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)


def test_a_member_of_version_0_is_given_an_id_if_it_has_none(harness: Harness, topic: str) -> None:
    player = Player(harness, "", topic)
    assert player.join(version=0).error_code == ErrorCode.NONE
    assert len(player.member_id) == 22
    assert player.beat().error_code == ErrorCode.NONE


def test_a_member_may_want_nothing_or_what_does_not_exist_yet(harness: Harness) -> None:
    idle, early = Player(harness, "m1", subscribed_topic_names=[]), Player(harness, "m2", "later")
    assert idle.join().member_epoch == 1
    assert early.join().error_code == ErrorCode.NONE
    settle(idle, early)
    assert owners([idle, early]) == {}
    harness.create_topic("later", 2)
    settle(idle, early)
    assert early.owned == all_of("later", 2)


def test_nothing_is_told_twice_but_to_who_asks_for_all(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    assert player.beat().assignment is None
    full = player.beat(rebalance_timeout_ms=REBALANCE_MS, **player.said)
    assert full.assignment is not None
    assert player.owned == all_of(topic, 4)


@pytest.mark.parametrize(
    ("fields", "version", "message"),
    [
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": " "}, 1, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 1}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"group_id": ""}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": ""}, 0, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 1, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [TopicPartitions(topic_id=bytes(15) + b"\1", partitions=[0])]},
            1,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_does_not_say_what_it_must_is_invalid(
    harness: Harness, topic: str, fields: dict[str, Any], version: int, message: str
) -> None:
    answer = Player(harness, "m1", topic).join(**fields, version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert GROUP not in harness.cluster.groups.groups


def test_an_assignor_that_is_not_there_is_told(harness: Harness, topic: str) -> None:
    answer = Player(harness, "m1", topic).join(server_assignor="cooperative")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor cooperative is not supported. Supported assignors: uniform, range."


def test_who_does_not_join_must_be_known(harness: Harness, topic: str) -> None:
    stranger = Player(harness, "m2", topic)
    assert stranger.ask(member_epoch=1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Player(harness, "m1", topic).join()
    assert stranger.ask(member_epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_takes_no_more_members_than_it_may_have(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.max.size": "1"})
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert second.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.join().error_code == ErrorCode.NONE
    assert first.beat().error_code == ErrorCode.NONE


# --- what members get ---------------------------------------------------------------------------------


def test_what_one_is_to_give_up_another_gets_when_it_has(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert second.join().member_epoch == 3
    assert second.owned == set()
    state = describe(harness)
    assert [member.member_epoch for member in state.members] == [2, 3]
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


def test_a_member_that_says_nothing_of_what_it_has_keeps_it(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    first.ask()
    for _ in range(3):
        assert first.ask().member_epoch == 2
        second.beat()
    assert second.owned == set()


def test_what_a_member_leaves_the_others_get(harness: Harness, topic: str) -> None:
    players = [Player(harness, f"m{number}", topic) for number in range(3)]
    for player in players:
        player.join()
    settle(*players)
    assert owners(players).keys() == all_of(topic, 4)
    assert players[0].leave().member_epoch == -1
    settle(*players[1:])
    assert owners(players[1:]).keys() == all_of(topic, 4)


def test_members_that_want_other_topics_get_those(harness: Harness, topic: str) -> None:
    harness.create_topic("u", 2)
    first, second = Player(harness, "m1", "t"), Player(harness, "m2", "t", "u")
    first.join()
    second.join()
    settle(first, second)
    assert owners([first, second]).keys() == all_of("t", 4) | all_of("u", 2)
    assert all_of("u", 2) <= second.owned
    second.subscribe("u")
    settle(first, second)
    assert (first.owned, second.owned) == (all_of("t", 4), all_of("u", 2))
    first.subscribe()
    settle(first, second)
    assert first.owned == set()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_most_ask_for_is_used(harness: Harness, assignor: str) -> None:
    harness.create_topic("t", 3)
    harness.create_topic("u", 3)
    other = "range" if assignor == "uniform" else "uniform"
    wishes = [other, assignor, assignor]
    players = [Player(harness, f"m{n}", "t", "u", server_assignor=wish) for n, wish in enumerate(wishes)]
    for player in players:
        player.join()
    settle(*players)
    assert describe(harness).assignor_name == assignor
    assert owners(players).keys() == all_of("t", 3) | all_of("u", 3)


def test_the_broker_says_which_assignor_is_the_default(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignors": "range"})
    player = Player(harness, "m1", topic)
    assert player.join(server_assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert player.join().error_code == ErrorCode.NONE
    assert describe(harness).assignor_name == "range"


def test_a_target_stays_for_the_assignment_interval(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignment.interval.ms": "1000"})
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert len(first.owned) == 4
    second.join()
    assert describe(harness).group_state == "Assigning"
    first.beat()
    assert first.epoch == second.epoch == 2
    harness.clock.advance(1000)
    settle(first, second)
    assert len(first.owned) == len(second.owned) == 2


def test_the_assignment_interval_can_be_changed_while_the_broker_runs(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[
            IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
                name="group.consumer.assignment.interval.ms", config_operation=0, value="1000"
            )
        ],
    )
    (answer,) = harness.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.NONE
    second.join()
    assert describe(harness).group_state == "Assigning"


# --- topics that come, grow and go ----------------------------------------------------------------------


def test_new_partitions_are_given_out(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=6, assignments=None)
    assert harness.request(CreatePartitionsRequest(topics=[grown])).results[0].error_code == ErrorCode.NONE
    assert player.beat().member_epoch == 3
    assert player.owned == all_of(topic, 6)
    assert describe(harness).group_epoch == 3


def test_a_topic_that_is_deleted_is_taken_away_and_one_of_its_name_is_another(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    harness.request(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)]))
    player.owned = set()  # its topic is gone
    player.beat()
    settle(player)
    assert (player.owned, player.epoch) == (set(), 3)
    harness.create_topic(topic, 2)
    settle(player)
    assert player.owned == all_of(topic, 2)
    assert player.epoch == 4


def test_topics_that_nobody_wants_change_nothing(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    harness.create_topic("other")
    player.beat()
    assert describe(harness).group_epoch == player.epoch == 2


# --- patterns -------------------------------------------------------------------------------------------


def test_a_pattern_gets_the_topics_it_matches_also_those_that_come_later(harness: Harness, topic: str) -> None:
    harness.create_topic("t-old")
    player = Player(harness, "m1", subscribed_topic_regex="t-.*")
    player.join()
    assert player.owned == all_of("t-old", 1)
    harness.create_topic("t-new", 2)
    player.beat()
    assert player.owned == all_of("t-old", 1) | all_of("t-new", 2)
    (member,) = describe(harness).members
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("t-.*", [])
    player.subscribe(topic, regex="")
    settle(player)
    assert player.owned == all_of(topic, 4)
    assert group_of(harness).patterns == {}


def test_names_and_a_pattern_go_together(harness: Harness, topic: str) -> None:
    harness.create_topic("u1")
    first = Player(harness, "m1", topic, subscribed_topic_regex="u.")
    second = Player(harness, "m2", subscribed_topic_regex="u.")
    first.join()
    second.join()
    settle(first, second)
    assert owners([first, second]).keys() == all_of(topic, 4) | all_of("u1", 1)
    assert group_of(harness).is_subscribed_to("u1")
    assert group_of(harness).is_subscribed_to(topic)
    first.leave()
    settle(second)
    assert second.owned == all_of("u1", 1)
    assert not group_of(harness).is_subscribed_to(topic)


@pytest.mark.parametrize("regex", ["(", "a{2}{3}", r"(a)\1", "(?=a)"])
def test_a_pattern_that_re2_does_not_take_is_told_and_changes_nothing(harness: Harness, regex: str) -> None:
    answer = Player(harness, "m1", subscribed_topic_regex=regex).join()
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")
    assert GROUP not in harness.cluster.groups.groups


def test_a_pattern_that_takes_too_long_among_more_topics_keeps_those_it_had(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t1")
    first = Player(harness, "m1", subscribed_topic_regex="t.*")
    first.join()
    monkeypatch.setattr(program, "MAXIMUM_EFFORT", 10)
    harness.create_topic("t2-with-a-long-name")
    assert first.beat().error_code == ErrorCode.NONE
    assert first.owned == all_of("t1", 1)
    assert "expression takes too long to match" in caplog.text
    second = Player(harness, "m2", subscribed_topic_regex="t.*-name").join()
    assert second.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


# --- fencing ----------------------------------------------------------------------------------------------


def test_a_wrong_epoch_is_fenced(harness: Harness, topic: str) -> None:
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


def test_the_previous_epoch_is_good_while_the_member_has_no_more_than_it_should(harness: Harness, topic: str) -> None:
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


def test_a_member_may_join_again_with_its_id_and_has_its_partitions(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    assert player.join().member_epoch == 2
    assert player.owned == all_of(topic, 4)


# --- time ---------------------------------------------------------------------------------------------------


def test_who_is_not_heard_of_for_a_session_is_put_out(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    settle(first, second)
    for _ in range(SESSION_MS // BEAT_MS - 1):
        harness.clock.advance(BEAT_MS)
        second.beat()
    assert len(describe(harness).members) == 2
    harness.clock.advance(BEAT_MS)
    assert [member.member_id for member in describe(harness).members] == ["m2"]
    settle(second)
    assert second.owned == all_of(topic, 4)
    assert first.ask().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_leaves_an_empty_group(harness: Harness, topic: str) -> None:
    Player(harness, "m1", topic).join()
    harness.clock.advance(SESSION_MS)
    assert describe(harness).group_state == "Empty"
    assert describe(harness).group_epoch == 3


def test_who_does_not_give_up_in_time_is_put_out(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join(rebalance_timeout_ms=20_000)
    second.join()
    for _ in range(5):
        first.ask()  # it beats, and says nothing of what it has
        second.beat()
        harness.clock.advance(4900)
    assert [member.member_id for member in describe(harness).members] == ["m2"]
    settle(second)
    assert second.owned == all_of(topic, 4)


def test_who_gives_up_in_time_stays(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join(rebalance_timeout_ms=20_000)
    second.join()
    for _ in range(6):
        first.beat()
        second.beat()
        harness.clock.advance(4900)
    assert len(describe(harness).members) == 2


# --- the disk -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [True, False])
def test_members_go_on_after_a_restart(harness: Harness, topic: str, crash: bool) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic, instance="i2")
    third = Player(harness, "m3", subscribed_topic_regex="[t]", server_assignor="range")
    for player in (first, second, third):
        player.join()
    settle(first, second, third)
    before, had = describe(harness), owners([first, second, third])
    harness.restart(crash=crash)
    assert describe(harness) == before
    for player in (first, second, third):
        assert player.beat().assignment is None
    assert owners([first, second, third]) == had
    assert describe(harness) == before


def test_a_restart_in_the_middle_of_a_revocation_gives_nothing_twice(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    held = set(first.owned)
    first.ask(topic_partitions=first.reported())  # told to give up, and has not yet
    harness.restart(crash=True)
    second.beat()
    assert (first.owned, second.owned) == (held, set())
    harness.clock.advance(REBALANCE_MS - 1)
    assert "m1" not in group_of(harness).members  # its session has ended meanwhile
    settle(second)
    assert second.owned == all_of(topic, 4)


def test_a_session_begins_anew_with_a_restart(harness: Harness, topic: str) -> None:
    Player(harness, "m1", topic).join()
    harness.clock.advance(SESSION_MS - 1)
    harness.restart()
    harness.clock.advance(SESSION_MS - 1)
    assert len(describe(harness).members) == 1
    harness.clock.advance(1)
    assert describe(harness).members == []


def test_a_heartbeat_that_cannot_be_recorded_changes_nothing(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    before = describe(harness)
    partition = harness.partition("__consumer_offsets", harness.cluster.groups.topic.partition_of(GROUP))
    limit = partition.log.settings
    partition.log.update_settings(limit._replace(max_message_bytes=10))
    assert second.join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert describe(harness) == before
    assert first.beat().error_code == ErrorCode.NONE  # nothing to record
    partition.log.update_settings(limit)
    assert second.join().error_code == ErrorCode.NONE


def test_who_cannot_be_put_out_now_is_put_out_later(
    harness: Harness, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    Player(harness, "m1", topic).join()
    partition = harness.partition("__consumer_offsets", harness.cluster.groups.topic.partition_of(GROUP))
    limit = partition.log.settings
    partition.log.update_settings(limit._replace(max_message_bytes=10))
    harness.clock.advance(SESSION_MS)
    assert "cannot be put out" in caplog.text
    assert len(describe(harness).members) == 1
    partition.log.update_settings(limit)
    harness.clock.advance(1000)
    assert describe(harness).members == []
