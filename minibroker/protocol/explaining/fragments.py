"""Explains pieces that are no frames: what members say to their group, SASL, and keys and values of Kafka's records."""

from __future__ import annotations

from typing import Final

from minibroker.protocol.declare import Message
from minibroker.protocol.explaining.embedded import explain_sasl_token, explain_versioned_message
from minibroker.protocol.explaining.internal_records import (
    explain_coordinator_record_key,
    explain_coordinator_record_value,
    explain_metadata_record_value,
)
from minibroker.protocol.explaining.messages import explain_message_fields
from minibroker.protocol.explaining.parts import ExplainedPart, PartCursor, UnreadablePart
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.messages.metadata_records import METADATA_KINDS
from minibroker.protocol.records.internal import COORDINATOR_KINDS
from minibroker.protocol.records.varints import Bytes

SASL: Final = "sasl"
_MEMBERS: Final[dict[str, type[Message]]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}
_KEYS: Final = {each.__name__: topic for topic, (keys, _) in COORDINATOR_KINDS.items() for each in keys.values()}
_VALUES: Final = {each.__name__: each for _, values in COORDINATOR_KINDS.values() for each in values.values()}
_METADATA: Final = frozenset(each.__name__ for each in METADATA_KINDS.values())
FRAGMENTS: Final = (*_MEMBERS, SASL, *sorted((*_KEYS, *_VALUES, *_METADATA)))


def explain_fragment(data: Bytes, kind: str) -> ExplainedPart:
    """Explain bytes that are one of FRAGMENTS: "assignment", or a message of a record, such as "OffsetCommitValue"."""
    cursor = PartCursor(data)
    with cursor.add_part(kind, "bytes") as whole, cursor.limit_cursor_to_part(whole):
        whole.meaning = _explain_fragment_content(cursor, whole, kind)
        if cursor.left_bytes and kind not in _MEMBERS:
            raise UnreadablePart(f"{cursor.left_bytes:,} bytes follow the end of the message")
    return whole


def _explain_fragment_content(cursor: PartCursor, whole: ExplainedPart, kind: str) -> str:
    """Explain the bytes of a fragment of this kind. Return what they are, such as a message's name."""
    if kind in _MEMBERS:
        explain_versioned_message(cursor, _MEMBERS[kind], explain_message_fields)
        return _MEMBERS[kind].__name__
    if kind in _KEYS:
        return explain_coordinator_record_key(cursor, _KEYS[kind], explain_message_fields)
    if kind in _VALUES:
        return explain_coordinator_record_value(cursor, _VALUES[kind], explain_message_fields)
    if kind in _METADATA:
        return explain_metadata_record_value(cursor, explain_message_fields)
    explain_sasl_token(cursor, whole, cursor.left_bytes)
    return whole.meaning
