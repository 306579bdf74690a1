"""The requests and answers of the HTTP control, with the names that they have in Python."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from minibroker.testing.exchange import Exchange, text_of
from minibroker.testing.faults.rules import WORDS
from minibroker.testing.group_verbs import Held
from minibroker.testing.record_verbs import SeenRecord, Text
from minibroker.testing.waiting import DEFAULT_SILENCE, DEFAULT_TIMEOUT

DURATION = 'A number of milliseconds, or a text such as "7 days", "1.5 s", "200 ms".'
Span = str | float


class Asked(BaseModel):
    """The base of all request bodies. Unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True)  # so that true is not 1


class Query(BaseModel):
    """The base of all query strings. Unknown parameters are rejected."""

    model_config = ConfigDict(extra="forbid")


class NewTopic(Asked):
    """A topic to create."""

    name: str
    partitions: int | None = Field(default=None, ge=1, description="The broker's num.partitions by default.")
    config: dict[str, Any] = Field(default_factory=dict, description="By Kafka's names, such as retention.ms.")


class NewRecords(Asked):
    """Records to append as one batch, all with the same key, headers and timestamp. Bytes are in hexadecimal digits."""

    values: list[str | None] = Field(default_factory=list)
    values_hex: list[str | None] = Field(default_factory=list, description="Instead of `values`.")
    key: str | None = None
    key_hex: str | None = Field(default=None, description="Instead of `key`.")
    partition: int = Field(default=0, ge=0)
    headers: dict[str, str | None] = Field(default_factory=dict)
    timestamp_ms: int | None = Field(default=None, ge=0, lt=1 << 63, description="The broker's time by default.")

    @property
    def all_values(self) -> list[Text]:
        """Return `values` or `values_hex`. Raises ValueError unless exactly one is given."""
        if bool(self.values) is bool(self.values_hex):
            raise ValueError("give either values or values_hex")
        return [*self.values] or [_from_hex(each) for each in self.values_hex]

    @property
    def any_key(self) -> Text:
        """Return `key` or `key_hex`. Raises ValueError if both are given."""
        if self.key is not None and self.key_hex is not None:
            raise ValueError("give either key or key_hex")
        return self.key if self.key_hex is None else _from_hex(self.key_hex)


class RecordsAsked(Query):
    """Conditions for records."""

    partition: int | None = Field(default=None, ge=0)


class RequestsAsked(Query):
    """Conditions for requests."""

    api: str | None = None
    client_id: str | None = None
    node: int | None = None
    error: str | None = None
    raw: bool = Field(default=False, description="Include each request and answer, decoded and in hexadecimal digits.")


class Expectation(Asked):
    """A wait for records."""

    count: int = Field(default=1, ge=0)
    timeout: Span = Field(default=DEFAULT_TIMEOUT, description=DURATION)
    committed: bool = Field(default=True, description="Do not count records of open and aborted transactions.")


class Silence(Asked):
    """A time without new records."""

    during: Span = Field(default=DEFAULT_SILENCE, description=DURATION)


class Wait(Asked):
    """A wait."""

    timeout: Span = Field(default=DEFAULT_TIMEOUT, description=DURATION)


class GroupWait(Wait):
    """A wait for the state of a group."""

    members: int | None = Field(default=None, ge=0)
    state: str = "Stable"


class CommitWait(Wait):
    """A wait for a committed offset."""

    topic: str
    partition: int = Field(default=0, ge=0)
    offset: int | None = Field(default=None, ge=0, description="The least offset; by default any.")


class CaughtUpWait(Wait):
    """A wait for a group to commit the ends of a topic's partitions."""

    topic: str


class WatermarkWait(Wait):
    """A wait for a high watermark."""

    offset: int = Field(ge=0)
    partition: int = Field(default=0, ge=0)


class RequestWait(Wait):
    """A wait for requests."""

    api: str | None = None
    count: int = Field(default=1, ge=0)
    client_id: str | None = None
    node: int | None = None
    error: str | None = None


class HitWait(Wait):
    """A wait for the hits of a fault."""

    hits: int = Field(default=1, ge=0)


class Advance(Asked):
    """A move of the clock."""

    by: Span = Field(description=DURATION)


class Switch(Asked):
    """On or off."""

    on: bool


class LeaderMove(Asked):
    """The next leader."""

    node: int | None = Field(description="null for none.")


class CoordinatorMove(Asked):
    """The next coordinator."""

    node: int


class Eviction(Asked):
    """The member to remove."""

    member: str | None = Field(default=None, description="All by default.")


class Delay(Asked):
    """A delay."""

    delay: Span = Field(description=DURATION)


class MetricsAsked(Asked):
    """The metrics that clients are to push."""

    names: list[str] = Field(default=[], description="Beginnings of their names; all by default.")
    interval: Span = Field(default="1 s", description=DURATION)


class Hold(Asked):
    """The state in which transactions are held."""

    state: Held = "prepared"


class Truncation(Asked):
    """The offset at which a log is to end."""

    offset: int = Field(ge=0)


class BrokerState(BaseModel):
    """The broker's address; while it is up also the ends of partitions by topic, and the groups by id."""

    bootstrap_servers: str
    nodes: int
    running: bool
    topics: dict[str, list[int | None]] = Field(default_factory=dict, description="null for a partition without a log.")
    groups: dict[str, GroupState] = Field(default_factory=dict)


class GroupState(BaseModel):
    """A group: its state, the ids of its members, and its committed offsets by TOPIC-PARTITION."""

    state: str
    members: list[str]
    committed: dict[str, int]


class ClockState(BaseModel):
    """The broker's time."""

    now_ms: int
    frozen: bool


class JournalState(BaseModel):
    """Whether the journal is on, how many requests it has, and how many it dropped for newer ones."""

    on: bool
    kept: int
    dropped: int


class Record(BaseModel):
    """A record as it is stored. `key_hex` and `value_hex` are exact; `key` and `value` are for people."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    key_hex: str | None
    value_hex: str | None
    headers: list[tuple[str, str | None]]
    timestamp_ms: int
    timestamp_type: str
    transaction: str | None
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    magic: int


class Request(BaseModel):
    """A request of the journal, and its outcome. `raw` has request and answer, decoded and in hexadecimal digits."""

    number: int
    api: str
    version: int
    client_id: str | None
    node: int
    connection: str
    outcome: str
    duration_ms: float | None
    errors: list[str]
    refusals: list[str]
    faults: list[str]
    raw: dict[str, Any] | None = None


TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _fault_schema() -> dict[str, Any]:
    """Return the schema of a fault: the words of `Rule` that JSON can have."""
    words: dict[str, dict[str, Any]] = {}
    for name, (kinds, word) in WORDS.items():
        schemas = [schema for schema in map(_schema_of, kinds) if schema is not None]
        if schemas:
            words[name] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
            limits = {"minimum": word.minimum, "maximum": word.maximum}
            words[name] |= {limit: value for limit, value in limits.items() if math.isfinite(value)}
            words[name]["description"] = word.meaning
    return {"title": "NewFault", "type": "object", "properties": words, "additionalProperties": False}


def _schema_of(kind: Any) -> dict[str, Any] | None:
    """Return the schema of a type, or None for one that JSON does not have."""
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is Collection:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": TYPES[kind]} if kind in TYPES else None


NewFault = Annotated[dict[str, Any], WithJsonSchema(_fault_schema())]


class FaultState(BaseModel):
    """A fault, and how often it matched and struck."""

    number: int
    rule: str
    matches: int
    hits: int


def record_model(record: SeenRecord) -> Record:
    """Return a record for JSON."""
    told = {name: getattr(record, name) for name in Record.model_fields if hasattr(record, name)}
    told["key"], told["key_hex"] = _text(record.key), _hex(record.key)
    told["value"], told["value_hex"] = _text(record.value), _hex(record.value)
    told["headers"] = [(name, _text(value)) for name, value in record.headers]
    return Record(**told)


def request_model(exchange: Exchange, raw: bool) -> Request:
    """Return a request of the journal for JSON."""
    told = {name: getattr(exchange, name) for name in Request.model_fields if hasattr(exchange, name)}
    return Request(**told, node=exchange.node_id, raw=exchange.as_json() if raw else None)


def _from_hex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
