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


class UndecodableRecord(Exception):
    """A record that cannot be decoded; the message says why."""


class DecodedMessage(NamedTuple):
    """A message in a record: its name, its version (None if it has none) and its fields."""

    name: str
    version: int | None
    fields: dict[str, Any]


# The messages in key and value; None if there is none, or if it is unknown.
DecodedKeyAndValue = tuple[DecodedMessage | None, DecodedMessage | None]
DecodeRecord = Callable[[Record], DecodedKeyAndValue]


def find_decoder(topic: str | None) -> DecodeRecord | None:
    """Return the decoder of a topic's records, which raises `UndecodableRecord`; None for an application's topic."""
    if topic == METADATA_TOPIC:
        return _decode_metadata_record
    return _make_internal_decoder(topic) if topic in TOPICS else None


def _decode_metadata_record(record: Record) -> DecodedKeyAndValue:
    from minibroker.protocol.records.metadata_values import decode_metadata_record, read_metadata_frame

    value = record.value or b""
    try:
        return None, _make_decoded_message(decode_metadata_record(value), read_metadata_frame(value).version)
    except (ValueError, IndexError) as error:
        raise UndecodableRecord(str(error)) from error


def _make_internal_decoder(topic: str) -> DecodeRecord:
    from minibroker.protocol.records.internal import decode_internal_record

    def decode(record: Record) -> DecodedKeyAndValue:
        try:
            key, value = decode_internal_record(topic, record.key, record.value)
        except ValueError as error:
            raise UndecodableRecord(str(error)) from error
        return _make_decoded_message(*key), None if value is None else _make_decoded_message(*value)

    return decode


def decode_control_record(record: Record) -> DecodedKeyAndValue:
    """Return None and the decoded message of a control record. Raises `UndecodableRecord`."""
    from minibroker.protocol.messages.control_records import EndTxnMarker
    from minibroker.protocol.records.control import decode_control_message, decode_control_type

    try:
        kind, message = decode_control_type(record.key), decode_control_message(record)
    except KafkaError as error:
        raise UndecodableRecord(error.message or error.code.name) from error
    if kind is None or message is None:
        raise UndecodableRecord("a control record of a type that is not known")
    version = 0 if isinstance(message, EndTxnMarker) else message.version
    return None, DecodedMessage(kind.name, version, convert_to_plain_dict(message, min(version, message.versions[-1])))


def make_decoded_record_object(decoded_record: DecodedKeyAndValue) -> dict[str, Any]:
    """Return the fields of a JSON object that say what a record means."""
    return {name: said._asdict() for name, said in zip(("key_says", "value_says"), decoded_record, strict=True) if said}


def _make_decoded_message(message: Message, version: int) -> DecodedMessage:
    """Return the name, version and fields of a message."""
    return DecodedMessage(type(message).__name__, version, convert_to_plain_dict(message, version))
