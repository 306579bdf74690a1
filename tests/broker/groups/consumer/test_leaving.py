"""Members that leave, for good or for a while, and static members that come back under another id."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.driving import SESSION_MS, Player, describe, group_of, owners, settle
from tests.broker.harness import Harness


@pytest.fixture
def pair(harness: Harness) -> tuple[Player, Player]:
    """A stable group: a static member and a dynamic one."""
    harness.create_topic("t", 4)
    static, dynamic = Player(harness, "s1", "t", instance="i"), Player(harness, "d", "t")
    static.join()
    dynamic.join()
    settle(static, dynamic)
    return static, dynamic


def test_a_static_member_that_leaves_temporarily_keeps_its_partitions(
    harness: Harness, pair: tuple[Player, Player]
) -> None:
    static, dynamic = pair
    had, epoch = set(static.owned), describe(harness).group_epoch
    answer = static.leave(-2)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "s1", -2)
    dynamic.beat()
    assert len(dynamic.owned) == 2
    assert describe(harness).group_epoch == epoch
    again = Player(harness, "s2", "t", instance="i")
    again.join()
    assert again.owned == had
    assert describe(harness).group_epoch == epoch  # nobody else notices
    assert {member.member_id for member in describe(harness).members} == {"s2", "d"}
    assert describe(harness).group_state == "Stable"


def test_a_static_member_that_returns_with_another_subscription_gets_partitions_of_that(
    harness: Harness, pair: tuple[Player, Player]
) -> None:
    static, dynamic = pair
    harness.create_topic("u")
    static.leave(-2)
    again = Player(harness, "s2", "u", instance="i")
    again.join()
    settle(dynamic, again)
    assert (again.owned, len(dynamic.owned)) == ({("u", 0)}, 4)


def test_a_static_member_that_does_not_return_is_removed_after_its_session_timeout(
    harness: Harness, pair: tuple[Player, Player]
) -> None:
    static, dynamic = pair
    static.leave(-2)
    harness.clock.advance(SESSION_MS - 1)
    dynamic.beat()
    assert len(group_of(harness).members) == 2
    harness.clock.advance(1)
    settle(dynamic)
    assert len(dynamic.owned) == 4
    again = Player(harness, "s2", "t", instance="i")
    assert again.join().error_code == ErrorCode.NONE
    settle(dynamic, again)
    assert owners([dynamic, again]).keys() == {("t", partition) for partition in range(4)}


def test_a_static_member_keeps_its_partitions_over_a_restart(harness: Harness, pair: tuple[Player, Player]) -> None:
    static, dynamic = pair
    had = set(static.owned)
    static.leave(-2)
    harness.restart(crash=True)
    assert dynamic.beat().error_code == ErrorCode.NONE
    again = Player(harness, "s2", "t", instance="i")
    again.join()
    assert again.owned == had


def test_a_static_member_that_leaves_permanently_is_removed(harness: Harness, pair: tuple[Player, Player]) -> None:
    static, dynamic = pair
    assert static.leave().error_code == ErrorCode.NONE
    assert static.ask(member_epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(dynamic)
    assert len(dynamic.owned) == 4


def test_a_static_member_may_leave_during_a_revocation(harness: Harness) -> None:
    harness.create_topic("t", 4)
    static, dynamic = Player(harness, "s1", "t", instance="i"), Player(harness, "d", "t")
    static.join()
    dynamic.join()
    static.ask(topic_partitions=static.reported())  # it is told what to give up, and goes instead
    static.leave(-2)
    settle_left = dynamic.beat()
    assert settle_left.error_code == ErrorCode.NONE
    assert len(dynamic.owned) == 2  # what it was to give up it has given up by going
    again = Player(harness, "s2", "t", instance="i")
    again.join()
    settle(dynamic, again)
    assert owners([dynamic, again]).keys() == {("t", partition) for partition in range(4)}


def test_deleting_a_group_deletes_all_its_records(harness: Harness, pair: tuple[Player, Player]) -> None:
    pattern = Player(harness, "p", subscribed_topic_regex="t.*")
    pattern.join()
    for player in (*pair, pattern):
        player.leave()
    groups = harness.cluster.groups
    assert describe(harness).group_state == "Empty"
    groups.delete_group(groups.get_group("g"))
    assert describe(harness).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    harness.restart()
    assert harness.cluster.groups.groups == {}
