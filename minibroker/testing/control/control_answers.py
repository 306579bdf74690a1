"""The answers of the HTTP control, with the names that they have in Python. `models` has what is asked."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from minibroker.testing.dead_letter_records import DeadLetter as SeenLetter
from minibroker.testing.exchange import Exchange, text_of
from minibroker.testing.log_reading import Record as SeenRecord
from minibroker.testing.share_verbs import DeliveredRecord as SeenDelivered


class BrokerState(BaseModel):
    """The broker's address; while it is up also the ends of partitions by topic, and the groups by id."""

    bootstrap_servers: str
    nodes: int
    running: bool
    topics: dict[str, list[int | None]] = Field(default_factory=dict, description="null for a partition without a log.")
    groups: dict[str, GroupState] = Field(default_factory=dict)


class GroupState(BaseModel):
    """A group: its type, state, the ids of its members, and its committed offsets by TOPIC-PARTITION."""

    type: str
    state: str
    members: list[str]
    committed: dict[str, int]


class StreamsGroup(BaseModel):
    """A group of Kafka Streams; `topology_epoch` is null before the first member."""

    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    source_topics: list[str]
    members: list[StreamsMember]


class StreamsMember(BaseModel):
    """A member of a streams group, and its tasks by role: partitions by the id of the subtopology."""

    member: str
    instance: str | None
    client_id: str
    process: str
    epoch: int
    active: dict[str, list[int]]
    standby: dict[str, list[int]]
    warmup: dict[str, list[int]]


class ClockState(BaseModel):
    """The broker's time."""

    now_ms: int
    frozen: bool


class JournalState(BaseModel):
    """Whether the journal is on, how many requests it has, and how many it dropped for newer ones."""

    on: bool
    kept: int
    dropped: int


class SnapshotNumber(BaseModel):
    """The number of a snapshot, to restore it."""

    snapshot: int


class TopicName(BaseModel):
    """The name of a topic."""

    topic: str


class Offset(BaseModel):
    """An offset in a partition."""

    offset: int


class Members(BaseModel):
    """The ids of members of a group."""

    members: list[str]


class AssignedPartitions(BaseModel):
    """The partitions of a topic by member."""

    members: dict[str, list[int]]


class LockedRecords(BaseModel):
    """How many records were locked."""

    records: int


class FaultNumber(BaseModel):
    """The number of a fault, to remove it."""

    fault: int


class Coordinator(BaseModel):
    """The node that coordinates a group or a transactional id, null if no node does yet."""

    coordinator: int | None


class Committed(BaseModel):
    """The offsets that a group has committed, by topic and partition."""

    committed: dict[str, dict[int, int]]


class Lag(BaseModel):
    """How many offsets a group is behind the end of each partition of a topic."""

    lag: dict[int, int]


class Leader(BaseModel):
    """The node that leads a partition, or null."""

    leader: int | None


class LeaderEpoch(BaseModel):
    """The new leader epoch of a partition."""

    leader_epoch: int


class TransactionState(BaseModel):
    """The state of a transaction, as DescribeTransactions names it."""

    state: str


class Metric(BaseModel):
    """A number that a client has pushed (KIP-714)."""

    client_id: str
    client_instance_id: str
    name: str
    attributes: dict[str, str]
    value: float


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


class Delivery(BaseModel):
    """Records of a partition, `first` to `last`, that were delivered to a share group equally often.

    `state` is "acquired" (by `member`), "available", "acknowledged" or "archived".
    """

    topic: str
    partition: int
    first: int
    last: int
    state: str
    deliveries: int
    member: str | None


class DeliveredRecord(Record):
    """A record that was delivered to a share group; the last three are as in `Delivery`."""

    deliveries: int
    state: str
    member: str | None


class DeadLetter(Record):
    """A dead letter of a share group, with the record that it stands for."""

    source_topic: str
    source_partition: int
    source_offset: int
    deliveries: int
    reason: str


class SeenRequest(BaseModel):
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


class FaultState(BaseModel):
    """A fault, and how often it matched and struck."""

    number: int
    rule: str
    matches: int
    hits: int


def record_model(record: SeenRecord) -> Record:
    """Return a record for JSON."""
    return Record(**_fields_of(record, Record))


def delivered_model(record: SeenDelivered) -> DeliveredRecord:
    """Return a record that was delivered to a share group for JSON."""
    return DeliveredRecord(**_fields_of(record, DeliveredRecord))


def dead_letter_model(letter: SeenLetter) -> DeadLetter:
    """Return a dead letter for JSON."""
    return DeadLetter(**_fields_of(letter, DeadLetter))


def _fields_of(record: SeenRecord, model: type[Record]) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in model.model_fields if hasattr(record, name)}
    fields["key"], fields["key_hex"] = _text(record.key), _hex(record.key)
    fields["value"], fields["value_hex"] = _text(record.value), _hex(record.value)
    fields["headers"] = [(name, _text(value)) for name, value in record.headers]
    return fields


def request_model(exchange: Exchange, raw: bool) -> SeenRequest:
    """Return a request of the journal for JSON."""
    fields = {name: getattr(exchange, name) for name in SeenRequest.model_fields if hasattr(exchange, name)}
    return SeenRequest(**fields, node=exchange.node_id, raw=exchange.as_json() if raw else None)


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
