"""Who may ask an HTTP server: the decision for one request. Whole servers are asked in `test_control`."""

from __future__ import annotations

import pytest
from fastapi import HTTPException, Request

from minibroker.testing.control.guard import Guard


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
def test_without_a_token_names_of_this_machine_are_let_in(host: str) -> None:
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
def test_pages_of_other_sites_are_not(host: str, origin: str) -> None:
    with pytest.raises(HTTPException, match="403"):
        Guard(None)(asked(host=host, origin=origin))
