"""What the HTTP control takes and gives, as its OpenAPI description shows it.

The same words as in Python; a wrong one is answered with 422 and its name.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from minibroker.testing.durations import DEFAULT_SILENCE, DEFAULT_TIMEOUT
from minibroker.testing.exchange import Exchange
from minibroker.testing.hands import Held
from minibroker.testing.plain import text_of
from minibroker.testing.records import SeenRecord

DURATION = 'A number of milliseconds, or a text as "7 days", "1.5 s", "200 ms".'
Span = str | float


class Asked(BaseModel):
    """What is common to all that is asked: words that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")


class NewTopic(Asked):
    """A topic to be made."""

    name: str
    partitions: int | None = Field(default=None, ge=1, description="As many as the broker gives, unless told.")
    config: dict[str, Any] = Field(default_factory=dict, description="By Kafka's names, as retention.ms.")


class NewRecords(Asked):
    """Records to be appended as one batch, with the same key, headers and timestamp."""

    values: list[str | None] = Field(min_length=1)
    key: str | None = None
    partition: int = Field(default=0, ge=0)
    headers: dict[str, str | None] = Field(default_factory=dict)
    timestamp_ms: int | None = Field(default=None, description="The broker's time, unless told.")


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
    """Who is put out."""

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


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
