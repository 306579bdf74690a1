"""OffsetCommit: what is recorded, errors of groups and members, and disks that fail or are slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.groups.offsets_of_group import NO_EXPIRY, CommittedOffset
from minibroker.broker.handlers.committed_offsets import offset_commit
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.protocol.steps import run_all_steps
from tests.broker.delaying import steps_of
from tests.broker.handlers.offset_requests import BY_ID, codes_of, commit, commit_request, committed_in
from tests.broker.harness import Harness, Waiting, served_versions

VERSIONS = served_versions(OffsetCommitRequest)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
DAY_MS = 86_400_000


@pytest.fixture
def topic_id(harness: Harness) -> bytes:
    """That of the topic "t" with 2 partitions; and the topic of the groups is there."""
    harness.create_topic("t", 2)
    harness.coordinator("g")
    return harness.cluster.image.topics["t"].topic_id


@pytest.mark.parametrize("crash", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_survives_a_restart(harness: Harness, topic_id: bytes, version: int, crash: bool) -> None:
    by_id = version >= BY_ID
    topic = topic_id if by_id else "t"
    now_ms = harness.clock.wall_ms()
    assert commit(harness, "g", (topic, 1, 7), version=version, leader_epoch=3, metadata="note") == [0]
    epoch = 3 if version >= 6 else -1
    expected = {("t", 1): CommittedOffset(7, epoch, "note", now_ms, NO_EXPIRY, topic_id if by_id else bytes(16))}
    assert committed_in(harness, "g").by_partition == expected
    harness.restart(crash=crash)
    assert committed_in(harness, "g").by_partition == expected
    group = harness.cluster.groups.groups["g"]
    assert (group.state_name, group.protocol_type) == ("Empty", "")


def test_offset_commit_version_1_may_contain_the_commit_timestamp(harness: Harness, topic_id: bytes) -> None:
    commit(harness, "g", ("t", 0, 7), version=1, timestamp_ms=12345)
    commit(harness, "g", ("t", 1, 7), version=1)
    times = [each.commit_timestamp_ms for each in committed_in(harness, "g").by_partition.values()]
    assert times == [12345, harness.clock.wall_ms()]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_offset_commit_versions_2_to_4_contain_a_retention_time(
    harness: Harness, topic_id: bytes, version: int
) -> None:
    topic = topic_id if version >= BY_ID else "t"
    commit(harness, "g", (topic, 0, 7), version=version, retention_time_ms=DAY_MS)
    expires_ms = harness.clock.wall_ms() + DAY_MS if 2 <= version <= 4 else NO_EXPIRY
    harness.restart()
    (offset,) = committed_in(harness, "g").by_partition.values()
    assert offset.expire_timestamp_ms == expires_ms


@pytest.mark.parametrize("retention_ms", [(1 << 63) - 1, -(1 << 63)])
def test_an_excessive_retention_time_is_accepted(harness: Harness, topic_id: bytes, retention_ms: int) -> None:
    assert commit(harness, "g", ("t", 0, 7), version=2, retention_time_ms=retention_ms) == [0]
    harness.restart()
    (offset,) = committed_in(harness, "g").by_partition.values()
    expires_ms = (1 << 63) - 1 if retention_ms > 0 else harness.clock.wall_ms() + retention_ms
    assert offset.expire_timestamp_ms == expires_ms


def test_an_offset_commit_response_keeps_the_order_of_the_partitions(harness: Harness, topic_id: bytes) -> None:
    request = commit_request("g", ("t", 1, 7), ("nope", 5, 7), ("t", 0, 7))
    response = harness.request(request, 9)
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in response.topics] == [
        ("t", [1]),
        ("nope", [5]),
        ("t", [0]),
    ]


def test_a_member_error_is_returned_for_all_existing_partitions(
    harness: Harness, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, "g", ("t", 0, 7))
    asked: list[object] = []

    def refuse(*who: object, transactional: bool, version: int) -> None:
        asked.append((*who, transactional, version))
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)

    monkeypatch.setattr(harness.cluster.groups.groups["g"], "check_offset_commit", refuse)
    member = {"member_id": "m", "group_instance_id": "i", "generation_id_or_member_epoch": 3}
    answered = commit(harness, "g", ("t", 0, 8), ("nope", 0, 8), ("t", 1, 8), version=7, **member)
    assert answered == [ErrorCode.FENCED_INSTANCE_ID, UNKNOWN, ErrorCode.FENCED_INSTANCE_ID]
    assert asked == [("m", "i", 3, False, 7)]
    assert [each.offset for each in committed_in(harness, "g").by_partition.values()] == [7]


def test_a_stale_epoch_for_one_partition_rejects_the_whole_commit(
    harness: Harness, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(harness, "g", ("t", 0, 7))

    def only_first(topic: str, its_id: bytes, partition: int) -> None:
        assert (topic, its_id) == ("t", topic_id)
        if partition:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    group = harness.cluster.groups.groups["g"]
    monkeypatch.setattr(group, "check_offset_commit", lambda *_, **__: only_first)
    assert commit(harness, "g", ("t", 0, 8), ("t", 1, 8)) == [ErrorCode.STALE_MEMBER_EPOCH] * 2
    assert commit(harness, "g", ("t", 0, 9)) == [0]
    assert [each.offset for each in group.offsets.by_partition.values()] == [9]


def test_only_the_coordinator_accepts_a_commit(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        other = 3 - harness.coordinator("g")
        answer = harness.request(commit_request("g", ("t", 0, 7), ("t", 3, 7)), node=other, version=9)
        assert codes_of(answer) == [UNKNOWN, ErrorCode.NOT_COORDINATOR]


def test_a_group_has_no_coordinator_before_the_offsets_topic_exists(harness: Harness) -> None:
    harness.create_topic("t")
    assert codes_of(harness.request(commit_request("g", ("t", 0, 7)), 9)) == [ErrorCode.NOT_COORDINATOR]


def test_a_commit_that_cannot_be_recorded_changes_nothing(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"offsets.topic.num.partitions": "1"}) as harness:
        harness.create_topic("t")
        commit(harness, "g", ("t", 0, 7))
        harness.partition(GROUPS_TOPIC).log.offline = "the disk is away"
        for group in ("g", "other"):
            answer = harness.request(commit_request(group, ("t", 0, 8)), 9)
            assert codes_of(answer) == [ErrorCode.NOT_COORDINATOR]
        assert [each.offset for each in committed_in(harness, "g").by_partition.values()] == [7]
        assert "other" not in harness.cluster.groups.groups


@pytest.fixture
def slow_disk(harness: Harness, topic_id: bytes) -> None:
    """Make every commit wait for the disk, which does nothing until the test lets it."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="flush.messages", value="1")
    change = resource(resource_type=TOPIC_RESOURCE, resource_name=GROUPS_TOPIC, configs=[config])
    assert harness.request(IncrementalAlterConfigsRequest(resources=[change])).responses[0].error_code == 0
    harness.clock.holds_aside = True


@pytest.mark.usefixtures("slow_disk")
def test_a_commit_waits_for_the_fsync_if_flush_messages_is_1(harness: Harness) -> None:
    waiting = harness.request(commit_request("g", ("t", 0, 7)), 9)
    assert isinstance(waiting, Waiting) and not waiting.done
    assert harness.clock.do_aside() > 0
    assert codes_of(waiting.response()) == [0]


@pytest.mark.usefixtures("slow_disk")
def test_a_commit_whose_fsync_takes_too_long_is_answered_with_a_retriable_error(harness: Harness) -> None:
    waiting = harness.request(commit_request("g", ("t", 0, 7), ("t", 9, 7)), 9)
    harness.clock.advance(4999)
    assert not waiting.done
    harness.clock.advance(1)
    assert codes_of(waiting.response()) == [UNKNOWN, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.clock.do_aside()
    assert codes_of(waiting.response()) == [UNKNOWN, ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("version", [BY_ID - 1, BY_ID])
def test_a_topic_deleted_during_a_long_commit_gets_no_offsets(harness: Harness, topic_id: bytes, version: int) -> None:
    by_id = version == BY_ID
    request = commit_request("g", *[(topic_id if by_id else "t", 0, 7)] * 350)
    context = harness.make_context(ApiKey.OFFSET_COMMIT, version)
    steps = steps_of(offset_commit(context, request))
    for _ in range(50):
        next(steps)
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["t"])
    assert set(codes_of(run_all_steps(steps))) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    harness.create_topic("t", 2)
    assert "g" not in harness.cluster.groups.groups or not committed_in(harness, "g").by_partition
