"""The answers of the HTTP control, where they are not just what the Python method returns."""

from __future__ import annotations

from typing import Any, Self, get_type_hints

from msgspec import UNSET, Struct, UnsetType, defstruct

from minibroker.broker.client_telemetry import ClientMetric
from minibroker.testing.seen import log_reading
from minibroker.testing.seen.exchange import Exchange, format_bytes
from minibroker.testing.verbs import dead_letter_records, share_deliveries, share_verbs
from minibroker.testing.verbs.streams_group_views import StreamsGroupState, StreamsMemberState
from minibroker.testing.verbs.token_verbs import Token


class Shown(Struct, kw_only=True):
    """The base of what is shown of objects of the test kit."""

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return what is shown of an object: its fields of the same names, and others."""
        names = [name for name in cls.__struct_fields__ if name not in others]
        return cls(**{name: _convert_to_json_types(getattr(seen, name)) for name in names}, **others)


class ShownRecord(Shown):
    """The base of records. `key_hex` and `value_hex` are exact; `key` and `value` are for people."""

    @classmethod
    def of(cls, seen: Any, **others: Any) -> Self:
        """Return a record with its bytes as texts."""
        key, value = _decode_text(seen.key), _decode_text(seen.value)
        headers = [(name, _decode_text(content)) for name, content in seen.headers]
        exact = {"key_hex": _encode_hex(seen.key), "value_hex": _encode_hex(seen.value)}
        return super().of(seen, key=key, value=value, headers=headers, **exact)


def make_shown_type(name: str, shown_class: Any, base: type = Shown, **others: Any) -> Any:
    """Return the type of what is shown of a type: its fields, and others."""
    kinds = get_type_hints(shown_class) | others
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


def _convert_to_json_types(value: Any) -> Any:
    """Return a value with objects for NamedTuples, which are lists otherwise."""
    if isinstance(value, list):
        return [_convert_to_json_types(each) for each in value]
    return value._asdict() if hasattr(value, "_asdict") else value


def _decode_text(data: bytes | None) -> str | None:
    return None if data is None else format_bytes(data)


def _encode_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
