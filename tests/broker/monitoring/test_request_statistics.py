"""What is counted of requests: each by its API and version, with its bytes, its time and its errors."""

from __future__ import annotations

import pytest

from minibroker.broker.monitoring.request_statistics import DURATION_BUCKETS_MS, RequestStatistics
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.harness import Harness, frame_of

METADATA = MetadataRequest(topics=[])


@pytest.fixture
def statistics(harness: Harness) -> RequestStatistics:
    made = RequestStatistics()
    harness.dispatcher.interceptors.append(made)
    return made


def test_requests_are_counted_by_version_with_their_bytes(harness: Harness, statistics: RequestStatistics) -> None:
    client = harness.client()
    for version in (9, 12, 12):
        client.send(METADATA, version)
    counted = statistics.by_api[ApiKey.METADATA]
    assert counted.sent_bytes == 0 or counted.sent_bytes <= len(client.sent_bytes())
    client.sent_bytes()
    assert counted.requests == {9: 1, 12: 2}
    assert counted.received_bytes == sum(len(frame_of(METADATA, version)) for version in (9, 12, 12))
    assert counted.sent_bytes == len(client.sent_bytes())
    assert sum(counted.durations) == counted.durations[0] == 3
    assert (counted.lost, counted.errors) == (0, {})


def test_errors_are_counted_by_code(harness: Harness, statistics: RequestStatistics) -> None:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in ("a", "b", "")]
    harness.request(DeleteTopicsRequest(topics=topics))
    assert statistics.by_api[ApiKey.DELETE_TOPICS].errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 3}


@pytest.mark.parametrize(("waited_ms", "bucket"), [(0.25, 0), (0.3, 1), (400, 10), (30_000, 15), (60_000, 16)])
def test_the_response_time_is_counted_in_the_first_bucket_that_holds_it(
    harness: Harness, statistics: RequestStatistics, waited_ms: float, bucket: int
) -> None:
    class Slow(Interceptor):
        def alter_response(self, call: Call, response: Message) -> Message:
            harness.clock.advance(waited_ms)
            return response

    harness.dispatcher.interceptors.append(Slow())
    harness.request(METADATA)
    counted = statistics.by_api[ApiKey.METADATA]
    assert counted.durations.index(1) == bucket
    assert counted.duration_ms == waited_ms
    assert len(counted.durations) == len(DURATION_BUCKETS_MS) + 1


def test_a_request_that_is_never_answered_is_counted_as_lost(harness: Harness, statistics: RequestStatistics) -> None:
    harness.create_topic("t")
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, partition_max_bytes=1000)
    topic_id = harness.cluster.image.topics["t"].topic_id
    topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
    client = harness.client()
    client.send(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics), 13)
    client.connection.drop_lost_client()
    counted = statistics.by_api[ApiKey.FETCH]
    assert (counted.lost, sum(counted.durations)) == (1, 0)


def test_a_response_by_an_interceptor_is_counted(harness: Harness, statistics: RequestStatistics) -> None:
    class Refusing(Interceptor):
        def before_request(self, call: Call) -> Message:
            return MetadataResponse(error_code=ErrorCode.NOT_CONTROLLER)

    harness.dispatcher.interceptors.append(Refusing())
    harness.request(METADATA, 13)
    assert statistics.by_api[ApiKey.METADATA].errors == {ErrorCode.NOT_CONTROLLER: 1}
