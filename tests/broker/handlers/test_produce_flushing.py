"""Produce under flush.messages: answered when the records are on the disk itself, many answers by one sync."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.broker.harness import Client, Harness, TopicData, Waiting, batch
from tests.storage.support import FailingDisk

VERSION = 9


def produce_request(topic: str, *partitions: int, acks: int = -1, records: bytes | None = None) -> ProduceRequest:
    data = [
        TopicData.PartitionProduceData(index=index, records=memoryview(records or batch("v")))
        for index in partitions or (0,)
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicData(name=topic, partition_data=data)])


class Flushing:
    """A harness whose work aside is held, with a disk that can be made to fail."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.harness = Harness(directory, disk=self.disk)
        self.harness.create_topic("every", partitions=3, flush_messages="1")
        self.harness.create_topic("some", flush_messages="3")
        self.harness.create_topic("never")
        self.harness.clock.holds_aside = True

    def produce(self, topic: str, *partitions: int, acks: int = -1, **more: Any) -> Any:
        return self.harness.request(produce_request(topic, *partitions, acks=acks, **more), VERSION)

    def sync(self) -> int:
        """Do all that is waiting for the disk, but not what that brings up; how many jobs there were."""
        return self.harness.clock.do_aside()


@pytest.fixture
def flushing(tmp_path: Path) -> Iterator[Flushing]:
    made = Flushing(tmp_path)
    with made.harness:
        yield made


def outcomes(response: Any) -> list[tuple[int, int]]:
    """(error code, base offset) of each partition."""
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_produce_is_answered_after_the_fsync_whatever_the_acks(flushing: Flushing, acks: int) -> None:
    waiting = flushing.produce("every", acks=acks)
    assert isinstance(waiting, Waiting) and not waiting.done
    assert flushing.sync() == 1
    assert outcomes(waiting.response()) == [(ErrorCode.NONE, 0)]
    assert flushing.sync() == 0


def test_a_produce_that_waits_for_the_fsync_does_not_keep_its_request_in_memory(flushing: Flushing) -> None:
    client = flushing.harness.client()
    client.send(produce_request("every"), VERSION)
    assert client.connection.has_delayed_request
    assert not [each for each in gc.get_objects() if isinstance(each, ProduceRequest)]


def test_acks_0_still_flushes_the_log(flushing: Flushing) -> None:
    assert flushing.produce("every", acks=0) is None
    assert flushing.sync() == 1
    assert flushing.harness.partition("every").log.recovery_point == 1


def test_only_the_produce_that_reaches_flush_messages_waits_for_the_fsync(flushing: Flushing) -> None:
    answers = [flushing.produce("some") for _ in range(4)]
    assert [isinstance(answer, Waiting) for answer in answers] == [False, False, True, False]
    flushing.sync()
    assert outcomes(answers[2].response()) == [(ErrorCode.NONE, 2)]
    assert [isinstance(flushing.produce("some"), Waiting) for _ in range(2)] == [False, True]


def test_a_produce_without_flush_messages_neither_waits_nor_flushes(flushing: Flushing) -> None:
    assert outcomes(flushing.produce("never")) == [(ErrorCode.NONE, 0)]
    assert flushing.sync() == 0


def test_many_connections_share_one_fsync(flushing: Flushing) -> None:
    waiting = [flushing.produce("every") for _ in range(50)]
    assert flushing.sync() == 1
    assert [each.done for each in waiting] == [True] + [False] * 49
    assert flushing.sync() == 1
    assert all(each.done for each in waiting)
    assert flushing.sync() == 0


def test_a_produce_to_several_partitions_waits_for_all_of_them(flushing: Flushing) -> None:
    waiting = flushing.produce("every", 0, 1, 2)
    assert not waiting.done
    assert flushing.sync() == 3
    assert outcomes(waiting.response()) == [(ErrorCode.NONE, 0)] * 3


def test_later_requests_of_a_connection_wait_for_its_unflushed_produce(flushing: Flushing) -> None:
    client = flushing.harness.client()
    client.send(produce_request("every"), VERSION, correlation_id=1)
    client.send(produce_request("never"), VERSION, correlation_id=2)
    client.send(MetadataRequest(topics=[]), correlation_id=3)
    assert answered(client) == []
    flushing.sync()
    client.outlet.run_soon()
    assert answered(client) == [1, 2, 3]


def answered(client: Client) -> list[int]:
    return [correlation_id for correlation_id, _ in client.responses()]


def test_records_can_be_read_before_the_fsync(flushing: Flushing) -> None:
    flushing.produce("every")
    assert flushing.harness.partition("every").log.high_watermark == 1
    assert fetch(flushing.harness, "every").error_code == ErrorCode.NONE


def fetch(harness: Harness, topic: str) -> Any:
    asked = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[asked])]
    return harness.request(FetchRequest(max_bytes=1 << 20, topics=topics), 12).responses[0].partitions[0]


def test_a_duplicate_batch_is_answered_no_sooner_than_the_original(flushing: Flushing) -> None:
    records = batch("v", producer_id=7, producer_epoch=0, base_sequence=0)
    original = flushing.produce("every", records=records)
    original.go_away()
    repetition = flushing.produce("every", records=records)
    assert isinstance(repetition, Waiting) and not repetition.done
    assert flushing.sync() == 1  # the one that was on its way covers it
    assert outcomes(repetition.response()) == [(ErrorCode.NONE, 0)]
    assert outcomes(flushing.produce("every", records=records)) == [(ErrorCode.NONE, 0)]


def test_a_duplicate_batch_without_flush_messages_is_answered_at_once(flushing: Flushing) -> None:
    records = batch("v", producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        assert outcomes(flushing.produce("never", records=records)) == [(ErrorCode.NONE, 0)]
    assert flushing.sync() == 0


def test_a_changed_flush_messages_takes_effect_immediately(flushing: Flushing) -> None:
    log = flushing.harness.partition("never").log
    flushing.produce("never")
    log.update_settings(log.settings._replace(flush_messages=1))
    assert isinstance(flushing.produce("never"), Waiting)
    log.update_settings(log.settings._replace(flush_messages=(1 << 63) - 1))
    assert not isinstance(flushing.produce("never"), Waiting)


# --- when the sync fails ----------------------------------------------------------------------------------------------


def fail_sync(flushing: Flushing, suffix: str) -> None:
    flushing.disk.failing, flushing.disk.suffix = {"sync"}, suffix
    flushing.sync()
    flushing.disk.failing = set()


def test_a_failed_sync_fails_only_its_own_partition(flushing: Flushing) -> None:
    waiting = flushing.produce("every", 0, 1)
    fail_sync(flushing, "every-1/00000000000000000000.log")
    first, second = waiting.response().responses[0].partition_responses
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.base_offset, second.log_start_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)


def test_a_log_with_a_failed_fsync_is_offline_in_all_apis(flushing: Flushing) -> None:
    harness = flushing.harness
    flushing.produce("every", 1)
    fail_sync(flushing, "every-1/00000000000000000000.log")
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert outcomes(flushing.produce("every", 1)) == [(storage_error, -1)]
    assert fetch_code(harness, "every", 1) == list_code(harness, "every", 1) == storage_error
    told = {each.partition_index: each for each in metadata_of(harness, "every")}
    assert (told[1].error_code, told[1].leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (told[1].isr_nodes, told[1].offline_replicas) == ([1], [1])
    assert (told[0].error_code, told[0].leader_id, told[0].offline_replicas) == (ErrorCode.NONE, 1, [])
    described = described_partitions(harness, "every")
    assert [(each.leader_id, each.offline_replicas) for each in described] == [(1, []), (-1, [1]), (1, [])]
    harness.clock.holds_aside = False
    assert outcomes(flushing.produce("every", 0)) == [(ErrorCode.NONE, 0)]


def test_a_restart_brings_an_offline_log_back(flushing: Flushing) -> None:
    flushing.produce("every", 1)
    fail_sync(flushing, "every-1/00000000000000000000.log")
    with pytest.raises(Exception, match="every-1 is offline until the next start"):
        flushing.harness.stop()
    flushing.harness.start()
    assert flushing.harness.partition("every", 1).log.log_end_offset == 1
    assert {each.leader_id for each in metadata_of(flushing.harness, "every")} == {1}


def fetch_code(harness: Harness, topic: str, partition: int) -> int:
    asked = FetchRequest.FetchTopic.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[asked])]
    request = FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    code: int = harness.request(request, 12).responses[0].partitions[0].error_code
    return code


def list_code(harness: Harness, topic: str, partition: int) -> int:
    listed = ListOffsetsRequest.ListOffsetsTopic
    asked = listed.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[listed(name=topic, partitions=[asked])])
    code: int = harness.request(request, 7).topics[0].partitions[0].error_code
    return code


def metadata_of(harness: Harness, topic: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    return harness.request(request).topics[0].partitions


def described_partitions(harness: Harness, topic: str) -> Any:
    asked = DescribeTopicPartitionsRequest.TopicRequest(name=topic)
    return harness.request(DescribeTopicPartitionsRequest(topics=[asked])).topics[0].partitions
