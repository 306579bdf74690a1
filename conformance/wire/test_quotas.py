"""Clients over their quotas: what Apache Kafka 4.4 answers, and for about how long it lets them wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from conformance.conftest import Broker
from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import asked, create_request, fetch_request, produce_request, repeated, topic
from conformance.wire.test_security import alter_quotas, quotas
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def sized(size_bytes: int) -> bytes:
    """A batch of one record with a value of this size."""
    return batch([bytes(size_bytes)], timestamp=1_700_000_000_000)


@pytest.fixture
def client_id(new_name: Callable[[], str]) -> str:
    return f"client-{new_name()}"


@pytest.fixture
def limited(broker: Broker, client_id: str) -> Iterator[Connection]:
    """A connection of the client that the test's quotas are for."""
    with Connection(broker.bootstrap_servers, client_id) as opened:
        yield opened


def limit(connection: Connection, client_id: str, key: str, value: float) -> None:
    """Set a quota, and wait until the broker knows it."""
    assert alter_quotas(connection, 1, [("client-id", client_id)], {key: value}) == (0, None)
    expected = {(("client-id", client_id),): {key: value}}
    assert repeated(lambda: quotas(connection, 1, ("client-id", 0, client_id)), lambda seen: seen == expected)
    time.sleep(0.5)  # Kafka tells it before it holds anybody to it


def waited_ms(connection: Connection) -> float:
    """For how long the next request has to wait."""
    begun = time.monotonic()
    connection.ask(ApiVersionsRequest(), 0)
    return 1000 * (time.monotonic() - begun)


def test_a_producer_over_its_quota_is_throttled_after_its_response(
    connection: Connection, limited: Connection, client_id: str, name: str
) -> None:
    limit(connection, client_id, "producer_byte_rate", 1000.0)
    begun = time.monotonic()
    answer = limited.ask(produce_request(name, (0, sized(12_000))), 9)
    assert time.monotonic() - begun < 1
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert 2000 <= answer.throttle_time_ms <= 2300
    assert answer.throttle_time_ms - 300 < waited_ms(limited) < answer.throttle_time_ms + 1000


def test_a_consumer_over_its_quota_gets_an_empty_response(
    connection: Connection, limited: Connection, client_id: str, name: str
) -> None:
    connection.ask(produce_request(name, (0, sized(12_000))), 9)
    limit(connection, client_id, "consumer_byte_rate", 1000.0)
    answer = limited.ask(fetch_request({name: [asked()]}, max_wait_ms=0), 12)
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.NONE, 0, [])
    assert 2000 <= answer.throttle_time_ms <= 2300
    assert answer.throttle_time_ms - 300 < waited_ms(limited) < answer.throttle_time_ms + 1000


def test_the_mutation_quota_rejects_requests_of_clients_that_support_it(
    connection: Connection, limited: Connection, client_id: str, new_name: Callable[[], str]
) -> None:
    limit(connection, client_id, "controller_mutation_rate", 1.0)
    names = [new_name() for _ in range(3)]
    created = limited.ask(create_request(topic(names[0], 14)), 7)
    assert (created.topics[0].error_code, created.throttle_time_ms) == (ErrorCode.NONE, 0)
    refused = limited.ask(create_request(topic(names[1], 1)), 7)
    (one,) = refused.topics
    assert (one.error_code, one.error_message) == (EXCEEDED, None)
    assert 2000 <= refused.throttle_time_ms <= 3000
    assert refused.throttle_time_ms - 300 < waited_ms(limited) < refused.throttle_time_ms + 1000
    old = limited.ask(create_request(topic(names[2], 4)), 5)
    assert old.topics[0].error_code == ErrorCode.NONE
    assert 2000 <= old.throttle_time_ms <= 4000
    deleted = limited.ask(DeleteTopicsRequest(topic_names=[names[2]], timeout_ms=10_000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE


def test_a_client_over_its_request_quota_is_throttled_for_a_second(
    connection: Connection, limited: Connection, client_id: str, new_topic: NewTopic
) -> None:
    limit(connection, client_id, "request_percentage", 0.0001)
    throttled = [limited.ask(ApiVersionsRequest(), 2).throttle_time_ms for _ in range(2)]
    assert throttled[-1] == 1000


def test_a_consumer_over_its_request_quota_gets_an_empty_response(
    connection: Connection, limited: Connection, client_id: str, name: str
) -> None:
    connection.ask(produce_request(name, (0, sized(1000))), 9)
    limit(connection, client_id, "request_percentage", 0.0001)
    for _ in range(2):
        answer = limited.ask(fetch_request({name: [asked()]}, max_wait_ms=0), 12)
    assert (answer.error_code, answer.responses, answer.throttle_time_ms) == (ErrorCode.NONE, [], 1000)
