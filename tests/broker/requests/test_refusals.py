"""What is logged of requests that are refused in part, or whole: a line for each reason, not one for each partition."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.requests.routes import Unanswerable
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.replicas import AlterReplicaLogDirsRequest
from tests.broker.harness import Harness, batch

Data = ProduceRequest.TopicProduceData
Deletion = DeleteRecordsRequest.DeleteRecordsTopic
Move = AlterReplicaLogDirsRequest.AlterReplicaLogDir

Lines = Callable[[], list[Any]]
COUNT = 5_000


def produce(acks: int = -1) -> ProduceRequest:
    """To partitions that are not there, and to one that is, whose records are none."""
    asked = [Data.PartitionProduceData(index=index, records=memoryview(b"")) for index in range(COUNT + 1)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[Data(name="t", partition_data=asked)])


def delete_records() -> DeleteRecordsRequest:
    asked = [Deletion.DeleteRecordsPartition(partition_index=index, offset=7) for index in range(1, COUNT + 1)]
    return DeleteRecordsRequest(topics=[Deletion(name="t", partitions=asked)], timeout_ms=1000)


def metadata() -> MetadataRequest:
    """Creation on demand of names that collide with the topic's."""
    names = ["t_u", *(f"t.u{number}" for number in range(3))]
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names])


def move() -> AlterReplicaLogDirsRequest:
    topics = [Move.AlterReplicaLogDirTopic(name="t", partitions=list(range(1, COUNT + 1)))]
    return AlterReplicaLogDirsRequest(dirs=[Move(path="/nowhere", topics=topics)])


@pytest.fixture
def topics(harness: Harness) -> Harness:
    for name in ("t", "t.u", "t_u0", "t_u1", "t_u2"):
        harness.create_topic(name)
    return harness


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    caplog.set_level(logging.INFO)
    return lambda: caplog.records


def test_a_rejected_produce_logs_one_line_for_each_reason(topics: Harness, lines: Lines) -> None:
    topics.request(produce(), 9, client_id="mine")
    assert [line.getMessage().partition(": ")[0] for line in lines()] == [
        "Produce from mine refused for t-0",
        "Produce from mine refused for t-1 and 4999 more",
    ]
    unknown = lines()[1]
    assert (unknown.api, unknown.client, unknown.topic, unknown.partition) == ("Produce", "mine", "t", 1)
    assert (unknown.code, unknown.count, unknown.name) == ("UNKNOWN_TOPIC_OR_PARTITION", COUNT, "minibroker.produce")


def test_a_rejected_produce_with_acks_0_logs_its_reasons(topics: Harness, lines: Lines) -> None:
    with pytest.raises(Unanswerable):
        topics.request(produce(acks=0), 9)
    assert len(lines()) == 2


def test_a_successful_produce_logs_nothing(topics: Harness, lines: Lines) -> None:
    topics.produce_batch("t", batch("a"))
    assert lines() == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (delete_records(), "DeleteRecords from test refused for t-1 and 4999 more: UNKNOWN_TOPIC_OR_PARTITION"),
        (move(), "AlterReplicaLogDirs from test refused for t-1 and 4999 more: LOG_DIR_NOT_FOUND"),
        (metadata(), "Metadata from test refused for t_u and 3 more: INVALID_TOPIC_EXCEPTION: Topic 't_u' collides"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_rejected_requests_log_one_line_for_each_reason(
    topics: Harness, lines: Lines, request_: Message, said: str
) -> None:
    topics.request(request_)
    (line,) = lines()
    assert line.getMessage().startswith(said)
