"""What requests to the HTTP control have that methods of Python have not, or not so."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self, get_args, get_origin, get_type_hints

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from minibroker.broker.client_telemetry import ClientMetric
from minibroker.testing.faults.rules import WORDS
from minibroker.testing.seen import log_reading
from minibroker.testing.seen.exchange import Exchange, format_bytes
from minibroker.testing.verbs import dead_letter_records, share_deliveries, share_verbs
from minibroker.testing.verbs.group_verbs import StreamsGroupState, StreamsMemberState
from minibroker.testing.verbs.record_verbs import Text
from minibroker.testing.verbs.token_verbs import Token
from minibroker.web.reading import TimeSpan

NOTHING: Final[Mapping[str, Any]] = {}
NOT_NEGATIVE: Final = Meta(ge=0)
POSITIVE: Final = Meta(ge=1)
PATH: Final = "Of requests, with `*` for anything: /subjects/*/versions."
# Limits and descriptions of parameters by their names.
KINDS: Final = {
    "committed": Meta(description="Do not count records of open and aborted transactions."),
    "copies": Meta(description="Whether dead letters have keys and values."),
    "count": NOT_NEGATIVE,
    "deliveries": Meta(ge=1, description="The least number of deliveries of each record."),
    "hits": NOT_NEGATIVE,
    "members": Meta(ge=0, description="How many; by default any number."),
    "mechanism": Meta(description="SCRAM-SHA-512 by default."),
    "offset": NOT_NEGATIVE,
    "partition": NOT_NEGATIVE,
    "path": Meta(description=PATH),
    "raw": Meta(description="Include each request and answer, decoded and in hexadecimal digits."),
    "trusted": Meta(description="false: signed by an unknown key."),
}


class Shown(Struct, kw_only=True):
    """The base of what is shown of objects of the test kit."""

    @classmethod
    def make_from(cls, original: Any, **extra_fields: Any) -> Self:
        """Return an instance with an object's fields of the same names, and `extra_fields`."""
        names = [name for name in cls.__struct_fields__ if name not in extra_fields]
        return cls(**{name: _convert_to_json_types(getattr(original, name)) for name in names}, **extra_fields)


class ShownRecord(Shown):
    """The base of records. `key_hex` and `value_hex` are exact; `key` and `value` are for people."""

    @classmethod
    def make_from(cls, original: Any, **extra_fields: Any) -> Self:
        """Return a record with its bytes as texts."""
        key, value = _decode_text(original.key), _decode_text(original.value)
        headers = [(name, _decode_text(content)) for name, content in original.headers]
        exact = {"key_hex": _encode_hex(original.key), "value_hex": _encode_hex(original.value)}
        return super().make_from(original, key=key, value=value, headers=headers, **exact)


def make_shown_type(name: str, shown_class: Any, base: type = Shown, **extra_fields: Any) -> Any:
    """Return a new subclass of `base` that has the fields of `shown_class`, and `extra_fields`."""
    kinds = get_type_hints(shown_class) | extra_fields
    said = {"__doc__": shown_class.__doc__}
    return defstruct(name, list(kinds.items()), bases=(base,), namespace=said, kw_only=True)


TEXTS: dict[str, Any] = dict.fromkeys(("key", "value", "key_hex", "value_hex"), str | None)
TEXTS["headers"] = list[tuple[str, str | None]]
Record = make_shown_type("Record", log_reading.Record, ShownRecord, **TEXTS)
DeliveredRecord = make_shown_type("DeliveredRecord", share_verbs.DeliveredRecord, ShownRecord, **TEXTS)
DeadLetter = make_shown_type("DeadLetter", dead_letter_records.DeadLetter, ShownRecord, **TEXTS)
DelegationToken = make_shown_type("DelegationToken", Token)
Delivery = make_shown_type("Delivery", share_deliveries.Delivery)
Metric = make_shown_type("Metric", ClientMetric)
StreamsMember = make_shown_type("StreamsMember", StreamsMemberState)
StreamsGroup = make_shown_type("StreamsGroup", StreamsGroupState, members=list[StreamsMember])  # type: ignore[valid-type]


class BrokerState(Struct):
    """The broker's address; while it is up also the ends of partitions by topic, and the groups by id.

    A partition without a log has null.
    """

    bootstrap_servers: str
    nodes: int
    running: bool
    topics: dict[str, list[int | None]] | UnsetType = UNSET
    groups: dict[str, GroupState] | UnsetType = UNSET


class GroupState(Struct):
    """A group: its type, state, the ids of its members, and its committed offsets by TOPIC-PARTITION."""

    type: str
    state: str
    members: list[str]
    committed: dict[str, int]


class ClockState(Struct):
    """The broker's time."""

    now_ms: int
    frozen: bool


class JournalState(Struct):
    """Whether the journal is on, how many requests it has, and how many it dropped for newer ones."""

    on: bool
    kept: int
    dropped: int


class SeenRequest(Shown):
    """A request of the journal, and its outcome. `raw` has request and answer, decoded and in hexadecimal digits."""

    number: int
    api: str
    version: int
    client_id: str | None
    node: int
    connection: str
    user: str | None
    mechanism: str | None
    outcome: str
    duration_ms: float | None
    errors: list[str]
    refusals: list[str]
    faults: list[str]
    raw: dict[str, Any] | None = None


def show_request(exchange: Exchange, raw: bool = False) -> SeenRequest:
    """Return a request of the journal in the form of the HTTP control."""
    return SeenRequest.make_from(exchange, node=exchange.node_id, raw=exchange.as_json() if raw else None)


class FaultState(Shown):
    """A fault, and how often it matched and struck."""

    number: int
    rule: str
    matches: int
    hits: int

    @classmethod
    def make_from(cls, original: Any, **extra_fields: Any) -> Self:
        """Return a fault with its rule in words."""
        return super().make_from(original, rule=str(original.rule))


def _convert_to_json_types(value: Any) -> Any:
    """Return a value with NamedTuples as dictionaries; in JSON they would be lists."""
    if isinstance(value, list):
        return [_convert_to_json_types(each) for each in value]
    return value._asdict() if hasattr(value, "_asdict") else value


def _decode_text(data: bytes | None) -> str | None:
    return None if data is None else format_bytes(data)


def _encode_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """The base of bodies of requests. Unknown fields are rejected."""


class NewRecords(RequestBody):
    """Records to append as one batch, all with the same key, headers and timestamp. Bytes are in hexadecimal digits."""

    values: list[str | None] = []
    values_hex: Annotated[list[str | None], Meta(description="Instead of `values`.")] = []
    key: str | None = None
    key_hex: Annotated[str | None, Meta(description="Instead of `key`.")] = None
    partition: Annotated[int, NOT_NEGATIVE] = 0
    headers: dict[str, str | None] = {}
    timestamp_ms: Annotated[
        Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None, Meta(description="The broker's time by default.")
    ] = None

    @property
    def all_values(self) -> list[Text]:
        """Return `values` or `values_hex`. Raises ValueError unless exactly one is given."""
        if bool(self.values) is bool(self.values_hex):
            raise ValueError("give either values or values_hex")
        return [*self.values] or [_decode_hex(each) for each in self.values_hex]

    @property
    def any_key(self) -> Text:
        """Return `key` or `key_hex`. Raises ValueError if both are given."""
        if self.key is not None and self.key_hex is not None:
            raise ValueError("give either key or key_hex")
        return self.key if self.key_hex is None else _decode_hex(self.key_hex)


TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
FAULT: Final = {"$ref": "#/components/schemas/NewFault"}


def make_fault_schema() -> dict[str, Any]:
    """Return the schema of a fault: the words of `Rule` that JSON can have."""
    words: dict[str, dict[str, Any]] = {}
    for name, (kinds, word) in WORDS.items():
        schemas = [schema for schema in map(_make_json_schema, kinds) if schema is not None]
        if _takes_duration_as_value(name):
            schemas = [{"type": "string", "examples": ["10 s"]}]
        if schemas:
            words[name] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
            limits = {"minimum": word.minimum, "maximum": word.maximum}
            words[name] |= {limit: value for limit, value in limits.items() if math.isfinite(value)}
            words[name]["description"] = word.meaning
    meaning = "A fault: which requests it applies to, what it does to them, and how often."
    example = {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    shape = {"type": "object", "properties": words, "additionalProperties": False}
    return shape | {"description": meaning, "examples": [example]}


def _takes_duration_as_value(word: str) -> bool:
    """Return whether this word of a fault's rule takes a duration."""
    return word in WORDS and timedelta in WORDS[word][0]


def _make_json_schema(kind: Any) -> dict[str, Any] | None:
    """Return the schema of a type, or None for one that JSON does not have."""
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is Collection:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": TYPES[kind]} if kind in TYPES else None


class NewFaults(list[dict[str, Any]]):
    """Faults to add: the words of `Rule` that JSON can have, of one fault or of a list. Durations have units."""

    schema: Final = {"anyOf": [FAULT, {"type": "array", "items": FAULT}]}

    @classmethod
    def read(cls, value: Any) -> NewFaults:
        """Return the faults in a JSON value, an object or a list of them. Raises ValueError."""
        asked = value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in asked):
            raise ValueError("must be an object with the words of a fault, or a list of them")
        return cls({name: _add_unit_of_duration(name, each) for name, each in words.items()} for words in asked)


def _add_unit_of_duration(name: str, value: Any) -> Any:
    """Return a word's value; a bare number for a duration gets its unit, ms."""
    is_bare = isinstance(value, int | float) and not isinstance(value, bool)
    return TimeSpan.read(value) if is_bare and _takes_duration_as_value(name) else value


def _decode_hex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)
