"""One request and its answer, as the journal keeps them: bytes at first, decoded when somebody looks.

Which are kept, and for how long, is in `journal`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from minibroker.protocol.apis import ApiKey, api_name, request_class, response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from minibroker.protocol.legible import legible
from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.response_errors import error_codes
from minibroker.testing.plain import plain

SIZE_BYTES = 4
LINE_CHARACTERS = 900
_API_NAMES: Final = {api_name(key).lower(): key for key in ApiKey}


class Exchange:
    """A request that the broker has read, and what became of it.

    `outcome` is "open" while it waits, "answered", "unanswered" (acks=0), or "lost" (its client went away or was cut
    off). Times are in ms; `started_ms` is the broker's wall clock. `request_bytes` and `answer_bytes` are whole frames,
    as they went over the wire, without the size. `refusals` are the broker's own words for the errors that it answered.
    """

    def __init__(self, number: int, api_key: ApiKey, version: int, correlation_id: int, frame: bytes) -> None:
        self.number = number
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id: str | None = None
        self.node_id = -1
        self.connection = ""
        self.software = ""
        self.started_ms = 0
        self.duration_ms: float | None = None
        self.outcome = "open"
        self.request_bytes = frame
        self.answer_bytes = b""
        self.errors: tuple[str, ...] = ()
        self.refusals: tuple[str, ...] = ()
        self.faults: tuple[str, ...] = ()
        self.is_kept = True

    @property
    def api(self) -> str:
        """The API's name, as Kafka writes it: "Produce"."""
        return api_name(self.api_key)

    @property
    def size_bytes(self) -> int:
        """Return the bytes that it takes of the journal's memory."""
        return len(self.request_bytes) + len(self.answer_bytes)

    @cached_property
    def request(self) -> Any:
        """The decoded request, a message of `minibroker.protocol.messages`."""
        _, position = RequestHeader.decode_from(self.request_bytes, request_header_version(self.api_key, self.version))
        return request_class(self.api_key).decode_from(self.request_bytes, self.version, position)[0]

    @property
    def answer(self) -> Any:
        """The decoded answer. None while there is none, and where it was damaged so that it cannot be read."""
        if not self.answer_bytes:
            return None
        try:
            return decoded_answer(self.api_key, self.version, self.answer_bytes)
        except MalformedMessage:
            return None

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values; what was never there is left out."""
        told = {
            "number": self.number,
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "node": self.node_id,
            "connection": self.connection,
            "correlation_id": self.correlation_id,
            "started_ms": self.started_ms,
            "duration_ms": self.duration_ms,
            "outcome": self.outcome,
            "errors": list(self.errors),
            "refusals": list(self.refusals),
            "faults": list(self.faults),
            "request": plain(self.request),
            "answer": plain(self.answer),
            "request_hex": self.request_bytes.hex(),
            "answer_hex": self.answer_bytes.hex(),
        }
        return {name: value for name, value in told.items() if value not in (None, [], "")}

    def __str__(self) -> str:
        """One line for people, whatever the client's names are."""
        took = "" if self.duration_ms is None else f" {self.duration_ms:.1f} ms"
        said = "".join(f", {words}" for words in (*self.faults, *(self.refusals or self.errors)))
        who = "None" if self.client_id is None else legible(self.client_id)
        line = f"#{self.number} {self.connection} {who}: {self.api} {self.version} {self.outcome}{took}{said}"
        return legible(line, LINE_CHARACTERS)

    __repr__ = __str__


def api_key_of(name: str) -> ApiKey:
    """The API of a name as Kafka writes it, "Produce", in capitals or not. Raises ValueError."""
    if not isinstance(name, str) or name.lower() not in _API_NAMES:
        raise ValueError(f"{name!r} is no API; one is named as in Kafka, as Produce or OffsetCommit")
    return _API_NAMES[name.lower()]


def names_of(response: Message) -> tuple[str, ...]:
    """The names of the errors in an answer, each once, in their order."""
    return tuple(dict.fromkeys(_name(code) for code in error_codes(response)))


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def decoded_answer(api_key: ApiKey, version: int, frame: bytes) -> Message:
    """The answer in a frame without its size. Raises MalformedMessage."""
    _, position = ResponseHeader.decode_from(frame, response_header_version(api_key, version))
    return response_class(api_key).decode_from(frame, version, position)[0]
