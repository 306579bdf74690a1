"""Requests and answers, as a server passes them on, or as code makes them that asks an application without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote

JSON: Final = "application/json"
OLD_NAMES: Final = {413: "REQUEST_ENTITY_TOO_LARGE"}  # for which Python 3.13 has another
MOST_PARAMETERS: Final = 1000  # of a query

ReadBody = Callable[[int], Awaitable[bytes]]
WaitUntilLeft = Callable[[], Awaitable[None]]


class RequestRefused(Exception):
    """A request is not answered as it wants, but with a status and a line for people."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message, self.headers = status, message, headers or {}

    @property
    def name(self) -> str:
        """The status by its name."""
        return OLD_NAMES.get(self.status) or HTTPStatus(self.status).name


class InvalidRequest(RequestRefused):
    """A parameter or a body is not as it must be."""

    name = "NOT_UNDERSTOOD"

    def __init__(self, message: str) -> None:
        super().__init__(422, message)


@dataclass
class Request:
    """A request. The segments of its path are decoded one by one: a variable may contain a slash."""

    method: str
    segments: list[str]
    query_string: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # by their names in lower case
    body: bytes = b""
    rest: ReadBody | None = None  # reads the body, with a limit for its bytes, while a client may still send it
    left: WaitUntilLeft | None = None  # returns when the client is gone
    variables: dict[str, str] = field(default_factory=dict)  # the parts of the path with names

    @classmethod
    def make_request(
        cls, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Self:
        """Return a request of a path with its query, as a client writes it."""
        path, _, query = target.partition("?")
        return cls(method, split_path(path), query, headers or {}, body)

    @property
    def path(self) -> str:
        """The path, decoded."""
        return "/" + "/".join(self.segments)

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The parameters of the query. Raises ValueError if there are too many."""
        return parse_qs(self.query_string, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)

    async def read(self, max_bytes: int) -> bytes:
        """Return the body. Raises RequestRefused for a longer one, and for one that does not arrive."""
        if self.rest is not None:
            self.body, self.rest = await self.rest(max_bytes), None
        elif len(self.body) > max_bytes:
            raise make_too_large_error(max_bytes)
        return self.body


@dataclass(frozen=True)
class Answer:
    """An answer. Its body may come in pieces."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    kind: str = ""  # the media type
    headers: Mapping[str, str] = field(default_factory=dict)


def split_path(path: str) -> list[str]:
    """Return the decoded parts of a path; the last one is empty after a slash."""
    return [unquote(part) for part in path.split("/")[1:]]


def make_text_answer(
    text: str, status: int = 200, kind: str = "text/plain", headers: Mapping[str, str] | None = None
) -> Answer:
    """Return an answer with a text."""
    return Answer(text.encode(), status, f"{kind}; charset=utf-8", headers or {})


def make_json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with a value in JSON."""
    import msgspec  # which the registry does without

    return Answer(msgspec.json.encode(value), status, JSON, headers or {})


def make_redirection(path: str) -> Answer:
    """Return a redirection (307) to another path."""
    return Answer(status=307, headers={"location": path})


def make_too_large_error(max_bytes: int) -> RequestRefused:
    """Return the error for a body of more than `max_bytes`."""
    return RequestRefused(413, f"a request has no more than {max_bytes:,} bytes")
