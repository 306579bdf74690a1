"""Where reading begins and where a partition ends, told and asked by each client."""

from __future__ import annotations

import pytest

from tests.clients.confluent import Confluent
from tests.clients.interface import Client, Consumer, Record
from tests.running import RunningBroker

T = 1_600_000_000_000
# librdkafka asks for offsets on the connection that its fetch waits on, and answers come in the order of requests.
SHORT_MS = 10
RECORDS = [Record(b"k%d" % index, b"v%d" % index, timestamp_ms=T + 1000 * index) for index in range(10)]


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    """A topic with ten records, a second apart, in batches of three and seven."""
    with Confluent().producer(broker.bootstrap_servers) as producer:
        producer.send(topic, RECORDS[:3])
        producer.send(topic, RECORDS[3:])
    return topic


def offsets_read(consumer: Consumer, count: int) -> list[int]:
    reads = consumer.read(count)
    assert [read.record for read in reads] == [RECORDS[read.offset] for read in reads]
    return [read.offset for read in reads]


@pytest.mark.parametrize("start", [0, 2, 3, 5, 9])
def test_reading_starts_at_an_offset_even_within_a_batch(
    broker: RunningBroker, filled: str, client: Client, start: int
) -> None:
    with client.consumer(broker.bootstrap_servers, filled, offset=start) as consumer:
        assert offsets_read(consumer, 10 - start) == list(range(start, 10))


def test_a_consumer_can_seek_forward_and_back(broker: RunningBroker, filled: str, client: Client) -> None:
    with client.consumer(broker.bootstrap_servers, filled, wait_ms=SHORT_MS) as consumer:
        assert offsets_read(consumer, 4) == [0, 1, 2, 3]
        consumer.seek(8)
        assert offsets_read(consumer, 2) == [8, 9]
        consumer.seek(1)
        assert offsets_read(consumer, 3) == [1, 2, 3]


def test_earliest_and_latest_offsets_are_returned(broker: RunningBroker, filled: str, client: Client) -> None:
    with client.consumer(broker.bootstrap_servers, filled, wait_ms=SHORT_MS) as consumer:
        assert consumer.offsets() == (0, 10)


def test_an_offset_is_found_by_timestamp(broker: RunningBroker, filled: str, client: Client) -> None:
    asked = {1: 0, T: 0, T + 1: 1, T + 2000: 2, T + 2001: 3, T + 8999: 9, T + 9000: 9, T + 9001: None}
    with client.consumer(broker.bootstrap_servers, filled, wait_ms=SHORT_MS) as consumer:
        assert {time: consumer.offset_at(time) for time in asked} == asked


def test_an_offset_beyond_the_end_is_reset_by_the_client(
    broker: RunningBroker, filled: str, client: Client, complaints: list[str]
) -> None:
    complaints.append("(?i)out of range")
    with client.consumer(broker.bootstrap_servers, filled, offset=99) as consumer:
        assert offsets_read(consumer, 1) == [0]
