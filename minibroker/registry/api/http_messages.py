"""Requests and answers of the registry's HTTP API."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from minibroker.registry.formats.java_json import format_json
from minibroker.registry.state.registry_errors import RegistryError
from minibroker.web import messages

V1: Final = "application/vnd.schemaregistry.v1+json"
TYPES: Final = (V1, "application/vnd.schemaregistry+json", "application/json")  # the preferred one first
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")  # which is no text without its other half
CONSUMED: Final = (*TYPES, "application/octet-stream")


LARGE_BYTES: Final = 64 << 10  # of a body: what is in less takes no time
MOST_VALUES: Final = 20_000  # of a large body; a schema is one value, a text


@dataclass
class Request(messages.Request):
    """A request, of whoever has logged in."""

    user: str | None = None

    def get_query_text(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.query.get(name, [default])[0]

    def get_query_flag(self, name: str) -> bool:
        """Return whether a parameter of the query is "true"."""
        return self.get_query_text(name).lower() == "true"

    def get_query_number(self, name: str, default: int) -> int:
        """Return a number in the query. Raises RegistryError(404) for any other text, as Confluent does."""
        try:
            return int(self.get_query_text(name, str(default)))
        except ValueError:
            raise RegistryError(404, "HTTP 404 Not Found") from None

    def parse_body(self) -> dict[str, Any]:
        """Return the body, an object. Raises RegistryError."""
        kind = self.headers.get("content-type", V1).partition(";")[0].strip().lower()
        if kind not in CONSUMED:
            raise RegistryError(415, "HTTP 415 Unsupported Media Type")
        if _has_too_many_values(self.body):
            raise RegistryError(422, f"The request has more than {MOST_VALUES:,} values")
        try:
            document = json.loads(self.body) if self.body.strip() else None
            if SURROGATE.search(self.body):
                json.dumps(document, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"The request is no JSON: {error}") from None
        if not isinstance(document, dict):
            raise RegistryError(422, "The request must be an object")
        return document

    @property
    def answer_type(self) -> str:
        """The content type that the client wants. Raises RegistryError if it accepts none of the registry's."""
        accepted = [part.partition(";")[0].strip() for part in self.headers.get("accept", "*/*").split(",")]
        for kind in TYPES:
            if kind in accepted or "*/*" in accepted or "application/*" in accepted:
                return kind
        raise RegistryError(406, "HTTP 406 Not Acceptable")


@dataclass(frozen=True)
class Answer:
    """An answer: JSON, or with `raw` a text that is JSON already."""

    body: Any = None
    status: int = 200
    raw: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @cached_property
    def data(self) -> bytes:
        """The body as it is sent."""
        return (format_json(self.body) if self.raw is None else self.raw).encode()


def _has_too_many_values(body: bytes) -> bool:
    """Return whether JSON has so many values that it takes long to read, and to look at. Texts are not looked into."""
    if len(body) <= LARGE_BYTES:
        return False
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if bare.count(b'"') > 4 * MOST_VALUES:
        return True
    outside = b"".join(bare.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > MOST_VALUES


def make_error_answer(error: RegistryError) -> Answer:
    """Return the answer for an error."""
    return Answer({"error_code": error.code, "message": error.message}, error.status)


def convert_request(request: messages.Request) -> Request:
    """Return a request as the registry reads it: slashes at its end, or next to each other, count for nothing."""
    segments = list(filter(None, request.segments))
    return Request(
        request.method, segments, request.query_string, request.headers, request.body, request.rest, request.left
    )
