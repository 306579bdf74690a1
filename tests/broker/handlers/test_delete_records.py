"""DeleteRecords: what it means for readers, for files, and after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest
from tests.broker.harness import Harness, Waiting

Topic = DeleteRecordsRequest.DeleteRecordsTopic
FetchTopic = FetchRequest.FetchTopic


def delete(harness: Harness, topic: str, offset: int, *, partition: int = 0, **more: Any) -> tuple[int, int]:
    """(error code, low watermark)."""
    asked = Topic(name=topic, partitions=[Topic.DeleteRecordsPartition(partition_index=partition, offset=offset)])
    (answer,) = harness.request(DeleteRecordsRequest(topics=[asked], timeout_ms=1000), **more).topics
    (result,) = answer.partitions
    assert (answer.name, result.partition_index) == (topic, partition)
    return result.error_code, result.low_watermark


def fetch(harness: Harness, topic: str, offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1) -> Any:
    asked = FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[asked])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics)
    return harness.request(request, 12)


@pytest.fixture
def written(harness: Harness) -> Harness:
    """The topic t with one batch of three records."""
    harness.create_topic("t")
    harness.produce("t", "a", "b", "c")
    return harness


def test_a_delayed_fetch_below_the_new_log_start_is_answered_immediately(written: Harness) -> None:
    waiting = fetch(written, "t", 0, max_wait_ms=10_000, min_bytes=10_000)
    at_the_end = fetch(written, "t", 3, max_wait_ms=10_000)
    assert isinstance(waiting, Waiting) and not waiting.done
    delete(written, "t", -1)
    (answer,) = waiting.response().responses[0].partitions
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert not at_the_end.done  # what it waits for is still to come
    written.produce("t", "d")
    assert at_the_end.done


def test_delete_records_removes_files_of_whole_segments_after_a_delay(written: Harness) -> None:
    written.partition("t").log.roll_segment_if_used()
    written.produce("t", "d")
    directory = written.directory / "data" / "t-0"
    delete(written, "t", 3)
    assert (directory / "00000000000000000000.log.deleted").exists()
    written.clock.advance(60_000)
    assert sorted(path.name for path in directory.glob("*.log*")) == ["00000000000000000003.log"]


def test_deleted_records_stay_deleted_after_a_stop_and_a_crash(written: Harness) -> None:
    delete(written, "t", 2)
    written.restart()
    assert fetch(written, "t", 1).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    delete(written, "t", 3)
    written.logs.write_checkpoint_soon("log-start-offset-checkpoint")
    written.restart(crash=True)
    assert written.partition("t").log.log_start_offset == 3


def test_a_node_that_is_not_the_leader_rejects_delete_records(written: Harness) -> None:
    written.restart(nodes=[1, 2])
    assert delete(written, "t", 1, node=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_delete_records_is_rejected_for_internal_and_compacted_topics(harness: Harness) -> None:
    harness.create_topic("__consumer_offsets")
    assert delete(harness, "__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(harness, "__consumer_offsets", 0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    harness.create_topic("kept", cleanup_policy="compact")
    assert delete(harness, "kept", 0) == (ErrorCode.POLICY_VIOLATION, -1)
