"""The service answers 201 when the order is written, and 503 when it is not."""

import pytest
from fastapi.testclient import TestClient
from shop import made_app


@pytest.fixture
def client(kafka):
    kafka.create_topic("orders", partitions=1)
    with TestClient(made_app(kafka.bootstrap_servers)) as client:
        yield client


def test_an_order_is_written_before_the_service_says_so(kafka, client):
    answer = client.post("/orders", json={"id": 7, "pieces": 3})
    assert (answer.status_code, answer.json()) == (201, {"offset": 0})
    assert [record.json for record in kafka.records("orders")] == [{"id": 7, "pieces": 3}]


def test_an_order_that_is_refused_is_not_confirmed(kafka, client):
    kafka.faults.add(api="Produce", topic="orders", error="TOPIC_AUTHORIZATION_FAILED")
    answer = client.post("/orders", json={"id": 8, "pieces": 1})
    assert (answer.status_code, answer.json()) == (503, {"detail": "TopicAuthorizationFailedError"})
    assert kafka.records("orders") == []
