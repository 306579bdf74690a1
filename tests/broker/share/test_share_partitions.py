"""Share partitions on a cluster: waiting, locks on the clock, sessions, restarts, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.partitions import SHARE_STATE_TOPIC
from minibroker.broker.share import share_partitions
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.harness import Harness
from tests.broker.share.driving import ACCEPT, GROUP, RELEASE, TOPIC, Sharer, acquired, configure, offset_of, reading

LOCK_MS = 30_000
Topic = DeleteTopicsRequest.DeleteTopicState


def test_a_fetch_waits_for_records(harness: Harness) -> None:
    member = reading(harness)
    assert member.ask_fetch(max_wait_ms=1000) is None
    harness.produce(TOPIC, "v")
    assert acquired(member.late()) == [(0, 0, 1)]
    assert member.ask_fetch(max_wait_ms=1000) is None
    harness.clock.advance(999)
    assert member.late() is None
    harness.clock.advance(1)
    assert acquired(member.late()) == []


def test_a_fetch_waits_for_what_others_release(harness: Harness) -> None:
    member, other = reading(harness, "a", "b"), Sharer(harness, "other")
    other.beat(TOPIC)
    assert member.fetch() == [(0, 1, 1)]
    assert other.ask_fetch(max_wait_ms=1000) is None
    assert member.acknowledge((0, 1, [ACCEPT, RELEASE])) == 0
    assert acquired(other.late()) == [(1, 1, 2)]


def test_a_lock_ends_on_the_clock(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    assert other.ask_fetch(max_wait_ms=2 * LOCK_MS) is None
    harness.clock.advance(LOCK_MS - 1)
    assert other.late() is None
    harness.clock.advance(2)
    assert acquired(other.late()) == [(0, 0, 2)]
    assert member.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_a_fetch_with_enough_bytes_is_answered_and_one_with_fewer_waits(harness: Harness) -> None:
    member = reading(harness, "a")
    assert member.ask_fetch(max_wait_ms=1000, min_bytes=1000) is None
    harness.clock.advance(1000)
    assert acquired(member.late()) == [(0, 0, 1)]


@pytest.mark.parametrize("crash", [True, False])
def test_what_is_acknowledged_survives_a_restart(harness: Harness, crash: bool) -> None:
    member = reading(harness, *"abcdef")
    assert member.fetch() == [(0, 5, 1)]
    assert member.acknowledge((1, 2, [ACCEPT]), (4, 4, [RELEASE])) == 0
    harness.restart(crash=crash)
    member = Sharer(harness)
    assert member.beat(TOPIC).error_code == 0
    assert member.fetch() == [(0, 0, 1), (3, 3, 1), (4, 4, 2), (5, 5, 1)]
    assert member.acknowledge((0, 0, [ACCEPT]), (3, 5, [ACCEPT])) == 0
    assert member.fetch() == []


def test_nothing_is_acknowledged_that_cannot_be_kept(harness: Harness) -> None:
    member = reading(harness, "a", "b")
    assert member.fetch() == [(0, 1, 1)]
    harness.disk.room_bytes = 0  # type: ignore[attr-defined]
    assert member.acknowledge((0, 1, [ACCEPT])) != 0
    harness.disk.room_bytes = None  # type: ignore[attr-defined]
    harness.clock.advance(1000)
    other = Sharer(harness, "other")
    assert other.fetch() == [(0, 1, 1)]


def test_the_last_of_a_connection_releases_its_records(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    member.client.connection.lost()
    assert other.fetch() == [(0, 0, 2)]


def test_a_session_that_begins_anew_releases_nothing_of_others(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    assert other.fetch() == []
    other.session_epoch = 0
    assert other.fetch() == []
    member.session_epoch = 0
    assert member.fetch() == [(0, 0, 2)]


def test_a_broker_has_a_limited_number_of_sessions(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"group.share.max.share.sessions": "1"}) as harness:
        member, other = reading(harness, "a"), Sharer(harness, "other")
        assert member.ask_fetch().error_code == 0
        assert other.ask_fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_all_sessions_have_a_limited_number_of_partitions(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partitions, "SESSION_PARTITIONS_MAX", 1)
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    assert other.ask_fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_new_group_begins_at_the_end_unless_it_is_configured(harness: Harness) -> None:
    member = reading(harness, "a", earliest=False)
    assert member.fetch() == []
    harness.produce(TOPIC, "b")
    assert member.fetch() == [(1, 1, 1)]


def test_a_new_group_may_begin_some_time_ago(harness: Harness) -> None:
    configure(harness, auto_offset_reset="by_duration:PT1H")
    harness.create_topic(TOPIC)
    now_ms = harness.clock.wall_ms()
    for ago_ms in (7_200_000, 1_800_000, 60_000):
        harness.produce(TOPIC, "v", timestamp=now_ms - ago_ms)
    member = Sharer(harness)
    member.beat(TOPIC)
    assert member.fetch() == [(1, 2, 1)]


def test_records_that_are_deleted_are_passed_over(harness: Harness) -> None:
    member = reading(harness, "a")
    harness.produce(TOPIC, "b", "c")
    assert member.fetch() == [(0, 2, 1)]
    harness.cluster.image.topics[TOPIC].partitions[0].log.delete_before(2)
    assert member.acknowledge((0, 0, [ACCEPT])) == 0
    other = Sharer(harness, "other")
    assert other.fetch() == []
    assert member.acknowledge((1, 2, [ACCEPT])) == 0
    harness.produce(TOPIC, "d")
    assert other.fetch() == [(3, 3, 1)]


def test_the_states_are_written_anew_now_and_then_and_old_records_are_deleted(tmp_path: Path) -> None:
    settings = {
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    with Harness(tmp_path, settings=settings) as harness:
        member = reading(harness)
        for offset in range(10):
            harness.produce(TOPIC, "v")
            assert member.fetch() == [(offset, offset, 1)]
            assert member.acknowledge((offset, offset, [ACCEPT])) == 0
        partition = harness.cluster.image.topics[SHARE_STATE_TOPIC].partitions[0]
        harness.cluster.share_states.prune(partition)
        kept = partition.log.log_start_offset
        assert 0 < kept < partition.log.log_end_offset
        before = offset_of(harness)
        harness.restart()
        assert offset_of(harness) == before
        harness.clock.advance(300_001)
        partition = harness.cluster.image.topics[SHARE_STATE_TOPIC].partitions[0]
        harness.cluster.share_states.prune(partition)
        harness.end_turn()
        harness.cluster.share_states.prune(partition)
        assert partition.log.log_end_offset - partition.log.log_start_offset == 1
        assert offset_of(harness) == before


def test_a_deleted_topic_takes_its_states_along(harness: Harness) -> None:
    member = reading(harness, "a")
    assert member.fetch() == [(0, 0, 1)]
    (deleted,) = harness.request(DeleteTopicsRequest(topics=[Topic(name=TOPIC)])).responses
    assert deleted.error_code == 0
    assert list(harness.cluster.share_states.states) == []
    assert harness.cluster.groups.share_group(GROUP).initialized == {}


def test_a_cluster_that_is_to_have_no_share_groups_serves_none(harness: Harness) -> None:
    member = reading(harness, "a")
    harness.cluster.commit([records.FeatureLevelRecord(name=SHARE_VERSION, feature_level=0)])
    assert member.beat(TOPIC).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert member.ask_fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
