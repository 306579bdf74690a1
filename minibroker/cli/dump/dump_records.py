"""The meaning of records of Kafka's own topics, for `minibroker dump` and `consume`: plain values, by topic.

The broker and the protocol decode them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.records.record import Record
from minibroker.protocol.values import convert_to_plain_dict

METADATA_TOPIC = "__cluster_metadata"
COORDINATORS_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
TOPICS = (METADATA_TOPIC, *COORDINATORS_TOPICS)


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


def find_decoder(topic: str | None) -> Decoder | None:
    """Return the decoder of this topic's records, which raises `Undecodable`; None for a topic of applications."""
    if topic == METADATA_TOPIC:
        return _decode_metadata_record
    return _make_internal_decoder(topic) if topic in TOPICS else None


def _decode_metadata_record(record: Record) -> Pair:
    from minibroker.protocol.records.metadata_values import decode_metadata_record, read_metadata_frame

    value = record.value or b""
    try:
        return None, _describe_message(decode_metadata_record(value), read_metadata_frame(value).version)
    except (ValueError, IndexError) as error:
        raise Undecodable(str(error)) from error


def _make_internal_decoder(topic: str) -> Decoder:
    from minibroker.protocol.records.internal import decode_internal_record

    def decode(record: Record) -> Pair:
        try:
            key, value = decode_internal_record(topic, record.key, record.value)
        except ValueError as error:
            raise Undecodable(str(error)) from error
        return _describe_message(*key), None if value is None else _describe_message(*value)

    return decode


def decode_control_record(record: Record) -> Pair:
    """Return the type of a control record, and its message. Raises `Undecodable`."""
    from minibroker.protocol.messages.control_records import EndTxnMarker
    from minibroker.protocol.records.control import decode_control_message, decode_control_type

    try:
        kind, message = decode_control_type(record.key), decode_control_message(record)
    except KafkaError as error:
        raise Undecodable(error.message or error.code.name) from error
    if kind is None or message is None:
        raise Undecodable("a control record of a type that is not known")
    version = 0 if isinstance(message, EndTxnMarker) else message.version
    return None, Said(kind.name, version, convert_to_plain_dict(message, min(version, message.versions[-1])))


def make_decoded_record_object(pair: Pair) -> dict[str, Any]:
    """Return the fields of a JSON object that say what a record means."""
    return {name: said._asdict() for name, said in zip(("key_says", "value_says"), pair, strict=True) if said}


def _describe_message(message: Message, version: int) -> Said:
    return Said(type(message).__name__, version, convert_to_plain_dict(message, version))
