"""Members that are not heard of for too long, or do not give up in time, and are put out.

Those who leave by themselves are in `test_leaving.py`.
"""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.driving import BEAT_MS, GROUP, SESSION_MS, Player, all_of, describe, settle
from tests.broker.harness import Harness


def test_a_member_without_heartbeats_for_a_session_is_removed(harness: Harness, topic: str) -> None:
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


def test_a_group_is_empty_after_its_last_member_leaves(harness: Harness, topic: str) -> None:
    Player(harness, "m1", topic).join()
    harness.clock.advance(SESSION_MS)
    assert describe(harness).group_state == "Empty"
    assert describe(harness).group_epoch == 3


def test_members_that_do_not_revoke_within_the_rebalance_timeout_are_removed(harness: Harness, topic: str) -> None:
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


def test_members_that_revoke_within_the_rebalance_timeout_are_not_removed(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join(rebalance_timeout_ms=20_000)
    second.join()
    for _ in range(6):
        first.beat()
        second.beat()
        harness.clock.advance(4900)
    assert len(describe(harness).members) == 2


def test_a_members_session_starts_anew_after_a_restart(harness: Harness, topic: str) -> None:
    Player(harness, "m1", topic).join()
    harness.clock.advance(SESSION_MS - 1)
    harness.restart()
    harness.clock.advance(SESSION_MS - 1)
    assert len(describe(harness).members) == 1
    harness.clock.advance(1)
    assert describe(harness).members == []


def test_a_member_whose_removal_cannot_be_written_is_removed_later(
    harness: Harness, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    Player(harness, "m1", topic).join()
    partition = harness.partition("__consumer_offsets", harness.cluster.groups.log.get_partition_index(GROUP))
    limit = partition.log.settings
    partition.log.update_settings(limit._replace(max_message_bytes=10))
    harness.clock.advance(SESSION_MS)
    assert "cannot be put out" in caplog.text
    assert len(describe(harness).members) == 1
    partition.log.update_settings(limit)
    harness.clock.advance(1000)
    assert describe(harness).members == []
