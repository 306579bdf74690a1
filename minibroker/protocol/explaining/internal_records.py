"""Explains the records of Kafka's own topics, and control records, down to the fields of their messages.

    coordinators' topics   key: int16 type, message; value: int16 version, message
    __cluster_metadata     value: unsigned varints: version of the frame, type, version; then the message
    control batches        key: int16 version, int16 type; value: a message, which begins with its version

What cannot be read ends the key or the value it is in, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packing
from typing import Final

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.parts import ExplainedPart, PartCursor, UnreadablePart
from minibroker.protocol.messages.control_records import EndTxnMarker
from minibroker.protocol.messages.metadata_records import METADATA_KINDS, METADATA_TOPIC
from minibroker.protocol.records.control import QUORUM_MESSAGES, ControlType
from minibroker.protocol.records.internal import COORDINATOR_KINDS, KEY_VERSION
from minibroker.protocol.records.metadata_values import FRAME_VERSION

INT16: Final = Packing(">h")

ReadMessage = Callable[[PartCursor, type[Message], int], None]
# Explains the key and the value of a record: the cursor of its batch, whether this is a control batch, key and value.
ExplainRecord = Callable[[PartCursor, bool, ExplainedPart, ExplainedPart], None]


def make_record_explainer(topic: str | None, read_message: ReadMessage) -> ExplainRecord:
    """Return the function that explains keys and values of a topic's records, only control records without a topic."""

    def explain_record(cursor: PartCursor, is_control: bool, key: ExplainedPart, value: ExplainedPart) -> None:
        if is_control:
            _explain_control_record(cursor, key, value, read_message)
        elif topic == METADATA_TOPIC:
            _explain_content_of_part(cursor, value, lambda inner: explain_metadata_record_value(inner, read_message))
        elif topic in COORDINATOR_KINDS:
            _explain_coordinator_record(cursor, key, value, topic, read_message)

    return explain_record


def explain_metadata_record_value(cursor: PartCursor, read_message: ReadMessage) -> str:
    """Explain the value of a record of the metadata log. Return the message's name and version."""
    numbers = {name: _explain_unsigned_varint(cursor, name) for name in ("frame_version", "type", "version")}
    if numbers["frame_version"].value != FRAME_VERSION:
        raise UnreadablePart(f"there is no version {numbers['frame_version'].value} of the frame")
    kind = METADATA_KINDS.get(numbers["type"].value)
    return _explain_record_message(cursor, kind, numbers["type"], numbers["version"].value, read_message)


def explain_coordinator_record_key(cursor: PartCursor, topic: str, read_message: ReadMessage) -> str:
    """Explain the key of a record of a coordinator's topic. Return the message's name and version."""
    number = explain_int16_field(cursor, "type")
    return _explain_record_message(
        cursor, COORDINATOR_KINDS[topic][0].get(number.value), number, KEY_VERSION, read_message
    )


def explain_coordinator_record_value(
    cursor: PartCursor, message_class: type[Message], read_message: ReadMessage
) -> str:
    """Explain the value of a record of a coordinator's topic, a message of this class. Return its name and version."""
    return _explain_record_message(
        cursor, message_class, None, explain_int16_field(cursor, "version").value, read_message
    )


def explain_int16_field(cursor: PartCursor, name: str) -> ExplainedPart:
    """Add the part of an int16 with this name."""
    with cursor.add_part(name, "int16") as part:
        part.value = cursor.read_number(INT16)
    return part


def _explain_unsigned_varint(cursor: PartCursor, name: str) -> ExplainedPart:
    """Add the part of an unsigned varint with this name."""
    with cursor.add_part(name, "unsigned varint") as part:
        part.value = cursor.read_unsigned_varint()
    return part


def _explain_record_message(
    cursor: PartCursor,
    message_class: type[Message] | None,
    type_part: ExplainedPart | None,
    version: int,
    read_message: ReadMessage,
) -> str:
    """Explain a record's message, put its name beside its type, and return the name with the version, as a text."""
    if message_class is None:
        raise UnreadablePart(f"there is no type {type_part.value if type_part else version}")
    if type_part is not None:
        type_part.meaning = message_class.__name__
    if version not in message_class.versions:
        raise UnreadablePart(
            f"{message_class.__name__} has no version {version},"
            f" only {message_class.versions[0]} to {message_class.versions[-1]}"
        )
    read_message(cursor, message_class, version)
    return f"{message_class.__name__} version {version}"


def _explain_coordinator_record(
    cursor: PartCursor, key: ExplainedPart, value: ExplainedPart, topic: str, read_message: ReadMessage
) -> None:
    """Explain key and value of a record of a coordinator's topic."""
    _explain_content_of_part(cursor, key, lambda inner: explain_coordinator_record_key(inner, topic, read_message))
    kind = COORDINATOR_KINDS[topic][1].get(key.parts[0].value) if key.parts else None
    if value.value is None:
        value.meaning = "null: a tombstone, which deletes the key"
    elif kind is not None:
        _explain_content_of_part(
            cursor, value, lambda inner: explain_coordinator_record_value(inner, kind, read_message)
        )


def _explain_control_record(
    cursor: PartCursor, key: ExplainedPart, value: ExplainedPart, read_message: ReadMessage
) -> None:
    """Explain key and value of a control record."""
    _explain_content_of_part(cursor, key, _explain_control_key)
    number = key.parts[1].value if len(key.parts) > 1 else -1
    if number not in ControlType._value2member_map_:
        key.meaning = "control record of an unknown type"
        return
    kind = ControlType(number)
    key.meaning = f"control record: {kind.name}"
    _explain_content_of_part(cursor, value, lambda inner: _explain_control_value(inner, kind, read_message))


def _explain_control_key(cursor: PartCursor) -> str:
    """Explain the key of a control record. Return "", as the caller sets what it means."""
    explain_int16_field(cursor, "version")
    number = explain_int16_field(cursor, "type")
    number.meaning = ControlType(number.value).name if number.value in ControlType._value2member_map_ else "unknown"
    return ""


def _explain_control_value(cursor: PartCursor, control_type: ControlType, read_message: ReadMessage) -> str:
    """Explain the value of a control record of this type. Return the message's name."""
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        explain_int16_field(cursor, "version")
        read_message(cursor, EndTxnMarker, 0)
        return EndTxnMarker.__name__
    message, latest = QUORUM_MESSAGES[control_type]
    cursor.require_bytes(INT16.size)
    (version,) = INT16.unpack_from(cursor.data, cursor.position)  # the message's own first field
    read_message(cursor, message, max(0, min(version, latest)))  # as Kafka does
    return message.__name__


def _explain_content_of_part(cursor: PartCursor, part: ExplainedPart, explain: Callable[[PartCursor], str]) -> None:
    """Explain the bytes of a key or value as parts of it. Null stays null."""
    if part.value is None:
        return
    inner = cursor.make_inner_cursor(cursor.data, part.start + part.prefix_bytes, part.end)
    with inner.add_part(part.name, part.type) as whole, inner.limit_cursor_to_part(whole):
        part.meaning = explain(inner)
        if inner.left_bytes:
            raise UnreadablePart(f"{inner.left_bytes:,} bytes follow the end of the message")
    part.parts, part.problem, part.value = whole.parts, whole.problem, None
