"""Converts a message to plain Python values, for people and for JSON: dicts, lists, numbers and strings."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.fields import FieldType
from minibroker.protocol.layout import make_struct_layout
from minibroker.protocol.primitives import format_uuid


def convert_to_plain_dict(message: Message, version: int) -> dict[str, Any]:
    """Return the fields of a version in wire order. Bytes are base64, UUIDs as Kafka prints them."""
    return _convert_struct_to_plain(message, version, version in message.flexible)


def _convert_struct_to_plain(struct: Struct, version: int, flexible: bool) -> dict[str, Any]:
    shape = make_struct_layout(type(struct), version, flexible)
    return {
        place.name: _convert_value_to_plain(getattr(struct, place.name), place.kind, version, flexible)
        for place in shape.body + shape.tagged
    }


def _convert_value_to_plain(value: Any, field_type: FieldType, version: int, flexible: bool) -> Any:
    """Return a value of this type as JSON has it. Bytes are base64, UUIDs as Kafka prints them."""
    if value is None:
        return None
    if field_type.item is not None:
        return [_convert_value_to_plain(each, field_type.item, version, flexible) for each in value]
    if field_type.struct is not None:
        return _convert_struct_to_plain(value, version, flexible)
    if field_type.code == "16s":
        return format_uuid(value)
    return b64encode(value).decode("ascii") if field_type.code in ("bytes", "records") else value
