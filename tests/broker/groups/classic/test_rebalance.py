"""From one generation to the next: who is waited for and for how long, also where the log fails or a thousand join."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.groups.classic.classic_states import FOLLOWING, ClassicState
from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.classic.driving import RANGE, REBALANCE_MS, SESSION_MS, Driver, answered, subscription
from tests.broker.harness import Harness


@pytest.fixture
def driver(harness: Harness) -> Driver:
    return Driver(harness)


@pytest.fixture
def delayed(tmp_path: Path) -> Iterator[Driver]:
    """With Kafka's delay before the first generation of an empty group."""
    with Harness(tmp_path, settings={"group.initial.rebalance.delay.ms": "3000"}) as harness:
        yield Driver(harness)


def test_every_group_state_but_dead_has_transitions() -> None:
    assert {state for following in FOLLOWING.values() for state in following} == set(ClassicState)
    assert all(ClassicState.DEAD in following for following in FOLLOWING.values())
    assert FOLLOWING[ClassicState.DEAD] == {ClassicState.DEAD}


def test_an_invalid_group_state_transition_raises_an_error(driver: Driver) -> None:
    driver.stable()
    with pytest.raises(AssertionError, match="cannot become"):
        driver.group.transition_to(ClassicState.EMPTY)


# --- the first generation of an empty group -----------------------------------------------------


def test_the_first_rebalance_is_delayed_only_if_configured(driver: Driver) -> None:
    _, waiting = driver.new_member()
    assert not waiting.done
    driver.turn()
    assert waiting.response().generation_id == 1


def test_the_first_rebalance_is_delayed_by_the_configured_time(delayed: Driver) -> None:
    _, waiting = delayed.new_member()
    delayed.harness.clock.advance(2999)
    assert not waiting.done
    delayed.harness.clock.advance(1)
    assert len(waiting.response().members) == 1


def test_the_first_rebalance_is_delayed_longer_while_members_join(delayed: Driver) -> None:
    _, first = delayed.new_member()
    for _ in range(3):
        delayed.harness.clock.advance(2000)
        delayed.new_member()
        delayed.harness.clock.advance(1000)
        assert not first.done
    delayed.harness.clock.advance(3000)
    assert len(first.response().members) == 4


def test_the_first_rebalance_delay_ends_at_the_rebalance_timeout(delayed: Driver) -> None:
    _, first = delayed.new_member(rebalance_ms=7000)
    for _ in range(6):
        delayed.harness.clock.advance(1000)
        delayed.new_member(rebalance_ms=7000)
        assert not first.done
    delayed.harness.clock.advance(1000)
    assert len(first.response().members) == 7


# --- members that fall silent -------------------------------------------------------------------


def test_a_session_expires_without_heartbeats(driver: Driver) -> None:
    (member_id,) = driver.stable()
    for _ in range(5):
        driver.harness.clock.advance(SESSION_MS - 1)
        assert driver.heartbeat(member_id) == ErrorCode.NONE
    driver.harness.clock.advance(SESSION_MS - 1)
    assert driver.group.state_name == "Stable"
    driver.harness.clock.advance(1)
    assert driver.group.state_name == "Empty"
    assert driver.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_wait_in_join_group_do_not_expire(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    waiting = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    for _ in range(4):
        driver.harness.clock.advance(SESSION_MS - 1)
        assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
        assert not waiting.done
    answered(driver.ask_join(leader))
    assert waiting.response().error_code == ErrorCode.NONE


def test_a_new_member_with_a_pending_join_expires_after_five_minutes(driver: Driver) -> None:
    (leader,) = driver.stable(rebalance_ms=20 * 60_000)
    _, waiting = driver.new_member(rebalance_ms=20 * 60_000)
    for _ in range(60):
        driver.harness.clock.advance(4999)
        driver.heartbeat(leader)
    assert not waiting.done
    driver.harness.clock.advance(61)
    answer = waiting.response()
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(driver.group.members) == [leader]


def test_an_unused_member_id_expires_and_is_no_longer_awaited(driver: Driver) -> None:
    (leader,) = driver.stable()
    asked = driver.ask_join(session_ms=6000)
    waiting = driver.ask_join(leader)
    assert not waiting.done, "the one that was given an id is expected"
    driver.harness.clock.advance(6000)
    assert len(waiting.response().members) == 1
    assert answered(driver.ask_join(asked.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_rejoin_within_the_rebalance_timeout_are_removed(driver: Driver) -> None:
    leader, late = driver.stable(2, session_ms=2 * REBALANCE_MS)
    waiting = driver.ask_join(leader)
    driver.harness.clock.advance(REBALANCE_MS - 1)
    assert not waiting.done
    driver.harness.clock.advance(1)
    assert [member.member_id for member in waiting.response().members] == [leader]
    assert driver.heartbeat(late) == ErrorCode.UNKNOWN_MEMBER_ID


def test_absent_static_members_are_awaited_until_their_sessions_expire(driver: Driver) -> None:
    first = driver.ask_join(instance="a", session_ms=200_000)
    driver.turn()
    driver.sync_all({first.response().member_id: first.response()})
    member_id, waiting = driver.new_member(session_ms=200_000)
    driver.leave(member_id)
    assert waiting.response().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.harness.clock.advance(REBALANCE_MS)
    assert driver.group.state_name == "PreparingRebalance"
    driver.harness.clock.advance(200_000)
    assert driver.group.state_name == "Empty"


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_removed(driver: Driver) -> None:
    leader, silent = driver.stable(2, session_ms=2 * REBALANCE_MS)
    driver.ask_join(silent, protocols=(("range", b""),), session_ms=2 * REBALANCE_MS)
    joined = answered(driver.ask_join(leader, session_ms=2 * REBALANCE_MS))
    answered(driver.ask_sync(joined, {leader: b"x"}))
    driver.harness.clock.advance(REBALANCE_MS - 1)
    assert driver.heartbeat(leader) == ErrorCode.NONE
    driver.harness.clock.advance(1)
    assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(driver.group.members) == [leader]


# --- the log ------------------------------------------------------------------------------------


def fail_log(driver: Driver, reason: str) -> None:
    topic = driver.harness.cluster.groups.log
    driver.harness.partition(topic.name, topic.get_partition_index(driver.name)).log.offline = reason


def test_an_assignment_that_cannot_be_written_is_not_sent(driver: Driver) -> None:
    leader, follower = driver.stable(2)
    other = driver.ask_join(follower, protocols=(("range", subscription("u")),))
    joined = answered(driver.ask_join(leader))
    waiting = driver.ask_sync(other.response())
    partition = driver.harness.partition(
        "__consumer_offsets", driver.harness.cluster.groups.log.get_partition_index("g")
    )
    partition.isr = []
    assert answered(driver.ask_sync(joined, {leader: b"x"})).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waiting.response().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.state_name == "PreparingRebalance"
    partition.isr = [1]
    other = driver.ask_join(follower)
    driver.sync_all({leader: answered(driver.ask_join(leader)), follower: answered(other)})
    assert driver.group.state_name == "Stable"


def test_a_group_that_cannot_be_recorded_is_not_created(driver: Driver) -> None:
    fail_log(driver, "the disk is gone")
    assert driver.ask_join().error_code == ErrorCode.NOT_COORDINATOR
    assert driver.harness.cluster.groups.groups == {}


def test_an_assignment_too_large_for_the_log_is_rejected(driver: Driver) -> None:
    member_id, waiting = driver.new_member()
    driver.turn()
    answer = answered(driver.ask_sync(waiting.response(), {member_id: bytes(900_000)}))
    assert answer.error_code == ErrorCode.NONE
    joined = answered(driver.ask_join(member_id))
    driver.group.members[member_id].protocols = [
        driver.group.members[member_id].protocols[0]._replace(metadata=bytes(900_000))
    ]
    answer = answered(driver.ask_sync(joined, {member_id: bytes(900_000)}))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_assignment_is_sent_after_the_fsync_if_the_topic_requires_it(driver: Driver) -> None:
    member_id, waiting = driver.new_member()
    driver.turn()
    topic = driver.harness.cluster.groups.log
    kept = driver.harness.partition(topic.name, topic.get_partition_index("g")).log
    kept.flush_at = kept.log_end_offset + 1
    driver.harness.clock.holds_aside = True
    synced = driver.ask_sync(waiting.response(), {member_id: b"x"})
    assert not synced.done
    assert driver.group.state_name == "CompletingRebalance"
    driver.harness.clock.do_aside()
    assert synced.response().assignment == b"x"
    assert driver.group.state_name == "Stable"


def test_an_assignment_fsynced_after_the_next_rebalance_began_is_dropped(driver: Driver) -> None:
    member_id, waiting = driver.new_member()
    driver.turn()
    topic = driver.harness.cluster.groups.log
    kept = driver.harness.partition(topic.name, topic.get_partition_index("g")).log
    kept.flush_at = kept.log_end_offset + 1
    driver.harness.clock.holds_aside = True
    synced = driver.ask_sync(waiting.response(), {member_id: b"x"})
    driver.new_member()
    driver.harness.clock.do_aside()
    assert synced.response().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.group.state_name == "PreparingRebalance"


# --- size ---------------------------------------------------------------------------------------


def test_a_thousand_members_that_join_at_once_share_one_generation(driver: Driver) -> None:
    waiting = dict(driver.new_member() for _ in range(1000))
    driver.turn()
    joined = {member_id: join.response() for member_id, join in waiting.items()}
    assert {answer.generation_id for answer in joined.values()} == {1}
    assert sum(len(answer.members) for answer in joined.values()) == 1000
    synced = driver.sync_all(joined)
    assert {answer.assignment for answer in synced.values()} == {b"%d" % number for number in range(1000)}
    driver.harness.restart(crash=True)
    assert {driver.heartbeat(member_id) for member_id in joined} == {ErrorCode.NONE}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Driver]:
    with Harness(tmp_path, settings={"group.max.size": "2"}) as harness:
        yield Driver(harness)


def test_a_group_has_at_most_the_configured_number_of_members(small: Driver) -> None:
    members = small.stable(2)
    answer = small.ask_join()
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert {small.heartbeat(member_id) for member_id in members} == {ErrorCode.NONE}


THIRD = tuple((name, bytes(1400)) for name in ("range", "roundrobin", "sticky"))  # of what a frugal group takes


@pytest.fixture
def frugal(tmp_path: Path) -> Iterator[Driver]:
    with Harness(tmp_path, settings={"message.max.bytes": "3200"}) as harness:
        yield Driver(harness)


def test_members_whose_subscriptions_exceed_the_record_size_are_rejected(frugal: Driver) -> None:
    members = frugal.stable(2, protocols=THIRD)
    assert frugal.ask_join(protocols=THIRD).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    many = tuple((f"protocol-{number}", b"") for number in range(40))
    assert frugal.ask_join(protocols=(*RANGE, *many)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert frugal.ask_join(protocols=RANGE).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert {frugal.heartbeat(member_id) for member_id in members} == {ErrorCode.NONE}


def test_the_subscription_size_of_a_group_counts_each_present_member_once(frugal: Driver) -> None:
    for _ in range(5):
        leader, other = frugal.stable(2, protocols=THIRD)
        joins = [frugal.ask_join(member_id, protocols=THIRD) for member_id in (leader, other)]
        assert [answered(join).error_code for join in joins] == [ErrorCode.NONE] * 2
        frugal.leave(leader, other)
    assert frugal.group.protocol_bytes == 0


def test_a_member_whose_rejoin_is_too_large_is_removed(frugal: Driver) -> None:
    (member,) = frugal.stable(1)
    more = frugal.ask_join(member, protocols=(("range", bytes(13_000)),))
    assert answered(more).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert frugal.heartbeat(member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_members_to_rejoin_are_rejected_beyond_the_maximum_group_size(small: Driver) -> None:
    ids = [small.ask_join().member_id for _ in range(3)]
    first, second = small.ask_join(ids[0]), small.ask_join(ids[1])
    assert answered(small.ask_join(ids[2])).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    small.turn()
    assert {answered(first).error_code, answered(second).error_code} == {ErrorCode.NONE}


def test_a_group_above_the_maximum_size_after_a_restart_rebalances(driver: Driver) -> None:
    leader, *others = driver.stable(3)
    driver.harness.restart(settings={"group.max.size": "2"})
    driver.turn()
    assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [driver.ask_join(member_id) for member_id in (leader, others[0])]
    assert answered(driver.ask_join(others[1])).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [answered(join).error_code for join in joins] == [ErrorCode.NONE] * 2


# --- what members say ---------------------------------------------------------------------------


@pytest.mark.parametrize("metadata", [b"", b"\0", b"changed", b"\0\0\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff"])
def test_members_with_malformed_metadata_affect_no_others(driver: Driver, metadata: bytes) -> None:
    """Apache Kafka 4.3 answers UNKNOWN_SERVER_ERROR to one member here, and leaves the others waiting."""
    (leader,) = driver.stable()
    member_id, waiting = driver.new_member(protocols=(("range", metadata),))
    answered(driver.ask_join(leader))
    assert waiting.response().error_code == ErrorCode.NONE
    assert driver.group.topics is None
    assert driver.group.is_subscribed_to("anything")
    assert member_id in driver.group.members


def test_a_group_is_subscribed_to_the_topics_of_all_its_members(driver: Driver) -> None:
    (leader,) = driver.stable()
    driver.new_member(protocols=(("range", subscription("u", "v")),))
    answered(driver.ask_join(leader))
    assert driver.group.topics == {"t", "u", "v"}
    assert driver.group.is_subscribed_to("u")
    assert not driver.group.is_subscribed_to("w")


def test_a_group_whose_protocol_type_is_not_consumer_is_subscribed_to_no_topic(driver: Driver) -> None:
    driver.stable(kind="connect")
    assert driver.group.topics is None
    assert not driver.group.is_subscribed_to("t")
