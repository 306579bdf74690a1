"""What members get of the topics they subscribe to, by name and by pattern, while topics come, grow and go.

How a pattern is read is tested in `patterns/`; how members share what they want in `test_heartbeat.py`.
"""

from __future__ import annotations

import pytest

from minibroker.patterns import program
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.groups.consumer.driving import GROUP, Player, all_of, describe, group_of, owners, settle
from tests.broker.harness import Harness

# --- topics that come, grow and go ----------------------------------------------------------------


def test_members_may_subscribe_to_nothing_or_to_topics_that_do_not_exist_yet(harness: Harness) -> None:
    idle, early = Player(harness, "m1", subscribed_topic_names=[]), Player(harness, "m2", "later")
    assert idle.join().member_epoch == 1
    assert early.join().error_code == ErrorCode.NONE
    settle(idle, early)
    assert owners([idle, early]) == {}
    harness.create_topic("later", 2)
    settle(idle, early)
    assert early.owned == all_of("later", 2)


def test_partitions_of_a_deleted_topic_are_revoked_although_its_name_is_reused(harness: Harness, topic: str) -> None:
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


def test_creating_a_topic_without_subscribers_starts_no_new_epoch(harness: Harness, topic: str) -> None:
    player = Player(harness, "m1", topic)
    player.join()
    harness.create_topic("other")
    player.beat()
    assert describe(harness).group_epoch == player.epoch == 2


# --- other topics ---------------------------------------------------------------------------------


def test_members_that_change_their_subscriptions_get_the_new_topics(harness: Harness, topic: str) -> None:
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


def test_a_regex_matches_existing_and_later_topics(harness: Harness, topic: str) -> None:
    harness.create_topic("t-old")
    player = Player(harness, "m1", subscribed_topic_regex="t-.*")
    answer = player.join()
    assert (answer.member_epoch, player.owned) == (1, set()), "they come with a later heartbeat, as in Kafka"
    player.beat()
    assert (player.epoch, player.owned) == (2, all_of("t-old", 1))
    harness.create_topic("t-new", 2)
    settle(player)
    assert player.owned == all_of("t-old", 1) | all_of("t-new", 2)
    (member,) = describe(harness).members
    assert (member.subscribed_topic_regex, member.subscribed_topic_names) == ("t-.*", [])
    player.subscribe(topic, regex="")
    settle(player)
    assert player.owned == all_of(topic, 4)
    assert group_of(harness).patterns == {}


def test_topic_names_and_a_regex_can_be_combined(harness: Harness, topic: str) -> None:
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


def test_named_topics_are_assigned_at_once_and_those_of_a_regex_later(harness: Harness, topic: str) -> None:
    harness.create_topic("u1")
    player = Player(harness, "m1", topic, subscribed_topic_regex="u.")
    player.join()
    assert (player.epoch, player.owned) == (2, all_of(topic, 4))
    player.beat()
    assert (player.epoch, player.owned) == (3, all_of(topic, 4) | all_of("u1", 1))
    player.subscribe(regex="t")
    assert player.owned == set()
    settle(player)
    assert player.owned == all_of(topic, 4)
    other = Player(harness, "m2", subscribed_topic_regex="t")
    epoch = group_of(harness).epoch
    other.join()
    assert group_of(harness).epoch == epoch + 1, "what another's pattern matches is known"


def test_a_regex_that_several_members_send_is_resolved_once(harness: Harness, topic: str) -> None:
    """Requests that come in one go are all answered before."""
    harness.create_topic("u1")
    harness.coordinator(GROUP)
    for name, regex in (("m1", "t"), ("m2", "t"), ("m3", "u.")):
        fields = {"rebalance_timeout_ms": 1000, "topic_partitions": [], "subscribed_topic_regex": regex}
        harness.request(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=name, member_epoch=0, **fields), 1)
    group = group_of(harness)
    assert (group.epoch, group.patterns) == (1, {})
    harness.clock.advance(0)
    assert (group.epoch, {pattern: set(found.topics) for pattern, found in group.patterns.items()}) == (
        2,
        {"t": {"t"}, "u.": {"u1"}},
    )


@pytest.mark.parametrize("crash", [False, True])
def test_a_regex_unresolved_at_shutdown_is_resolved_after_the_next_start(
    harness: Harness, topic: str, crash: bool
) -> None:
    player = Player(harness, "m1", subscribed_topic_regex="t")
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_regex": "t"}
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=0, **fields)
    assert harness.request(request, 1).member_epoch == 1
    harness.restart(crash=crash)
    assert group_of(harness).patterns == {}
    player.epoch = 1
    player.beat()
    player.beat()
    assert player.owned == all_of(topic, 4)


def test_a_group_deleted_while_its_regex_is_resolved_stays_deleted(harness: Harness, topic: str) -> None:
    harness.coordinator(GROUP)
    fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_regex": "t"}
    for member_epoch in (0, -1):
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m1", member_epoch=member_epoch, **fields)
        assert harness.request(request, 1).error_code == ErrorCode.NONE
    group = group_of(harness)
    harness.cluster.groups.delete_group(group)
    harness.clock.advance(0)
    assert GROUP not in harness.cluster.groups.groups


def test_a_regex_that_takes_too_long_keeps_its_previous_topics(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t1")
    first = Player(harness, "m1", subscribed_topic_regex="t.*")
    first.join()
    first.beat()
    monkeypatch.setattr(program, "MAXIMUM_EFFORT", 10)
    harness.create_topic("t2-with-a-long-name")
    assert first.beat().error_code == ErrorCode.NONE
    assert first.owned == all_of("t1", 1)
    assert "expression takes too long to match" in caplog.text
    second = Player(harness, "m2", subscribed_topic_regex="t.*-name")
    assert second.join().error_code == ErrorCode.NONE
    settle(first, second)
    assert second.owned == set()
