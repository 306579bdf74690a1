"""The meaning of records of Kafka's own topics, for `minibroker dump`: from records to plain values, by topic.

The broker and the protocol decode them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.record import Record
from minibroker.protocol.values import plain

METADATA_TOPIC = "__cluster_metadata"
TOPICS = (METADATA_TOPIC, "__consumer_offsets", "__transaction_state")


class Undecodable(Exception):
    """A record that cannot be decoded; the message says why."""


class Said(NamedTuple):
    """A message in a record: its name, its version (None if it has none) and its fields."""

    name: str
    version: int | None
    fields: dict[str, Any]


# The messages in key and value; None if there is none, or if it is unknown.
Pair = tuple[Said | None, Said | None]
Decoder = Callable[[Record], Pair]


def decoder_of(topic: str | None) -> Decoder | None:
    """Return the decoder of this topic's records, which raises `Undecodable`; None for a topic of applications."""
    if topic == METADATA_TOPIC:
        return _metadata
    return _internal(topic) if topic in TOPICS else None


def _metadata(record: Record) -> Pair:
    from minibroker.broker.metadata.metadata_log import UnknownMetadata, decode_record
    from minibroker.protocol.primitives import read_varint

    value = record.value or b""
    try:
        message = decode_record(value)
        _, position = read_varint(value, 0)  # the frame's version
        _, position = read_varint(value, position)  # the API key
        version, _ = read_varint(value, position)
    except (UnknownMetadata, ValueError, IndexError) as error:
        raise Undecodable(str(error)) from error
    return None, _said(message, version)


def _internal(topic: str) -> Decoder:
    from minibroker.protocol.records.internal import decode_internal

    def decode(record: Record) -> Pair:
        try:
            key, value = decode_internal(topic, record.key, record.value)
        except ValueError as error:
            raise Undecodable(str(error)) from error
        return _said(*key), None if value is None else _said(*value)

    return decode


def control(record: Record) -> Pair:
    """Return the type of a control record, and its message. Raises `Undecodable`."""
    from minibroker.protocol.messages.control_records import EndTxnMarker
    from minibroker.protocol.records.control import control_message, control_type

    try:
        kind, message = control_type(record.key), control_message(record)
    except KafkaError as error:
        raise Undecodable(error.message or error.code.name) from error
    if kind is None or message is None:
        raise Undecodable("a control record of a type that is not known")
    version = 0 if isinstance(message, EndTxnMarker) else message.version
    return None, Said(kind.name, version, plain(message, min(version, message.versions[-1])))


def _said(message: Message, version: int) -> Said:
    return Said(type(message).__name__, version, plain(message, version))
