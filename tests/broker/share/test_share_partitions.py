"""Share partitions on a cluster: waiting, locks on the clock, sessions, restarts, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.partitions import SHARE_STATE_TOPIC
from minibroker.broker.share import share_partitions
from minibroker.broker.share.share_partition import SharePartition
from minibroker.broker.share.states import ShareKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.share_fetch import ShareFetchRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.storage.segment import Region, Segment
from tests.broker.harness import Harness
from tests.broker.share.driving import GROUP, TOPIC, Sharer, configure, offset_of, reading
from tests.broker.transactions.producing import TransactionalProducer
from tests.clients.share_requests import ACCEPT, RELEASE, acquired

LOCK_MS = 30_000
FetchTopic = ShareFetchRequest.FetchTopic
Topic = DeleteTopicsRequest.DeleteTopicState


def opened(harness: Harness, index: int = 0) -> SharePartition:
    """The share partition itself, for a look inside."""
    share = harness.cluster.shares.find_share_partition(
        ShareKey(GROUP, harness.cluster.image.topics[TOPIC].topic_id, index)
    )
    assert share is not None
    return share


def test_a_share_fetch_waits_for_records(harness: Harness) -> None:
    member = reading(harness)
    assert member.ask_fetch(max_wait_ms=1000) is None
    harness.produce(TOPIC, "v")
    assert acquired(member.late()) == [(0, 0, 1)]
    assert member.ask_fetch(max_wait_ms=1000) is None
    harness.clock.advance(999)
    assert member.late() is None
    harness.clock.advance(1)
    assert acquired(member.late()) == []


def test_a_share_fetch_waits_for_records_that_another_member_releases(harness: Harness) -> None:
    member, other = reading(harness, "a", "b"), Sharer(harness, "other")
    other.beat(TOPIC)
    assert member.fetch() == [(0, 1, 1)]
    assert other.ask_fetch(max_wait_ms=1000) is None
    assert member.acknowledge((0, 1, [ACCEPT, RELEASE])) == 0
    assert acquired(other.late()) == [(1, 1, 2)]


def test_a_share_fetch_goes_on_where_the_last_one_ended(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    member = reading(harness, "a")
    for value in "bcd":
        harness.produce(TOPIC, value)
    assert member.fetch(max_records=1) == [(0, 0, 1)]
    monkeypatch.setattr(Segment, "find_position_of_offset", None)
    assert [member.fetch(max_records=1) for _ in range(3)] == [[(1, 1, 1)], [(2, 2, 1)], [(3, 3, 1)]]


def test_share_fetch_sends_records_from_their_file(harness: Harness) -> None:
    member = reading(harness, "a" * 20_000)
    assert member.fetch() == [(0, 0, 1)]
    (region,) = [item for item in member.client.outlet.items if isinstance(item, Region)]
    assert (region.position, region.size_bytes) == (0, harness.partition(TOPIC).log.size_bytes)


def test_an_acquisition_lock_expires_by_the_clock(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    assert other.ask_fetch(max_wait_ms=2 * LOCK_MS) is None
    harness.clock.advance(LOCK_MS - 1)
    assert other.late() is None
    harness.clock.advance(2)
    assert acquired(other.late()) == [(0, 0, 2)]
    assert member.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_a_share_fetch_waits_until_min_bytes_are_available(harness: Harness) -> None:
    member = reading(harness, "a")
    assert member.ask_fetch(max_wait_ms=1000, min_bytes=1000) is None
    harness.clock.advance(1000)
    assert acquired(member.late()) == [(0, 0, 1)]


def test_only_changed_partitions_of_many_are_scanned(harness: Harness) -> None:
    member, many = reading(harness, partitions=150), range(1, 150)
    assert member.ask_fetch(more=many, max_wait_ms=1000) is None
    before = harness.dispatcher.slicer.steps
    harness.produce(TOPIC, "v", partition=77)
    answer = member.late()
    assert acquired(answer) == [(0, 0, 1)]
    assert len(answer.responses[0].partitions) == 150  # the first answer of a session names them all
    assert harness.dispatcher.slicer.steps - before < 400  # to forget that it waits, and to answer
    assert member.ask_fetch(more=many, max_wait_ms=1000) is None
    harness.clock.advance(1000)
    assert acquired(member.late()) == []


def test_a_share_fetch_waits_for_min_bytes_over_many_partitions(harness: Harness) -> None:
    member, many = reading(harness, partitions=150), range(1, 150)
    assert member.ask_fetch(more=many, max_wait_ms=1000, min_bytes=150) is None
    harness.produce(TOPIC, "v", partition=7)
    assert member.late() is None
    harness.produce(TOPIC, "v", partition=140)
    harness.produce(TOPIC, "v", partition=8)
    assert acquired(member.late()) == [(0, 0, 1)] * 3


def test_a_waiting_share_fetch_is_answered_when_its_topic_is_deleted(harness: Harness) -> None:
    member = reading(harness)
    assert member.ask_fetch(max_wait_ms=1000) is None
    harness.request(DeleteTopicsRequest(topics=[Topic(name=TOPIC)]))
    assert member.late().responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_share_fetch_reads_known_partitions_before_new_ones(harness: Harness) -> None:
    member = reading(harness, "a", partitions=2)
    assert member.fetch() == [(0, 0, 1)]
    harness.produce(TOPIC, "b")
    harness.produce(TOPIC, "c", partition=1)
    for index, expected in ((0, [(1, 1, 1)]), (1, [(0, 0, 1)])):
        answer = member.ask_fetch(more=[1])
        assert acquired(answer) == expected
        (partition,) = [partition for partition in answer.responses[0].partitions if partition.acquired_records]
        assert partition.partition_index == index


def test_a_share_fetch_returns_a_new_partition_with_records_alone(harness: Harness) -> None:
    member = reading(harness, "a", partitions=3)
    harness.produce(TOPIC, "b", partition=1)
    harness.produce(TOPIC, "c", partition=2)
    answer = member.ask_fetch(more=[1, 2])
    assert acquired(answer) == [(0, 0, 1)]
    named = [partition.partition_index for partition in answer.responses[0].partitions]
    assert named == [0]


def test_empty_partitions_do_not_count_towards_min_bytes(harness: Harness) -> None:
    member = reading(harness, partitions=3)
    harness.produce(TOPIC, "v", partition=2)
    size_bytes = harness.partition(TOPIC, 2).log.size_bytes
    assert member.ask_fetch(more=[1, 2], max_wait_ms=1000, min_bytes=size_bytes + 1) is None
    harness.clock.advance(1000)
    assert acquired(member.late()) == [(0, 0, 1)]


def test_partitions_take_turns_if_not_all_records_fit(harness: Harness) -> None:
    member = reading(harness, partitions=2)
    for _ in range(2):
        for partition in range(2):
            harness.produce(TOPIC, "v", partition=partition)
    member.fetch(more=[1], max_records=1)
    served = []
    for _ in range(3):
        answer = member.ask_fetch(more=[1], max_records=1)
        served += [one.partition_index for one in answer.responses[0].partitions if one.acquired_records]
    assert served in ([0, 1, 0], [1, 0, 1])


def test_a_member_is_charged_with_the_size_of_the_response(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("many", 300)
    limit_fetched_bytes(harness, 1e9)
    charged: list[int] = []
    monkeypatch.setattr(
        harness.cluster.quotas,
        "charge_fetched_bytes",
        lambda client, usage, size_bytes: charged.append(size_bytes) or True,
    )
    member = reading(harness, "a" * 500)
    answer = member.ask_fetch()
    assert charged.pop() == 4 + len(answer.encode(ShareFetchRequest.versions[-1]))
    many = Sharer(harness, "many", "others")
    many.beat("many")
    answer = many.ask_fetch(topic="many", more=range(1, 300))
    assert charged.pop() == 4 + len(answer.encode(ShareFetchRequest.versions[-1]))
    unknown = [bytes(15) + bytes([number]) for number in range(200)]
    topics = [FetchTopic(topic_id=id, partitions=[FetchTopic.FetchPartition(partition_index=0)]) for id in unknown]
    answer = Sharer(harness, "nowhere").ask_fetch(topics=topics)
    assert charged.pop() == 4 + len(answer.encode(ShareFetchRequest.versions[-1]))


def limit_fetched_bytes(harness: Harness, rate: float) -> None:
    harness.cluster.commit_metadata_records(
        [
            records.ClientQuotaRecord(
                entity=[records.ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="test")],
                key="consumer_byte_rate",
                value=rate,
            )
        ]
    )


def test_a_member_over_its_quota_acquires_no_records(harness: Harness) -> None:
    limit_fetched_bytes(harness, 100)
    member, other = reading(harness, "a" * 500), Sharer(harness, "other")
    harness.produce(TOPIC, "b" * 500)
    assert member.fetch(max_records=1) == [(0, 0, 1)]
    answer = member.ask_fetch()
    assert acquired(answer) == [] and answer.throttle_time_ms > 0
    assert [run.state.name for run in opened(harness).deliveries.list_runs()] == ["ACQUIRED", "AVAILABLE"]
    harness.clock.advance(15_000)
    assert other.fetch() == [(1, 1, 1)]


@pytest.mark.parametrize("crash", [True, False])
def test_acknowledgements_survive_a_restart(harness: Harness, crash: bool) -> None:
    member = reading(harness, *"abcdef")
    assert member.fetch() == [(0, 5, 1)]
    assert member.acknowledge((1, 2, [ACCEPT]), (4, 4, [RELEASE])) == 0
    harness.restart(crash=crash)
    member = Sharer(harness)
    assert member.beat(TOPIC).error_code == 0
    assert member.fetch() == [(0, 0, 1), (3, 3, 1), (4, 4, 2), (5, 5, 1)]
    assert member.acknowledge((0, 0, [ACCEPT]), (3, 5, [ACCEPT])) == 0
    assert member.fetch() == []


def test_an_acknowledgement_of_an_empty_offset_range_is_rejected(harness: Harness) -> None:
    member = reading(harness, "a", "b")
    assert member.fetch() == [(0, 1, 1)]
    assert [member.acknowledge((1, last, [ACCEPT])) for last in (-1, 0)] == [ErrorCode.INVALID_REQUEST] * 2
    assert member.acknowledge((0, 1, [ACCEPT])) == 0


def test_acknowledgements_that_cannot_be_persisted_are_rejected(harness: Harness) -> None:
    member = reading(harness, "a", "b")
    assert member.fetch() == [(0, 1, 1)]
    harness.disk.room_bytes = 0  # type: ignore[attr-defined]
    assert member.acknowledge((0, 1, [ACCEPT])) != 0
    harness.disk.room_bytes = None  # type: ignore[attr-defined]
    harness.clock.advance(1000)
    other = Sharer(harness, "other")
    assert other.fetch() == [(0, 1, 1)]


def test_closing_a_connection_releases_its_records(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    member.client.connection.drop_lost_client()
    assert other.fetch() == [(0, 0, 2)]


def test_a_lost_connection_releases_the_records_of_a_restarted_share_session(harness: Harness) -> None:
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    member.session_epoch = 0
    assert member.fetch() == []
    member.client.connection.drop_lost_client()
    assert other.fetch() == [(0, 0, 2)]


def test_a_broker_limits_the_number_of_share_sessions(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"group.share.max.share.sessions": "1"}) as harness:
        member, other = reading(harness, "a"), Sharer(harness, "other")
        assert member.ask_fetch().error_code == 0
        assert other.ask_fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_the_partitions_of_all_share_sessions_are_limited(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_partitions, "SESSION_PARTITIONS_MAX", 1)
    member, other = reading(harness, "a"), Sharer(harness, "other")
    assert member.fetch() == [(0, 0, 1)]
    assert other.ask_fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_share_fetch_for_too_many_partitions_creates_no_session(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partitions, "SESSION_PARTITIONS_MAX", 1)
    member = reading(harness, "a", partitions=2)
    harness.create_topic("other")
    asked = [
        FetchTopic(topic_id=harness.cluster.image.topics[name].topic_id, partitions=[FetchTopic.FetchPartition()])
        for name in (TOPIC, "other")
    ]
    assert member.ask_fetch(topics=asked).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert harness.cluster.shares.sessions == {}


def test_a_new_group_starts_at_the_latest_offset_unless_configured(harness: Harness) -> None:
    member = reading(harness, "a", earliest=False)
    assert member.fetch() == []
    harness.produce(TOPIC, "b")
    assert member.fetch() == [(1, 1, 1)]


def test_a_new_group_may_start_at_the_records_of_a_duration_ago(harness: Harness) -> None:
    configure(harness, auto_offset_reset="by_duration:PT1H")
    harness.create_topic(TOPIC)
    now_ms = harness.clock.wall_ms()
    for ago_ms in (7_200_000, 1_800_000, 60_000):
        harness.produce(TOPIC, "v", timestamp=now_ms - ago_ms)
    member = Sharer(harness)
    member.beat(TOPIC)
    assert member.fetch() == [(1, 2, 1)]


def test_deleted_records_are_skipped(harness: Harness) -> None:
    member = reading(harness, "a")
    harness.produce(TOPIC, "b", "c")
    assert member.fetch() == [(0, 2, 1)]
    harness.cluster.image.topics[TOPIC].partitions[0].log.delete_records_before(2)
    assert member.acknowledge((0, 0, [ACCEPT])) == 0
    other = Sharer(harness, "other")
    assert other.fetch() == []
    assert member.acknowledge((1, 2, [ACCEPT])) == 0
    harness.produce(TOPIC, "d")
    assert other.fetch() == [(3, 3, 1)]


def test_share_states_are_snapshotted_and_old_records_deleted(tmp_path: Path) -> None:
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
        harness.cluster.share_states.prune_share_state_records(partition)
        kept = partition.log.log_start_offset
        assert 0 < kept < partition.log.log_end_offset
        before = offset_of(harness)
        harness.restart()
        assert offset_of(harness) == before
        harness.clock.advance(300_001)
        partition = harness.cluster.image.topics[SHARE_STATE_TOPIC].partitions[0]
        harness.cluster.share_states.prune_share_state_records(partition)
        harness.end_turn()
        harness.cluster.share_states.prune_share_state_records(partition)
        assert partition.log.log_end_offset - partition.log.log_start_offset == 1
        assert offset_of(harness) == before


def test_deleting_a_topic_deletes_its_share_states(harness: Harness) -> None:
    member = reading(harness, "a")
    assert member.fetch() == [(0, 0, 1)]
    (deleted,) = harness.request(DeleteTopicsRequest(topics=[Topic(name=TOPIC)])).responses
    assert deleted.error_code == 0
    assert list(harness.cluster.share_states.states) == []
    assert harness.cluster.groups.get_share_group(GROUP).initialized == {}


def test_the_share_states_of_many_partitions_are_initialized_in_steps(harness: Harness) -> None:
    harness.create_topic(TOPIC, 300)
    member, before = Sharer(harness), harness.dispatcher.slicer.steps
    assert member.beat(TOPIC).error_code == 0
    assert harness.dispatcher.slicer.steps - before >= 300
    assert len(harness.cluster.share_states.states) == 300


def test_a_share_state_without_a_start_offset_has_no_delivery_complete_count(harness: Harness) -> None:
    reading(harness)
    ((_, state),) = harness.cluster.share_states.states.values()
    assert (state.start_offset, state.complete_count) == (-1, -1)


def test_an_existing_share_state_is_not_initialized_again(harness: Harness) -> None:
    harness.create_topic(TOPIC)
    key = ShareKey(GROUP, harness.cluster.image.topics[TOPIC].topic_id, 0)
    member = Sharer(harness)
    harness.cluster.share_states.log.create_topic()
    harness.cluster.share_states.initialize_share_state(key, 0, 5)
    assert member.beat(TOPIC).error_code == 0
    state = harness.cluster.share_states.find_share_state(key)
    assert state is not None and state.start_offset == 5


def test_a_topic_is_deleted_although_its_share_states_cannot_be_deleted(
    harness: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading(harness, "a")

    def refuse(*_: object) -> int:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "no room")

    monkeypatch.setattr(harness.cluster.share_states, "append_entries", refuse)
    monkeypatch.setattr(harness.cluster.groups, "append_entries", refuse)
    (deleted,) = harness.request(DeleteTopicsRequest(topics=[Topic(name=TOPIC)])).responses
    assert deleted.error_code == 0
    said = "\n".join(record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert "keeps states of the deleted topic t: NOT_COORDINATOR: no room" in said
    assert "<share group s: Stable> keeps the deleted topic t: NOT_COORDINATOR: no room" in said


def test_only_newly_acquired_records_of_aborted_transactions_are_archived(harness: Harness) -> None:
    member, other = reading(harness), Sharer(harness, "other")
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send("a", "b", "c") == 0
    harness.clock.advance(0)
    assert member.fetch() == [(0, 2, 1)]
    assert producer.finish(commit=False) == 0
    assert member.acknowledge((0, 0, [RELEASE]), (2, 2, [RELEASE])) == 0
    configure(harness, isolation_level="read_committed")
    assert other.fetch() == [(3, 3, 1)]  # the marker
    share = opened(harness)
    assert [(run.first, run.last, run.member_id) for run in share.deliveries.list_runs()] == [
        (1, 1, "m"),
        (2, 2, ""),
        (3, 3, "other"),
    ]


def test_no_aborted_record_is_archived_if_no_record_can_be_acquired(harness: Harness) -> None:
    member = reading(harness, partitions=2)
    producer = TransactionalProducer(harness)
    producer.init()
    assert producer.send("a", "b", partition=1) == 0
    assert member.fetch(more=[1]) == [(0, 1, 1)]
    assert producer.finish(commit=False) == 0
    harness.produce(TOPIC, "c")
    share = opened(harness, 1)
    share.release_records_of_member(member.member_id)
    configure(harness, isolation_level="read_committed")
    assert member.fetch(max_records=1) == [(0, 0, 1)]
    assert [run.state.name for run in share.deliveries.list_runs()] == ["AVAILABLE"]
    assert member.fetch() == [(2, 2, 1)]


def test_a_closed_session_releases_the_records_of_all_its_partitions(harness: Harness) -> None:
    member, other = reading(harness, "a", partitions=3), Sharer(harness, "other")
    harness.produce(TOPIC, "b", partition=2)
    assert [member.fetch(more=[1, 2]) for _ in range(2)] == [[(0, 0, 1)]] * 2
    member.ask_fetch(share_session_epoch=-1)
    assert other.fetch(more=[1, 2]) == [(0, 0, 2), (0, 0, 2)]


def test_a_partition_with_a_new_leader_reloads_its_share_state(tmp_path: Path) -> None:
    # With this seed the node that is asked leads both partitions, and coordinates the groups.
    with Harness(tmp_path, nodes=2, seed=2) as harness:
        member = reading(harness, "a", partitions=2)
        share_of = harness.cluster.shares.find_share_partition
        keys = [ShareKey(GROUP, harness.cluster.image.topics[TOPIC].topic_id, index) for index in range(2)]
        for each in (member, Sharer(harness, "other", "another group")):
            each.fetch(more=[1])
        shares = [share_of(key) for key in keys]
        harness.cluster.shares.on_leader_changed(harness.partition(TOPIC, 0))
        assert [share_of(key) for key in keys] == [None, shares[1]]


def test_share_groups_can_be_disabled_for_a_cluster(harness: Harness) -> None:
    member = reading(harness, "a")
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=SHARE_VERSION, feature_level=0)])
    assert member.beat(TOPIC).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert member.ask_fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
