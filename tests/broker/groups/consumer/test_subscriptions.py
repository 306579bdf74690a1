"""What members get of the topics they subscribe to, by name and by pattern, while topics come, grow and go.

How a pattern is read is tested in `patterns/`; how members share what they want in `test_heartbeat.py`.
"""

from __future__ import annotations

import pytest

from minibroker.broker.groups.consumer.patterns import program
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from tests.broker.groups.consumer.driving import GROUP, Player, all_of, describe, group_of, owners, settle
from tests.broker.harness import Harness

# --- topics that come, grow and go ----------------------------------------------------------------


def test_a_member_may_want_nothing_or_what_does_not_exist_yet(harness: Harness) -> None:
    idle, early = Player(harness, "m1", subscribed_topic_names=[]), Player(harness, "m2", "later")
    assert idle.join().member_epoch == 1
    assert early.join().error_code == ErrorCode.NONE
    settle(idle, early)
    assert owners([idle, early]) == {}
    harness.create_topic("later", 2)
    settle(idle, early)
    assert early.owned == all_of("later", 2)


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


# --- other topics ---------------------------------------------------------------------------------


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


# --- patterns -------------------------------------------------------------------------------------


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
