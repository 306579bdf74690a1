"""Who may ask an HTTP server, and how much of a request is read. Whole servers are asked in `test_control`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.testing import Broker
from minibroker.testing.control.app import make_control_app
from minibroker.web.guard import RequestGuard
from minibroker.web.messages import Request, RequestRefused
from minibroker.web.routes import MOST_BYTES
from tests.asking_applications import Asking


def asked(**headers: str) -> Request:
    """A request with these headers, as a server passes them on."""
    as_passed = {name: value.encode().decode("latin-1") for name, value in headers.items()}
    return Request.make_request("GET", "/", as_passed)


@pytest.mark.parametrize("token", ["secret", "g\u00e9heim", "\u79d8\u5bc6"])
def test_a_token_can_have_any_characters(token: str) -> None:
    guard = RequestGuard(token)
    guard(asked(authorization=f"Bearer {token}"))
    for wrong in ("", "Bearer", f"Bearer {token} ", f"Basic {token}"):
        with pytest.raises(RequestRefused, match="401"):
            guard(asked(authorization=wrong))


@pytest.mark.parametrize("host", ["localhost:8082", "127.0.0.1", "[::1]:1"])
def test_local_host_names_are_accepted_without_a_token(host: str) -> None:
    RequestGuard(None)(asked(host=host))
    RequestGuard(None)(asked(host=host, origin=f"http://{host}"))


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
    with pytest.raises(RequestRefused, match="403"):
        RequestGuard(None)(asked(host=host, origin=origin))


@pytest.fixture
def client() -> Iterator[Asking]:
    with Broker() as broker:
        yield Asking(make_control_app(broker, "secret"))


@pytest.mark.parametrize(
    ("authorization", "size_bytes", "status", "code"),
    [
        ("Bearer secret", MOST_BYTES, 422, "NOT_UNDERSTOOD"),
        ("Bearer secret", MOST_BYTES + 1, 413, "REQUEST_ENTITY_TOO_LARGE"),
        ("Bearer other", MOST_BYTES + 1, 401, "UNAUTHORIZED"),
    ],
)
def test_a_large_body_is_read_only_with_the_token(
    client: Asking, authorization: str, size_bytes: int, status: int, code: str
) -> None:
    answer = client.post("/v1/fill", b"?" * size_bytes, authorization=authorization)
    assert (answer.status, answer.json["error"]) == (status, code)
