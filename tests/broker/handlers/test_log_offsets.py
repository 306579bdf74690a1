"""ListOffsets and OffsetForLeaderEpoch: what partial logs, other nodes and earlier epochs answer, and version 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

LISTED = served_versions(ListOffsetsRequest)[1:]  # version 0 is another matter
WITH_LEADER_EPOCH = 4
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
T = 1_700_000_000_000

Topic = ListOffsetsRequest.ListOffsetsTopic
Partition = Topic.ListOffsetsPartition
EpochTopic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
EpochPartition = EpochTopic.OffsetForLeaderPartition


def asked(topic: str, timestamp: int, index: int = 0, *, epoch: int = -1, isolation: int = 0) -> ListOffsetsRequest:
    partition = Partition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[Topic(name=topic, partitions=[partition])]
    )


def listed(harness: Harness, *arguments: Any, version: int = 11, node: int = 1, **more: Any) -> tuple[int, ...]:
    """(error, offset, timestamp, leader epoch) of the one partition asked for."""
    response = harness.request(asked(*arguments, **more), version, node=node)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def refused(code: ErrorCode) -> tuple[int, ...]:
    return code, -1, -1, -1


def epoch_end(harness: Harness, topic: str, epoch: int, index: int = 0, **more: Any) -> tuple[int, int, int]:
    """(error, epoch, end offset) for one epoch of one partition."""
    version, node = more.pop("version", 4), more.pop("node", 1)
    partition = EpochPartition(partition=index, leader_epoch=epoch, **more)
    request = OffsetForLeaderEpochRequest(topics=[EpochTopic(topic=topic, partitions=[partition])])
    response = harness.request(request, version, node=node)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.fixture
def filled(harness: Harness) -> Harness:
    """A topic "t" of two partitions; the first has records at T, T+500, T+1000, and in a second batch at T+2000."""
    harness.create_topic("t", 2)
    harness.produce("t", "a", "b", "c", timestamp=T, step_ms=500)
    harness.produce("t", "d", timestamp=T + 2000)
    return harness


def test_the_earliest_offset_is_the_log_start_offset(filled: Harness) -> None:
    filled.partition("t").log.delete_records_before(3)
    assert listed(filled, "t", EARLIEST) == (0, 3, -1, 0)
    assert listed(filled, "t", EARLIEST_LOCAL) == (0, 3, -1, 0)
    assert listed(filled, "t", 0) == (0, 3, T + 2000, 0)


@for_each("version", [version for version in LISTED if version >= 2])
def test_read_committed_lists_offsets_up_to_the_last_stable_offset(filled: Harness, version: int) -> None:
    filled.partition("t").log.last_stable_offset = 3
    epoch = 0 if version >= WITH_LEADER_EPOCH else -1
    assert listed(filled, "t", LATEST, isolation=1, version=version) == (0, 3, -1, epoch)
    assert listed(filled, "t", LATEST, isolation=0, version=version) == (0, 4, -1, epoch)
    assert listed(filled, "t", T + 2000, isolation=1, version=version) == (0, -1, -1, -1)
    assert listed(filled, "t", T + 2000, isolation=0, version=version) == (0, 3, T + 2000, epoch)


def test_a_largest_timestamp_above_the_stable_offset_is_ignored(filled: Harness) -> None:
    filled.partition("t").log.last_stable_offset = 3
    assert listed(filled, "t", MAX_TIMESTAMP, isolation=1) == (0, -1, -1, -1)


def test_records_above_the_high_watermark_are_not_found(filled: Harness) -> None:
    filled.partition("t").log.high_watermark = 3
    assert listed(filled, "t", LATEST)[1] == 3
    assert listed(filled, "t", T + 2000) == (0, -1, -1, -1)


def test_a_duplicate_partition_is_rejected_once(filled: Harness) -> None:
    twice = [Partition(partition_index=0, timestamp=LATEST), Partition(partition_index=0, timestamp=EARLIEST)]
    other = Partition(partition_index=1, timestamp=LATEST)
    (topic,) = filled.request(ListOffsetsRequest(topics=[Topic(name="t", partitions=[*twice, other])])).topics
    assert [(answer.partition_index, answer.error_code) for answer in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.NONE),
    ]


def test_a_topic_named_twice_in_list_offsets_is_answered_once_with_all_its_partitions(filled: Harness) -> None:
    topics = [Topic(name="t", partitions=[Partition(partition_index=index, timestamp=LATEST)]) for index in (0, 1)]
    (topic,) = filled.request(ListOffsetsRequest(topics=topics)).topics
    assert [(answer.partition_index, answer.offset) for answer in topic.partitions] == [(0, 4), (1, 0)]


def test_a_request_without_topics_has_an_empty_response(filled: Harness) -> None:
    assert filled.request(ListOffsetsRequest()).topics == []


@pytest.mark.parametrize("replica_id", [-1, -2, 5])
def test_a_replica_id_has_no_effect_on_listed_offsets(filled: Harness, replica_id: int) -> None:
    request = asked("t", LATEST)
    request.replica_id = replica_id
    assert filled.request(request).topics[0].partitions[0].offset == 4


def test_a_failing_disk_fails_only_its_own_partition(filled: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such disk")

    segment = filled.partition("t").log.segments[0]
    monkeypatch.setattr(type(segment), "find_first_record_at_timestamp", fail)
    partitions = [Partition(partition_index=0, timestamp=T), Partition(partition_index=1, timestamp=LATEST)]
    (topic,) = filled.request(ListOffsetsRequest(topics=[Topic(name="t", partitions=partitions)])).topics
    assert [answer.error_code for answer in topic.partitions] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]


def test_only_the_leader_lists_offsets(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        leader = harness.partition("t").leader_id
        other = 3 - leader
        assert listed(harness, "t", LATEST, node=other) == refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert epoch_end(harness, "t", 0, node=other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
        assert listed(harness, "t", LATEST, node=leader) == (0, 0, -1, 0)


def test_a_follower_lists_offsets_only_for_debugging_clients_after_validating_epochs(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 1, 2)
        leader, follower = harness.partition("t").replicas
        (stranger,) = {1, 2, 3} - {leader, follower}
        request = asked("t", LATEST)
        request.replica_id = -2
        codes = [
            harness.request(request, 11, node=node).topics[0].partitions[0].error_code
            for node in (leader, follower, stranger)
        ]
        assert codes == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        for node, code in ((follower, ErrorCode.UNKNOWN_LEADER_EPOCH), (stranger, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
            assert listed(harness, "t", LATEST, node=node, epoch=7) == refused(code)
            assert epoch_end(harness, "t", 0, node=node, current_leader_epoch=7) == (code, -1, -1)
        assert listed(harness, "t", LATEST, node=follower) == refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)


# --- OffsetForLeaderEpoch -----------------------------------------------------------------------


def test_an_epoch_ends_where_the_next_one_begins(filled: Harness) -> None:
    partition = filled.partition("t")
    partition.leader_epoch = 4
    filled.produce("t", "in epoch 4")
    partition.leader_epoch = 6
    ends = {epoch: epoch_end(filled, "t", epoch)[1:] for epoch in range(8)}
    assert ends[0] == ends[1] == ends[3] == (0, 4)
    assert ends[4] == ends[5] == (4, 5)
    assert ends[6] == (6, 5)
    assert ends[7] == (-1, -1)


def test_epochs_up_to_the_leaders_end_at_offset_0_in_an_empty_log(filled: Harness) -> None:
    filled.partition("t", 1).leader_epoch = 3
    assert epoch_end(filled, "t", 3, 1) == (0, 3, 0)
    assert epoch_end(filled, "t", 2, 1) == (0, 2, 0)


# --- version 0: offsets by the time of files ----------------------------------------------------


def old_style(harness: Harness, timestamp: int, *, count: int = 100, topic: str = "t", index: int = 0) -> Any:
    """(error, offsets) of the one partition asked for, in version 0."""
    partition = Partition(partition_index=index, timestamp=timestamp, max_num_offsets=count)
    response = harness.request(ListOffsetsRequest(replica_id=-1, topics=[Topic(name=topic, partitions=[partition])]), 0)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer.error_code, answer.old_style_offsets


@pytest.fixture
def segments(filled: Harness) -> Harness:
    """The log of "t" has segments from 0, 4 and 5 on, last written at T - 30, T - 20 and T - 10. Now is T."""
    log = filled.partition("t").log
    log.roll_segment_if_used()
    filled.produce("t", "e")
    log.roll_segment_if_used()
    filled.produce("t", "f")
    for index, segment in enumerate(log.segments):
        filled.disk.set_modified_ms(segment.path + ".log", T - 30 + 10 * index)
    return filled


@for_each(
    ("timestamp", "offsets"),
    [
        (LATEST, [6, 5, 4, 0]),
        (EARLIEST, [0]),
        (T - 31, []),
        (T - 30, [0]),
        (T - 20, [4, 0]),
        (T - 11, [4, 0]),
        (T - 10, [5, 4, 0]),
        (T - 1, [5, 4, 0]),
        (T, [6, 5, 4, 0]),
        (1 << 62, [6, 5, 4, 0]),
        (MAX_TIMESTAMP, []),
    ],
)
def test_version_0_lists_segment_starts_by_file_modification_time(
    segments: Harness, timestamp: int, offsets: list[int]
) -> None:
    assert old_style(segments, timestamp) == (0, offsets)


@pytest.mark.parametrize(("count", "offsets"), [(2, [6, 5]), (1, [6]), (0, []), (-1, []), (1 << 30, [6, 5, 4, 0])])
def test_version_0_lists_up_to_the_requested_number_of_offsets(
    segments: Harness, count: int, offsets: list[int]
) -> None:
    assert old_style(segments, LATEST, count=count) == (0, offsets)


def test_version_0_starts_at_the_log_start_offset(segments: Harness) -> None:
    segments.partition("t").log.delete_records_before(2)
    assert old_style(segments, EARLIEST) == (0, [2])
    assert old_style(segments, LATEST) == (0, [6, 5, 4, 2])


def test_an_empty_log_has_one_offset_in_version_0(filled: Harness) -> None:
    assert old_style(filled, LATEST, index=1) == old_style(filled, EARLIEST, index=1) == (0, [0])


def test_version_0_rejects_unknown_partitions(filled: Harness) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert old_style(filled, LATEST, topic="nowhere") == old_style(filled, LATEST, index=7) == (unknown, [])


@pytest.mark.parametrize("version", LISTED)
def test_records_of_format_0_cannot_be_found_by_timestamp(filled: Harness, version: int) -> None:
    filled.create_topic("old", message_format_version="0.9.0")
    filled.produce("old", "a")
    epoch = 0 if version >= WITH_LEADER_EPOCH else -1
    assert listed(filled, "old", T, version=version) == refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert listed(filled, "old", LATEST, version=version)[:2] == (0, 1)
    assert listed(filled, "old", EARLIEST, version=version) == (0, 0, -1, epoch)
