"""The answers of the HTTP control, with the names that they have in Python."""

from __future__ import annotations

from typing import Any, Self

from msgspec import UNSET, Struct, UnsetType

from minibroker.testing.exchange import Exchange, text_of


class Shown(Struct, kw_only=True):
    """The base of what is shown of objects of the test kit."""

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return what is shown of an object: its fields of the same names, and others."""
        fields = {name: getattr(seen, name) for name in cls.__struct_fields__ if hasattr(seen, name)}
        return cls(**fields | others)


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


class StreamsMember(Shown):
    """A member of a streams group, and its tasks by role: partitions by the id of the subtopology."""

    member: str
    instance: str | None
    client_id: str
    process: str
    epoch: int
    active: dict[str, list[int]]
    standby: dict[str, list[int]]
    warmup: dict[str, list[int]]


class StreamsGroup(Shown):
    """A group of Kafka Streams; `topology_epoch` is null before the first member."""

    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    source_topics: list[str]
    members: list[StreamsMember]

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return a group with its members."""
        return super().of(seen, members=list(map(StreamsMember.of, seen.members)))


class ClockState(Struct):
    """The broker's time."""

    now_ms: int
    frozen: bool


class JournalState(Struct):
    """Whether the journal is on, how many requests it has, and how many it dropped for newer ones."""

    on: bool
    kept: int
    dropped: int


class Metric(Shown):
    """A number that a client has pushed (KIP-714)."""

    client_id: str
    client_instance_id: str
    name: str
    attributes: dict[str, str]
    value: float


class Record(Shown):
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

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return a record with its bytes as texts."""
        key, value = _text(seen.key), _text(seen.value)
        headers = [(name, _text(content)) for name, content in seen.headers]
        exact = {"key_hex": _hex(seen.key), "value_hex": _hex(seen.value)}
        return super().of(seen, key=key, value=value, headers=headers, **exact)


class Delivery(Shown):
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


def seen_request(exchange: Exchange, raw: bool = False) -> SeenRequest:
    """Return a request of the journal."""
    return SeenRequest.of(exchange, node=exchange.node_id, raw=exchange.as_json() if raw else None)


class FaultState(Shown):
    """A fault, and how often it matched and struck."""

    number: int
    rule: str
    matches: int
    hits: int

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return a fault with its rule in words."""
        return super().of(seen, rule=str(seen.rule))


def _text(data: bytes | None) -> str | None:
    return None if data is None else text_of(data)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
