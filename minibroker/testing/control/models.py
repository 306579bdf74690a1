"""What the HTTP control takes and gives, as its OpenAPI description shows it.

The same words as in Python; a wrong one is answered with 422 and its name.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from minibroker.testing.durations import DEFAULT_SILENCE, DEFAULT_TIMEOUT
from minibroker.testing.exchange import Exchange
from minibroker.testing.faults.rules import Answer, Corruption, Level, When
from minibroker.testing.hands import Held
from minibroker.testing.plain import text_of
from minibroker.testing.records import SeenRecord, Text

DURATION = 'A number of milliseconds, or a text as "7 days", "1.5 s", "200 ms".'
Span = str | float


class Asked(BaseModel):
    """The base of all bodies of requests: words that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)  # true is no number


class Query(BaseModel):
    """The same, of what stands in an address, where all is text."""

    model_config = ConfigDict(extra="forbid")


class NewTopic(Asked):
    """A topic to be made."""

    name: str
    partitions: int | None = Field(default=None, ge=1, description="As many as the broker gives, unless told.")
    config: dict[str, Any] = Field(default_factory=dict, description="By Kafka's names, as retention.ms.")


class NewRecords(Asked):
    """Records to be appended as one batch, with the same key, headers and timestamp; bytes are hexadecimal digits."""

    values: list[str | None] = Field(default_factory=list)
    values_hex: list[str | None] = Field(default_factory=list, description="Instead of `values`.")
    key: str | None = None
    key_hex: str | None = Field(default=None, description="Instead of `key`.")
    partition: int = Field(default=0, ge=0)
    headers: dict[str, str | None] = Field(default_factory=dict)
    timestamp_ms: int | None = Field(default=None, ge=0, lt=1 << 63, description="The broker's time, unless told.")

    @property
    def all_values(self) -> list[Text]:
        """Of `values` or `values_hex`. Raises ValueError unless one of them is given."""
        if bool(self.values) is bool(self.values_hex):
            raise ValueError("either values or values_hex are to be given")
        return [*self.values] or [_from_hex(each) for each in self.values_hex]

    @property
    def any_key(self) -> Text:
        """Of `key` or `key_hex`. Raises ValueError if both are given."""
        if self.key is not None and self.key_hex is not None:
            raise ValueError("either key or key_hex is to be given")
        return self.key if self.key_hex is None else _from_hex(self.key_hex)


class RecordsAsked(Query):
    """Which records are meant."""

    partition: int | None = Field(default=None, ge=0)


class RequestsAsked(Query):
    """Which requests are meant."""

    api: str | None = None
    client_id: str | None = None
    node: int | None = None
    error: str | None = None
    raw: bool = Field(default=False, description="All of each, decoded and in hexadecimal digits.")


class Expectation(Asked):
    """Records that are waited for."""

    count: int = Field(default=1, ge=0)
    timeout: Span = Field(default=DEFAULT_TIMEOUT, description=DURATION)
    committed: bool = Field(default=True, description="Count no records of open or aborted transactions.")


class Silence(Asked):
    """How long nothing is to be produced."""

    during: Span = Field(default=DEFAULT_SILENCE, description=DURATION)


class Wait(Asked):
    """How long is waited at most."""

    timeout: Span = Field(default=DEFAULT_TIMEOUT, description=DURATION)


class GroupWait(Wait):
    """The state of a group that is waited for."""

    members: int | None = Field(default=None, ge=0)
    state: str = "Stable"


class CommitWait(Wait):
    """A committed offset that is waited for."""

    topic: str
    partition: int = Field(default=0, ge=0)
    offset: int | None = Field(default=None, ge=0, description="At least this one; any, unless told.")


class CaughtUpWait(Wait):
    """The topic that a group is to have committed all of."""

    topic: str


class WatermarkWait(Wait):
    """A high watermark that is waited for."""

    offset: int = Field(ge=0)
    partition: int = Field(default=0, ge=0)


class RequestWait(Wait):
    """Requests that are waited for."""

    api: str | None = None
    count: int = Field(default=1, ge=0)
    client_id: str | None = None
    node: int | None = None
    error: str | None = None


class HitWait(Wait):
    """The hits of a fault that are waited for."""

    hits: int = Field(default=1, ge=0)


class Advance(Asked):
    """Time that is to pass at once."""

    by: Span = Field(description=DURATION)


class Switch(Asked):
    """On or off."""

    on: bool


class LeaderMove(Asked):
    """The node that is to lead."""

    node: int | None = Field(description="null for nobody.")


class CoordinatorMove(Asked):
    """The node that is to coordinate."""

    node: int


class Eviction(Asked):
    """The member to put out."""

    member: str | None = Field(default=None, description="All, unless told.")


class Delay(Asked):
    """How long something takes."""

    delay: Span = Field(description=DURATION)


class Hold(Asked):
    """The state in which transactions are held."""

    state: Held = "prepared"


class Truncation(Asked):
    """Where a log is to end."""

    offset: int = Field(ge=0)


class BrokerState(BaseModel):
    """Where the broker is, and, while it runs, what it holds: the ends of partitions by topic, and groups by id."""

    bootstrap_servers: str
    nodes: int
    running: bool
    topics: dict[str, list[int | None]] = Field(default_factory=dict, description="null for a partition not here.")
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
    """Whether requests are kept, how many are, and how many were forgotten for newer ones."""

    on: bool
    kept: int
    dropped: int


class Record(BaseModel):
    """A record as it lies in the log. `key_hex` and `value_hex` are exact where the texts are only for people."""

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
    """A request of the journal, with its answer; `raw` has all of it, decoded and in hexadecimal digits."""

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


def _fault_schema() -> dict[str, Any]:
    """The words of a fault, each with its kind; `faults/rules` says what they mean, and what is wrong with them."""
    text, number = {"type": "string"}, {"type": "integer"}
    span = {"anyOf": [text, {"type": "number"}], "description": DURATION}
    words: dict[str, Any] = {
        "api": {"anyOf": [text, {"type": "array", "items": text}], "description": 'By Kafka\'s name: "Produce".'},
        "version": {"anyOf": [number, text], "description": 'Of the API: 9, "3-9" or "12+".'},
        "error": {"type": "string", "description": "By Kafka's name: NOT_LEADER_OR_FOLLOWER."},
        "probability": {"type": "number", "minimum": 0, "maximum": 1},
        "once": {"type": "boolean"},
        **{word: {"type": "integer", "minimum": 1} for word in ("nth", "times")},
        **{word: number for word in ("node", "partition", "seed")},
        **{word: text for word in ("client_id", "topic", "group", "transactional_id", "name")},
        **{word: span for word in ("delay", "throttle")},
    }
    choices = {"when": When, "level": Level, "close": When, "answer": Answer, "corrupt": Corruption}
    words |= {word: {"enum": list(get_args(kind))} for word, kind in choices.items()}
    return {"title": "NewFault", "type": "object", "properties": words, "additionalProperties": False}


NewFault = Annotated[dict[str, Any], WithJsonSchema(_fault_schema())]


class FaultState(BaseModel):
    """A fault at work."""

    number: int
    rule: str
    matches: int
    hits: int


def record_model(record: SeenRecord) -> Record:
    """A record for JSON."""
    told = {name: getattr(record, name) for name in Record.model_fields if hasattr(record, name)}
    told["key"], told["key_hex"] = _text(record.key), _hex(record.key)
    told["value"], told["value_hex"] = _text(record.value), _hex(record.value)
    told["headers"] = [(name, _text(value)) for name, value in record.headers]
    return Record(**told)


def request_model(exchange: Exchange, raw: bool) -> Request:
    """A request of the journal for JSON."""
    return Request(
        number=exchange.number,
        api=exchange.api,
        version=exchange.version,
        client_id=exchange.client_id,
        node=exchange.node_id,
        connection=exchange.connection,
        outcome=exchange.outcome,
        duration_ms=exchange.duration_ms,
        errors=list(exchange.errors),
        refusals=list(exchange.refusals),
        faults=list(exchange.faults),
        raw=exchange.as_json() if raw else None,
    )


def _from_hex(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
