"""Decodes the records of the coordinators' topics into messages.

The messages are declared in `messages/group_records.py` and its neighbours.

    key    int16 type of the record, then the key's message
    value  int16 version, then the value's message of that type; none (a tombstone) deletes the key
"""

from __future__ import annotations

from struct import Struct as Packing
from types import ModuleType
from typing import NamedTuple

from minibroker.protocol.declare import Message
from minibroker.protocol.messages import (
    group_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)

GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
KEY_VERSION = 0  # of all keys

_INT16 = Packing(">h")


class UnknownRecord(ValueError):
    """A key or value of a type or version that Kafka up to 4.3 does not write, or that is too short."""


class DecodedMessage(NamedTuple):
    """A message and the version in which it was read."""

    message: Message
    version: int


def decode_internal_record(
    topic: str, key: bytes | None, value: bytes | None
) -> tuple[DecodedMessage, DecodedMessage | None]:
    """Decode key and value of a record in one of these topics. The value is None for a tombstone.

    Raises `UnknownRecord`, or `MalformedMessage`; ValueError for another topic.
    """
    if topic not in COORDINATOR_KINDS:
        raise ValueError(f"the format of the records of {topic} is unknown")
    key_kinds, value_kinds = COORDINATOR_KINDS[topic]
    kind = _decode_int16(key, "key")
    if kind not in key_kinds:
        raise UnknownRecord(f"a key of type {kind}")
    decoded_key = DecodedMessage(key_kinds[kind].decode(key or b"", KEY_VERSION, _INT16.size), KEY_VERSION)
    if value is None:
        return decoded_key, None
    version, value_kind = _decode_int16(value, "value"), value_kinds[kind]
    if version not in value_kind.versions:
        raise UnknownRecord(f"{value_kind.__name__} version {version}")
    return decoded_key, DecodedMessage(value_kind.decode(value, version, _INT16.size), version)


def _decode_int16(data: bytes | None, name: str) -> int:
    if data is None or len(data) < _INT16.size:
        raise UnknownRecord(f"a {name} of {0 if data is None else len(data)} bytes")
    number: int = _INT16.unpack_from(data)[0]
    return number


def _index_by_type(suffix: str, *modules: ModuleType) -> dict[int, type[Message]]:
    """Return the messages of the modules whose names end with `suffix`, by their type of record."""
    found = (each for module in modules for each in vars(module).values())
    return {
        each.api_key: each
        for each in found
        if isinstance(each, type) and issubclass(each, Message) and each.__name__.endswith(suffix)
    }


def _index_keys_and_values(*modules: ModuleType) -> tuple[dict[int, type[Message]], dict[int, type[Message]]]:
    """Return the keys, and the values, that the modules declare, each by its type of record."""
    return _index_by_type("Key", *modules), _index_by_type("Value", *modules)


# By topic: the messages of keys, and of values, by the type of the record.
COORDINATOR_KINDS = {
    GROUPS_TOPIC: _index_keys_and_values(group_records, share_group_records, streams_group_records),
    TRANSACTIONS_TOPIC: _index_keys_and_values(transaction_records),
    SHARE_STATE_TOPIC: _index_keys_and_values(share_state_records),
}
