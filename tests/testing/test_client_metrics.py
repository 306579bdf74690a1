"""The metrics that a real client pushes, as a test sees them: by the method, in the journal, and over HTTP's model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.testing import Broker
from tests.testing.support import settings

pytestmark = pytest.mark.usefixtures("leaves_sockets")
LATENCY = "org.apache.kafka.producer.node.request.latency.avg"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        yield broker


def produce(broker: Broker) -> Producer:
    producer = Producer(settings(broker, **{"client.id": "shop"}))
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    return producer


def test_librdkafka_pushes_requested_metrics(broker: Broker) -> None:
    broker.collect_client_metrics("org.apache.kafka.producer.node.", interval="100 ms")
    producer = produce(broker)
    pushes = broker.wait_for_requests("PushTelemetry", 2)
    found = broker.client_metrics("shop")
    assert {each.name for each in found} >= {LATENCY}
    assert all(each.name.startswith("org.apache.kafka.producer.node.") for each in found)
    assert all(each.attributes == {"node.id": "1"} for each in found)
    assert broker.client_metrics("other") == []
    assert {point.name for push in pushes for point in push.client_metrics} >= {LATENCY}
    assert any(metric["name"] == LATENCY for push in pushes for metric in push.as_json().get("client_metrics", []))
    del producer


def test_no_client_pushes_metrics_unless_requested(broker: Broker) -> None:
    produce(broker)
    assert broker.requests("GetTelemetrySubscriptions") == []
    assert broker.client_metrics() == []


def test_a_push_interval_that_kafka_rejects_is_rejected(broker: Broker) -> None:
    with pytest.raises(KafkaError) as raised:
        broker.collect_client_metrics(interval="50 ms")
    assert raised.value.code is ErrorCode.INVALID_REQUEST
