"""Who may ask an HTTP server, and how much of a request is read. Whole servers are asked in `test_control`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import HTTPException, Request
from fastapi.testclient import TestClient

from minibroker.testing import Broker
from minibroker.testing.control.app import control_app
from minibroker.testing.control.guard import STRANGERS_BYTES, Guard


def asked(**headers: str) -> Request:
    """A request with these headers, as a server passes them on."""
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "path": "/", "query_string": b"", "server": ("127.0.0.1", 1), "headers": pairs})


@pytest.mark.parametrize("token", ["secret", "g\u00e9heim", "\u79d8\u5bc6"])
def test_a_token_may_have_any_characters(token: str) -> None:
    guard = Guard(token)
    guard(asked(authorization=f"Bearer {token}"))
    for wrong in ("", "Bearer", f"Bearer {token} ", f"Basic {token}"):
        with pytest.raises(HTTPException, match="401"):
            guard(asked(authorization=wrong))


@pytest.mark.parametrize("host", ["localhost:8082", "127.0.0.1", "[::1]:1"])
def test_local_host_names_are_accepted_without_a_token(host: str) -> None:
    Guard(None)(asked(host=host))
    Guard(None)(asked(host=host, origin=f"http://{host}"))


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example:8082", "http://evil.example:8082"),
        ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example"),
        ("localhost:8082", "http://evil.example"),
        ("localhost:8082", "http://localhost:8083"),
        ("localhost:8082", "null"),
    ],
)
def test_pages_of_other_sites_are_rejected(host: str, origin: str) -> None:
    with pytest.raises(HTTPException, match="403"):
        Guard(None)(asked(host=host, origin=origin))


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
def test_a_large_body_is_read_only_with_the_token(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, authorization: str, size_bytes: int, status: int, code: str
) -> None:
    monkeypatch.setattr("minibroker.testing.control.guard.MOST_BYTES", STRANGERS_BYTES * 2)
    headers = {"authorization": authorization, "content-type": "application/json"}
    answer = client.post("/v1/fill", content=b"?" * size_bytes, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
