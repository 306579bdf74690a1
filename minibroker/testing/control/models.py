"""The bodies and parameters of requests to the HTTP control, with the names that they have in Python."""

from __future__ import annotations

import math
from collections.abc import Collection
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, RootModel, WithJsonSchema

from minibroker.testing.faults.rules import WORDS
from minibroker.testing.group_verbs import Held
from minibroker.testing.record_verbs import Text
from minibroker.testing.share_verbs import LATER
from minibroker.testing.waiting import DEFAULT_SILENCE, DEFAULT_TIMEOUT

DURATION = 'A number and a unit, such as "7 days", "1.5 s", "200 ms". A bare number is one of milliseconds.'


def with_unit(duration: Any) -> Any:
    """Return a bare number as a text with its unit: here it is one of ms, where it is one of seconds in Python."""
    is_bare = isinstance(duration, int | float) and not isinstance(duration, bool)
    return f"{duration} ms" if is_bare else duration


Span = Annotated[
    str, BeforeValidator(with_unit), WithJsonSchema({"type": "string", "description": DURATION, "examples": ["10 s"]})
]


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

    model_config = ConfigDict(json_schema_extra={"examples": [{"values": ["first", "second"], "key": "ann"}]})

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
    user: str | None = None
    mechanism: str | None = None
    group: str | None = None
    node: int | None = None
    error: str | None = None
    raw: bool = Field(default=False, description="Include each request and answer, decoded and in hexadecimal digits.")


class Expectation(Asked):
    """A wait for records."""

    count: int = Field(default=1, ge=0)
    timeout: Span = DEFAULT_TIMEOUT
    committed: bool = Field(default=True, description="Do not count records of open and aborted transactions.")


class Silence(Asked):
    """A time without new records."""

    during: Span = DEFAULT_SILENCE


class Wait(Asked):
    """A wait."""

    timeout: Span = DEFAULT_TIMEOUT


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


class AssignmentWait(Wait):
    """A wait for the members of a share group to have all partitions of a topic."""

    topic: str
    members: int | None = Field(default=None, ge=1, description="How many have any; by default any number.")


class SettledWait(Wait):
    """A wait for a share group to acknowledge or archive the records below an offset."""

    topic: str
    offset: int = Field(ge=0)
    partition: int = Field(default=0, ge=0)


class Redelivery(Wait):
    """A wait for records that were delivered again."""

    topic: str
    count: int = Field(default=1, ge=0)
    deliveries: int = Field(default=LATER, ge=1, description="The least number of deliveries of each record.")


class DeadLetterQueue(Asked):
    """A topic for dead letters."""

    topic: str | None = Field(default=None, description='"dlq." and the id of the group by default.')
    copies: bool = Field(default=True, description="Whether dead letters have keys and values.")


class DeadLetterWait(Wait):
    """A wait for dead letters."""

    count: int = Field(default=1, ge=0)


class WatermarkWait(Wait):
    """A wait for a high watermark."""

    offset: int = Field(ge=0)
    partition: int = Field(default=0, ge=0)


class RequestWait(Wait):
    """A wait for requests."""

    api: str | None = None
    count: int = Field(default=1, ge=0)
    client_id: str | None = None
    user: str | None = None
    mechanism: str | None = None
    group: str | None = None
    node: int | None = None
    error: str | None = None


class HitWait(Wait):
    """A wait for the hits of a fault."""

    hits: int = Field(default=1, ge=0)


class ClockAdvance(Asked):
    """A move of the clock."""

    by: Span


class JournalSwitch(Asked):
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


class JoinDelay(Asked):
    """A delay."""

    delay: Span


class MetricsAsked(Asked):
    """The metrics that clients are to push."""

    names: list[str] = Field(default=[], description="Beginnings of their names; all by default.")
    interval: Span = "1 s"


class TransactionHold(Asked):
    """The state in which transactions are held."""

    state: Held = "prepared"


class Truncation(Asked):
    """The offset at which a log is to end."""

    offset: int = Field(ge=0)


TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _fault_schema() -> dict[str, Any]:
    """Return the schema of a fault: the words of `Rule` that JSON can have."""
    words: dict[str, dict[str, Any]] = {}
    for name, (kinds, word) in WORDS.items():
        schemas = [schema for schema in map(_schema_of, kinds) if schema is not None]
        if _is_span(name):
            schemas = [{"type": "string"}]
        if schemas:
            words[name] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
            limits = {"minimum": word.minimum, "maximum": word.maximum}
            words[name] |= {limit: value for limit, value in limits.items() if math.isfinite(value)}
            words[name]["description"] = word.meaning
    meaning = "A fault: which requests it applies to, what it does to them, and how often."
    example = {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
    shape = {"type": "object", "properties": words, "additionalProperties": False}
    return shape | {"description": meaning, "examples": [example]}


def _is_span(word: str) -> bool:
    return word in WORDS and timedelta in WORDS[word][0]


def _schema_of(kind: Any) -> dict[str, Any] | None:
    """Return the schema of a type, or None for one that JSON does not have."""
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if get_origin(kind) is Collection:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": TYPES[kind]} if kind in TYPES else None


class NewFault(RootModel[dict[str, Any]]):
    """A fault to add: the words of `Rule` that JSON can have."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a fault, which the root has not."""
        return _fault_schema()

    @property
    def words(self) -> dict[str, Any]:
        """Return the fault's words; durations have units."""
        return {name: with_unit(value) if _is_span(name) else value for name, value in self.root.items()}


def _from_hex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)
