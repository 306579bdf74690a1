"""How much of a request's body is read: little for those who may not ask, and never without a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from minibroker.testing import Broker
from minibroker.testing.control.app import control_app
from minibroker.testing.control.limited_bodies import STRANGERS_BYTES


@pytest.fixture
def client() -> Iterator[TestClient]:
    with Broker() as broker:
        yield TestClient(control_app(broker, "secret"), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    ("authorization", "size_bytes", "status", "code"),
    [
        ("Bearer secret", STRANGERS_BYTES + 1, 422, "NOT_UNDERSTOOD"),
        ("Bearer secret", STRANGERS_BYTES * 3, 413, "REQUEST_ENTITY_TOO_LARGE"),
        ("Bearer other", STRANGERS_BYTES + 1, 401, "UNAUTHORIZED"),
    ],
)
def test_a_large_body_is_read_only_for_those_who_have_the_token(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, authorization: str, size_bytes: int, status: int, code: str
) -> None:
    monkeypatch.setattr("minibroker.testing.control.limited_bodies.MOST_BYTES", STRANGERS_BYTES * 2)
    headers = {"authorization": authorization, "content-type": "application/json"}
    answer = client.post("/v1/fill", content=b"?" * size_bytes, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
