"""Static members that come back: without another generation, and not at all if their new id cannot be kept."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.classic.driving import REBALANCE_MS, Driver, answered
from tests.broker.harness import Harness


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


def settled(driver: Driver) -> str:
    """A stable group of one static member; its id."""
    waiting = driver.ask_join(instance="i")
    driver.turn()
    joined = waiting.response()
    driver.ask_sync(joined, {joined.member_id: b"mine"}, instance="i")
    member_id: str = joined.member_id
    return member_id


def test_a_rejoined_static_members_new_id_is_known_after_a_restart(driver: Driver) -> None:
    before = settled(driver)
    after = answered(driver.ask_join(instance="i"))
    driver.harness.restart(crash=True)
    assert driver.heartbeat(after.member_id, 1, instance="i") == ErrorCode.NONE
    assert driver.heartbeat(before, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert answered(driver.ask_sync(after, instance="i")).assignment == b"mine"


@pytest.mark.parametrize("version", [5, 9])
def test_a_rejoin_of_a_static_member_that_cannot_be_recorded_has_no_effect(driver: Driver, version: int) -> None:
    before = settled(driver)
    topic = driver.harness.cluster.groups.log
    partition = driver.harness.partition(topic.name, topic.get_partition_index("g"))
    partition.isr = []
    answer = answered(driver.ask_join(instance="i", protocols=(("range", b"new"),), session_ms=20_000, version=version))
    assert (answer.error_code, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    (member,) = driver.group.members.values()
    assert (member.member_id, member.session_timeout_ms, driver.group.leader_id) == (before, 10_000, before)
    assert member.get_metadata("range") != b"new"
    assert driver.heartbeat(before, instance="i") == ErrorCode.NONE
    driver.harness.clock.advance(10_000)
    assert driver.group.state_name == "Empty"


def test_a_static_member_that_rejoins_before_syncing_must_sync_with_its_new_id(driver: Driver) -> None:
    leader, waiting = driver.new_member(session_ms=4 * REBALANCE_MS)
    static = driver.ask_join(instance="i", session_ms=4 * REBALANCE_MS)
    driver.turn()
    before = static.response()
    answered(driver.ask_sync(waiting.response(), {leader: b"1", before.member_id: b"2"}))
    after = answered(driver.ask_join(instance="i", session_ms=4 * REBALANCE_MS))
    driver.harness.clock.advance(REBALANCE_MS - 1)
    assert answered(driver.ask_sync(after, instance="i")).assignment == b"2"
    driver.harness.clock.advance(REBALANCE_MS)
    assert driver.heartbeat(leader) == ErrorCode.NONE


def test_a_rejoined_static_member_uses_its_latest_session_timeout(driver: Driver) -> None:
    settled(driver)
    answered(driver.ask_join(instance="i", session_ms=30_000))
    driver.harness.clock.advance(29_999)
    assert driver.group.state_name == "Stable"
    driver.harness.clock.advance(1)
    assert driver.group.state_name == "Empty"


def test_a_rejoin_of_a_static_member_is_answered_after_the_fsync_if_the_topic_requires_it(driver: Driver) -> None:
    settled(driver)
    topic = driver.harness.cluster.groups.log
    kept = driver.harness.partition(topic.name, topic.get_partition_index("g")).log
    kept.flush_at = kept.log_end_offset + 1
    driver.harness.clock.holds_aside = True
    waiting = driver.ask_join(instance="i")
    assert not waiting.done
    driver.harness.clock.do_aside()
    assert (waiting.response().error_code, waiting.response().skip_assignment) == (ErrorCode.NONE, True)
