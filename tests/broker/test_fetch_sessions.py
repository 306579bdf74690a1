"""Fetch sessions: epochs, eviction, and what counts as news."""

from __future__ import annotations

import random

import pytest

from minibroker.broker.fetch_sessions import (
    LARGEST_EPOCH,
    LIMIT_BYTES,
    PARTITION_BYTES,
    STALE_AFTER_MS,
    FetchedPartition,
    FetchSession,
    FetchSessions,
)
from minibroker.protocol.errors import ErrorCode, KafkaError


def partitions(count: int, topic: str | bytes = "t") -> list[FetchedPartition]:
    return [FetchedPartition(topic, index) for index in range(count)]


def made(sessions: FetchSessions, count: int, now_ms: float) -> FetchSession:
    session = sessions.create_session(count, False, now_ms)
    assert session is not None
    session.add_partitions(partitions(count))
    assert sessions.update_session_memory(session, now_ms)
    return session


def sessions_of(limit: int) -> FetchSessions:
    return FetchSessions(limit, random.Random(1))


def test_a_new_session_has_an_id_and_expects_epoch_1() -> None:
    session = made(sessions_of(2), 3, 0.0)
    assert session.session_id > 0
    assert session.epoch == 1


def test_a_session_may_start_without_partitions() -> None:
    sessions = sessions_of(2)
    session = sessions.create_session(0, True, 0.0)
    assert session is not None
    assert sessions.get_session_of_incremental_fetch(session.session_id, 1, True, 0.0) is session


def test_a_known_session_continues_with_its_epoch() -> None:
    sessions = sessions_of(2)
    session = made(sessions, 1, 0.0)
    assert sessions.get_session_of_incremental_fetch(session.session_id, 1, False, 5.0) is session
    assert session.last_used_ms == 5.0


@pytest.mark.parametrize(
    ("session_id_change", "epoch", "by_id", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_an_incremental_fetch_with_a_wrong_session_id_epoch_or_topic_naming_is_rejected(
    session_id_change: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    sessions = sessions_of(2)
    session = made(sessions, 1, 0.0)
    with pytest.raises(KafkaError) as caught:
        sessions.get_session_of_incremental_fetch(session.session_id + session_id_change, epoch, by_id, 0.0)
    assert caught.value.code == code


def test_session_epochs_wrap_to_1() -> None:
    session = made(sessions_of(1), 1, 0.0)
    session.epoch = LARGEST_EPOCH
    session.advance_epoch()
    assert session.epoch == 1


def test_a_full_session_cache_evicts_no_session_in_use_for_one_of_equal_size() -> None:
    sessions = sessions_of(1)
    session = made(sessions, 2, 0.0)
    assert sessions.create_session(2, False, STALE_AFTER_MS) is None
    assert sessions.get_session_of_incremental_fetch(session.session_id, 1, False, 0.0) is session


def test_a_full_session_cache_evicts_a_smaller_session_for_a_larger_one() -> None:
    sessions = sessions_of(2)
    large, small = made(sessions, 5, 0.0), made(sessions, 1, 0.0)
    assert sessions.create_session(2, False, 1.0) is not None
    assert len(sessions) == 2
    sessions.get_session_of_incremental_fetch(large.session_id, 1, False, 1.0)
    with pytest.raises(KafkaError):
        sessions.get_session_of_incremental_fetch(small.session_id, 1, False, 1.0)


def test_a_full_session_cache_evicts_a_stale_session() -> None:
    sessions = sessions_of(1)
    made(sessions, 9, 0.0)
    assert sessions.create_session(1, False, STALE_AFTER_MS + 1.0) is not None
    assert len(sessions) == 1


TEN = 10 * (PARTITION_BYTES + 1)  # what ten partitions of the topic "t" take


def grow(sessions: FetchSessions, session: FetchSession, count: int) -> bool:
    session.add_partitions(FetchedPartition("t", 1000 + index) for index in range(count))
    return sessions.update_session_memory(session, 0.0)


def test_the_memory_of_a_session_is_counted_and_released() -> None:
    sessions = sessions_of(2)
    session = made(sessions, 10, 0.0)
    session.add_partitions(partitions(10))
    assert sessions.update_session_memory(session, 0.0) and sessions.held_bytes == TEN, (
        "those it has already count once"
    )
    session.remove_partition("t", 3)
    session.remove_partition("t", 3)
    session.remove_partition("nowhere", 0)
    assert sessions.update_session_memory(session, 0.0) and sessions.held_bytes == TEN * 9 // 10
    session.add_partitions(partitions(1, "a" * 1000))
    assert (
        sessions.update_session_memory(session, 0.0) and sessions.held_bytes == TEN * 9 // 10 + PARTITION_BYTES + 1000
    )
    sessions.remove_session(session.session_id)
    sessions.remove_session(session.session_id)
    assert sessions.held_bytes == 0


def test_beyond_the_memory_limit_no_new_session_of_equal_size_is_created() -> None:
    sessions = FetchSessions(1000, random.Random(1), limit_bytes=3 * TEN)
    kept = [made(sessions, 10, 0.0) for _ in range(3)]
    session = sessions.create_session(10, False, 0.0)
    assert session is not None and not grow(sessions, session, 10)
    assert len(sessions) == 3 and sessions.held_bytes == 3 * TEN
    for each in kept:
        assert sessions.get_session_of_incremental_fetch(each.session_id, 1, False, 0.0) is each


def test_a_session_that_grows_beyond_the_memory_limit_is_closed() -> None:
    sessions = FetchSessions(1000, random.Random(1), limit_bytes=3 * TEN)
    session, other = made(sessions, 10, 0.0), made(sessions, 10, 0.0)
    assert grow(sessions, session, 10)
    assert not grow(sessions, session, 20)
    with pytest.raises(KafkaError) as caught:
        sessions.get_session_of_incremental_fetch(session.session_id, 1, False, 0.0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.get_session_of_incremental_fetch(other.session_id, 1, False, 0.0) is other
    assert not sessions.update_session_memory(session, 0.0) and sessions.held_bytes == TEN, "it is not booked again"


def test_beyond_the_memory_limit_a_much_larger_session_is_evicted_for_a_small_one() -> None:
    sessions = FetchSessions(1000, random.Random(1), limit_bytes=3 * TEN)
    large = made(sessions, 30, 0.0)
    small = made(sessions, 3, 0.0)
    with pytest.raises(KafkaError):
        sessions.get_session_of_incremental_fetch(large.session_id, 1, False, 0.0)
    assert sessions.get_session_of_incremental_fetch(small.session_id, 1, False, 0.0) is small


def test_beyond_the_memory_limit_a_stale_session_is_evicted() -> None:
    sessions = FetchSessions(1000, random.Random(1), limit_bytes=3 * TEN)
    made(sessions, 20, 0.0)
    made(sessions, 20, STALE_AFTER_MS + 1.0)
    assert len(sessions) == 1 and sessions.held_bytes == 2 * TEN


def test_a_hundred_clients_with_ten_thousand_partitions_each_have_sessions() -> None:
    of_each = 10_000 * (PARTITION_BYTES + len("a topic's name of usual size"))
    assert 100 * of_each <= LIMIT_BYTES


def test_a_cache_without_slots_creates_no_sessions() -> None:
    assert sessions_of(0).create_session(1, False, 0.0) is None


def test_a_partition_moved_to_the_end_of_a_fetch_session_is_its_last() -> None:
    session = made(sessions_of(1), 3, 0.0)
    first = next(iter(session.partitions.values()))
    session.move_to_end(first)
    assert [index for _, index in session.partitions] == [1, 2, 0]


def test_new_records_errors_and_offsets_make_a_session_partition_changed() -> None:
    partition = FetchedPartition("t", 0)
    assert partition.has_changed_for_client(10, 0, 0, 0), "nothing was told before"
    partition.remember_sent_offsets(10, 0, 0)
    assert not partition.has_changed_for_client(10, 0, 0, 0)
    assert partition.has_changed_for_client(10, 0, 0, 5)
    assert partition.has_changed_for_client(11, 0, 0, 0)
    assert partition.has_changed_for_client(10, 3, 0, 0)
    assert partition.has_changed_for_client(10, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert not partition.has_changed_for_client(10, 0, 0, 0)


def test_the_end_of_an_error_makes_a_session_partition_changed() -> None:
    partition = FetchedPartition("t", 0)
    partition.remember_sent_offsets(10, 0, 0)
    partition.remember_sent_offsets(-1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert partition.has_changed_for_client(10, 0, 0, 0)
