"""What may be done to a classic group from outside, and what is answered when a member's request is overtaken."""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.groups.classic.driving import SESSION_MS, Driver, answered, subscription
from tests.broker.harness import Harness

STABLE, REBALANCING = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


def completing(driver: Driver) -> tuple[str, str]:
    """A group of two whose leader has joined again and not synced yet: the leader, the follower."""
    leader, follower = driver.stable(2)
    driver.ask_join(follower, protocols=(("range", subscription("u")),))
    answered(driver.ask_join(leader))
    assert driver.group.state_name == "CompletingRebalance"
    return leader, follower


# --- commits ------------------------------------------------------------------------------------


def code_of_commit(driver: Driver, member_id: str, epoch: int, instance: str | None = None, **more: bool) -> ErrorCode:
    try:
        driver.group.check_offset_commit(
            member_id, instance, epoch, transactional=more.get("transactional", False), version=8
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_clients_that_are_not_members_can_commit_to_an_empty_group(driver: Driver) -> None:
    (member_id,) = driver.stable()
    driver.leave(member_id)
    assert code_of_commit(driver, "", -1) == ErrorCode.NONE
    assert code_of_commit(driver, member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_transactions_can_commit_before_the_assignment(driver: Driver) -> None:
    leader, _ = completing(driver)
    generation = driver.group.generation
    assert code_of_commit(driver, leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of_commit(driver, leader, generation, transactional=True) == ErrorCode.NONE


def test_members_of_the_last_generation_can_commit_during_a_rebalance(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    driver.ask_join(leader)
    assert driver.group.state_name == "PreparingRebalance"
    assert code_of_commit(driver, follower, 1) == ErrorCode.NONE


def test_a_commit_counts_as_a_heartbeat(driver: Driver) -> None:
    (member_id,) = driver.stable()
    driver.harness.clock.advance(SESSION_MS - 1)
    assert code_of_commit(driver, member_id, 1) == ErrorCode.NONE
    driver.harness.clock.advance(SESSION_MS - 1)
    assert driver.heartbeat(member_id) == ErrorCode.NONE


# --- requests that are overtaken ----------------------------------------------------------------


def test_a_members_second_join_replaces_the_first(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    first = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    second = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    assert (first.response().error_code, first.response().member_id) == (REBALANCING, follower)
    assert len(answered(driver.ask_join(leader)).members) == 2
    assert second.response().error_code == STABLE


def test_a_members_second_sync_replaces_the_first(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    other = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    joined = answered(driver.ask_join(leader))
    first, second = driver.ask_sync(other.response()), driver.ask_sync(other.response())
    assert first.response().error_code == REBALANCING
    answered(driver.ask_sync(joined, {follower: b"x"}))
    assert second.response().assignment == b"x"


def test_leaving_answers_a_pending_join_with_unknown_member_id(driver: Driver) -> None:
    driver.stable()
    member_id, waiting = driver.new_member()
    driver.leave(member_id)
    assert waiting.response().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_answers_a_pending_sync_with_unknown_member_id(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    other = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    answered(driver.ask_join(leader))
    waiting = driver.ask_sync(other.response())
    driver.leave(follower)
    assert waiting.response().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_disconnects_while_waiting_affects_no_other(driver: Driver) -> None:
    (leader,) = driver.stable()
    gone, waiting = driver.new_member()
    waiting.go_away()
    joined = answered(driver.ask_join(leader))
    assert {member.member_id for member in joined.members} == {leader, gone}
    assert answered(driver.ask_sync(joined, {leader: b"x"})).assignment == b"x"
    driver.harness.clock.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader) == ErrorCode.NONE
    driver.harness.clock.advance(1)
    assert list(driver.group.members) == [leader]


def test_deleting_the_offsets_topic_answers_waiting_members_with_not_coordinator(driver: Driver) -> None:
    leader, _ = driver.stable(2)
    joining = driver.ask_join(leader)
    other = Driver(driver.harness, "other")
    first, second = other.stable(2)
    follower = other.ask_join(second, protocols=(("range", subscription("u")),))
    answered(other.ask_join(first))
    syncing = other.ask_sync(follower.response())
    topics = [DeleteTopicsRequest.DeleteTopicState(name="__consumer_offsets")]
    driver.harness.request(DeleteTopicsRequest(topics=topics))
    assert joining.response().error_code == ErrorCode.NOT_COORDINATOR
    assert syncing.response().error_code == ErrorCode.NOT_COORDINATOR
    driver.harness.clock.advance(10 * SESSION_MS)
    assert driver.harness.cluster.groups.groups == {}
