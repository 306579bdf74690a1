"""Fetch sessions: epochs, eviction, and what counts as news."""

from __future__ import annotations

import random

import pytest

from minibroker.broker.sessions import LARGEST_EPOCH, STALE_AFTER_MS, FetchedPartition, FetchSession, FetchSessions
from minibroker.protocol.errors import ErrorCode, KafkaError


def partitions(count: int, topic: str | bytes = "t") -> list[FetchedPartition]:
    return [FetchedPartition(topic, index) for index in range(count)]


def made(sessions: FetchSessions, count: int, now_ms: float) -> FetchSession:
    session = sessions.create(partitions(count), False, now_ms)
    assert session is not None
    return session


def sessions_of(limit: int) -> FetchSessions:
    return FetchSessions(limit, random.Random(1))


def test_a_new_session_has_an_id_and_expects_epoch_1() -> None:
    session = made(sessions_of(2), 3, 0.0)
    assert session.session_id > 0
    assert session.epoch == 1


def test_a_session_may_begin_without_partitions() -> None:
    sessions = sessions_of(2)
    session = sessions.create([], True, 0.0)
    assert session is not None
    assert sessions.resume(session.session_id, 1, True, 0.0) is session


def test_a_known_session_goes_on_with_its_epoch() -> None:
    sessions = sessions_of(2)
    session = made(sessions, 1, 0.0)
    assert sessions.resume(session.session_id, 1, False, 5.0) is session
    assert session.last_used_ms == 5.0


@pytest.mark.parametrize(
    ("session_id_change", "epoch", "by_id", "code"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_does_not_fit_is_refused(
    session_id_change: int, epoch: int, by_id: bool, code: ErrorCode
) -> None:
    sessions = sessions_of(2)
    session = made(sessions, 1, 0.0)
    with pytest.raises(KafkaError) as caught:
        sessions.resume(session.session_id + session_id_change, epoch, by_id, 0.0)
    assert caught.value.code == code


def test_epochs_wrap_to_1() -> None:
    session = made(sessions_of(1), 1, 0.0)
    session.epoch = LARGEST_EPOCH
    session.next_epoch()
    assert session.epoch == 1


def test_a_full_cache_keeps_sessions_in_use_against_one_of_the_same_size() -> None:
    sessions = sessions_of(1)
    session = made(sessions, 2, 0.0)
    assert sessions.create(partitions(2), False, STALE_AFTER_MS) is None
    assert sessions.resume(session.session_id, 1, False, 0.0) is session


def test_a_full_cache_gives_the_place_of_a_smaller_session_to_a_larger_one() -> None:
    sessions = sessions_of(2)
    large, small = made(sessions, 5, 0.0), made(sessions, 1, 0.0)
    assert sessions.create(partitions(2), False, 1.0) is not None
    assert len(sessions) == 2
    sessions.resume(large.session_id, 1, False, 1.0)
    with pytest.raises(KafkaError):
        sessions.resume(small.session_id, 1, False, 1.0)


def test_a_full_cache_gives_the_place_of_a_stale_session() -> None:
    sessions = sessions_of(1)
    made(sessions, 9, 0.0)
    assert sessions.create(partitions(1), False, STALE_AFTER_MS + 1.0) is not None
    assert len(sessions) == 1


def test_no_slots_means_no_sessions() -> None:
    assert sessions_of(0).create(partitions(1), False, 0.0) is None


def test_who_was_served_goes_to_the_end() -> None:
    session = made(sessions_of(1), 3, 0.0)
    first = next(iter(session.partitions.values()))
    session.served(first)
    assert [index for _, index in session.partitions] == [1, 2, 0]


def test_news_is_data_an_error_or_a_moved_offset() -> None:
    partition = FetchedPartition("t", 0)
    assert partition.news(10, 0, 0, 0), "nothing was told before"
    assert not partition.news(10, 0, 0, 0)
    assert partition.news(10, 0, 0, 5)
    assert partition.news(11, 0, 0, 0)
    assert partition.news(11, 3, 0, 0)
    assert not partition.news(11, 3, 0, 0)


def test_the_end_of_an_error_is_news() -> None:
    partition = FetchedPartition("t", 0)
    partition.news(10, 0, 0, 0)
    assert partition.news(-1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert partition.news(10, 0, 0, 0)
