"""A request and its answer in the journal: bytes, decoded on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, cast

from minibroker.broker.configs.settings import get_broker_setting_declaration
from minibroker.broker.configs.settings_table import ConfigType
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class, get_response_class
from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.fields import list_declared_fields
from minibroker.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    find_response_version,
    get_request_header_version,
    get_response_header_version,
)
from minibroker.protocol.legible import make_legible
from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.protocol.otlp import DataPoint, MalformedMetrics, iterate_data_points
from minibroker.protocol.primitives import MalformedMessage, format_uuid
from minibroker.protocol.records.compression import MAX_UNCOMPRESSED_BYTES, decompress
from minibroker.protocol.response_errors import collect_error_codes
from minibroker.testing.seen.subjects import find_subjects

# Of these only the header is kept, as they contain passwords or the like.
SECRET: Final = (ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
CHANGES: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)  # of passwords and keys, too
TOKENS: Final = (  # with the secrets of delegation tokens
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
WITH_SECRETS: Final = SECRET + CHANGES + TOKENS
HIDDEN = "[hidden]"
SCRAM_SECRETS: Final = re.compile(rb"((?:^v|,s)=)[^,]+")  # in what a server says (RFC 5802)
SIZE_BYTES = 4
LARGE_BYTES: Final = 1 << 20  # of a frame: a copy of 90 MB takes 60 ms
START_BYTES = 8  # of a request: API key, version, correlation id
CORRELATION_ID_BYTES = 4
LINE_CHARACTERS = 900
UUID_CODE = "16s"
_KEYS: Final = frozenset(ApiKey)
_API_NAMES: Final = {get_api_name(key).lower(): key for key in ApiKey}


class Exchange:
    """A request that the broker has read, and its outcome.

    `outcome` is "open" while it waits, "answered", "unanswered" (acks=0), or "lost" (the connection ended). Times are
    in ms; `started_ms` is the broker's wall clock. `request_bytes` and `answer_bytes` are whole frames as on the wire,
    without the size. `user` is who has logged in on the connection, None if nobody has; `mechanism` is how, if by SASL.
    `refusals` are the broker's messages for the errors in the answer. `ended_before` is the number of the next request
    that was read after the exchange had ended, which its client may have sent because of the answer.
    """

    client_id: str | None = None
    node_id = -1
    connection = ""
    software = ""
    user: str | None = None
    mechanism: str | None = None
    started_ms = 0
    duration_ms: float | None = None
    ended_before: int | None = None
    outcome = "open"
    answer_bytes = b""
    errors: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    is_kept = True

    def __init__(self, number: int, api_key: ApiKey, version: int, correlation_id: int, frame: bytes) -> None:
        self.number = number
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.request_bytes = frame

    @property
    def api(self) -> str:
        """Return the API's name in Kafka's spelling: "Produce"; "API 999" if there is none."""
        return get_api_name(self.api_key) if self.api_key in _KEYS else f"API {self.api_key}"

    @property
    def size_bytes(self) -> int:
        """Return how much of the journal's memory the exchange takes."""
        return len(self.request_bytes) + len(self.answer_bytes)

    @property
    def request(self) -> Any:
        """Return the decoded request, a message of `minibroker.protocol.messages`; None if it cannot be read here.

        It is not kept: it may take many times the memory of its bytes, which the journal bounds.
        """
        return read_request(self.api_key, self.version, self.request_bytes)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Return the groups that the request names."""
        request = self.request
        return frozenset() if request is None else frozenset(find_subjects(request, lambda _: None).groups)

    @property
    def answer(self) -> Any:
        """Return the decoded answer; None while there is none, and for one that a fault made unreadable."""
        if not self.answer_bytes or not _is_declared(self.api_key, self.version):
            return None
        try:
            return decode_answer(self.api_key, self.version, self.answer_bytes)
        except MalformedMessage:
            return None

    @property
    def client_metrics(self) -> list[DataPoint]:
        """Return the numbers that a PushTelemetry has; of other requests, and of bytes that are no OTLP, none."""
        request = self.request if self.api_key is ApiKey.PUSH_TELEMETRY else None
        if request is None:
            return []
        try:
            data = bytes(decompress(request.compression_type, request.metrics, MAX_UNCOMPRESSED_BYTES))
            return [point for point in iterate_data_points(data) if point is not None]
        except (KafkaError, MalformedMetrics):
            return []

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, without empty ones."""
        values = {
            "number": self.number,
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "node": self.node_id,
            "connection": self.connection,
            "user": self.user,
            "mechanism": self.mechanism,
            "correlation_id": self.correlation_id,
            "started_ms": self.started_ms,
            "duration_ms": self.duration_ms,
            "ended_before": self.ended_before,
            "outcome": self.outcome,
            "errors": list(self.errors),
            "refusals": list(self.refusals),
            "faults": list(self.faults),
            "request": convert_to_plain_values(self.request),
            "client_metrics": [point._asdict() for point in self.client_metrics],
            "answer": convert_to_plain_values(self.answer),
            "request_hex": self.request_bytes.hex(),
            "answer_hex": self.answer_bytes.hex(),
        }
        return {name: value for name, value in values.items() if value not in (None, [], "")}

    def __str__(self) -> str:
        """Describe the exchange in a line."""
        took = "" if self.duration_ms is None else f" {self.duration_ms:.1f} ms"
        said = "".join(f", {words}" for words in (*self.faults, *(self.refusals or self.errors)))
        who = "None" if self.client_id is None else make_legible(self.client_id)
        has_left = self.outcome == "lost" and not self.faults  # else, a fault has closed the connection
        outcome = "not answered, as the client has left" if has_left else self.outcome
        line = f"#{self.number} {self.connection} {who}: {self.api} {self.version} {outcome}{took}{said}"
        return make_legible(line, LINE_CHARACTERS)

    __repr__ = __str__


def copy_frame(frame: memoryview) -> bytes:
    """Return the bytes of a frame: a copy, unless they are many, and nobody changes them any more."""
    return cast(bytes, frame) if frame.readonly and len(frame) > LARGE_BYTES else bytes(frame)


def copy_request_without_secrets(api_key: ApiKey, version: int, frame: memoryview) -> bytes:
    """Return the frame of a request for the journal: without the secrets in it."""
    if api_key not in WITH_SECRETS:
        return copy_frame(frame)
    hides = _hide_passwords if api_key in CHANGES else _hide_tokens if api_key in TOKENS else None
    if not _is_declared(api_key, version):
        return bytes(frame[:START_BYTES])
    _, position = RequestHeader.decode_from(frame, get_request_header_version(api_key, version))
    request: Any = get_request_class(api_key)()
    if hides is not None:
        with suppress(MalformedMessage):
            request, _ = get_request_class(api_key).decode_from(frame, version, position)
            if not hides(request):
                return bytes(frame)
    body: bytes = request.encode(version)
    return bytes(frame[:position]) + body


def copy_answer_without_secrets(api_key: ApiKey, version: int, frame: bytes) -> bytes:
    """Return the frame of an answer for the journal: without the secrets in it."""
    if api_key not in WITH_SECRETS or not frame:
        return frame
    hides = _hide_tokens if api_key in TOKENS else _hide_scram if api_key == ApiKey.SASL_AUTHENTICATE else None
    if hides is None:
        return frame
    frame = bytes(frame)
    if not _is_declared(api_key, version):
        return frame[:CORRELATION_ID_BYTES]
    _, position = ResponseHeader.decode_from(frame, get_response_header_version(api_key, version))
    try:
        answer = get_response_class(api_key).decode_from(frame, version, position)[0]
    except MalformedMessage:  # as a fault has made it
        return frame[:position]
    return frame[:position] + bytes(answer.encode(version)) if hides(answer) else frame


def read_request(api_key: int, version: int, frame: bytes) -> Any:
    """Return the message of a request, which begins with its header; None if it cannot be read here."""
    if not _is_declared(api_key, version):
        return None
    key = ApiKey(api_key)
    try:
        _, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
        return get_request_class(key).decode_from(frame, version, position)[0]
    except MalformedMessage:
        return None


def _is_declared(api_key: int, version: int) -> bool:
    """Return whether requests of this version can be read here; a proxy passes others, too."""
    return api_key in _KEYS and version in get_request_class(api_key).versions


def _hide_tokens(message: Any) -> bool:
    """Hide the HMACs in a request or an answer; return whether there are any."""
    found = [part for part in (message, *getattr(message, "tokens", ())) if getattr(part, "hmac", b"")]
    for part in found:
        part.hmac = HIDDEN.encode()
    return bool(found)


def _hide_scram(answer: Any) -> bool:
    """Hide the salt and the server's signature, by which passwords can be tried; return whether there are any."""
    answer.auth_bytes, count = SCRAM_SECRETS.subn(rb"\1[hidden]", bytes(answer.auth_bytes))
    return bool(count)


def _hide_passwords(request: Any) -> bool:
    """Hide the new values of settings that are never shown, as Kafka does; return whether there are any."""
    changed = [config for resource in request.resources for config in resource.configs if config.value]
    passwords = [
        config for config in changed if get_broker_setting_declaration(config.name).type is ConfigType.PASSWORD
    ]
    for config in passwords:
        config.value = HIDDEN
    return bool(passwords)


def find_api_key(name: str) -> ApiKey:
    """Return the API with a name in Kafka's spelling, in any case. Raises ValueError."""
    if not isinstance(name, str) or name.lower() not in _API_NAMES:
        raise ValueError(f"{name!r} is not an API of Kafka, such as Produce or OffsetCommit")
    return _API_NAMES[name.lower()]


def list_error_names(response: Message) -> tuple[str, ...]:
    """Return the names of the errors in an answer, each once, in their order."""
    codes = [*collect_error_codes(response), *_iterate_acknowledge_codes(response)]
    return tuple(dict.fromkeys(_get_error_name(code) for code in codes))


def _iterate_acknowledge_codes(response: Message) -> Iterator[int]:
    """Yield the errors of acknowledgements in the answer to a ShareFetch."""
    for topic in response.responses if isinstance(response, ShareFetchResponse) else ():
        yield from (each.acknowledge_error_code for each in topic.partitions if each.acknowledge_error_code)


def _get_error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def decode_answer(api_key: ApiKey, version: int, frame: bytes) -> Message:
    """Decode the answer in a frame without its size. Raises MalformedMessage."""
    _, position = ResponseHeader.decode_from(frame, get_response_header_version(api_key, version))
    return get_response_class(api_key).decode_from(
        frame, find_response_version(api_key, version, frame, position), position
    )[0]


def convert_to_plain_values(value: Any) -> Any:
    """Return a message, or part of one, as dictionaries, lists, texts and numbers, named as in its declaration."""
    if isinstance(value, Struct):
        return {
            field.name: _convert_field_value(getattr(value, field.name), field.kind.code)
            for field in list_declared_fields(type(value))
        }
    if isinstance(value, list):
        return [convert_to_plain_values(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return format_bytes(bytes(value))
    return value


def _convert_field_value(value: Any, code: str) -> Any:
    return format_uuid(value) if code == UUID_CODE and value is not None else convert_to_plain_values(value)


def format_bytes(data: bytes) -> str:
    """Return the bytes as text if they are UTF-8, or as "0x" and hexadecimal digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
