"""Makes minibroker's structs of messages that are dicts of Kafka's field names."""

from __future__ import annotations

import re
from typing import Any

from conformance.messages.definitions import Spec
from minibroker.protocol.fields import Field, FieldType, list_declared_fields


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def as_struct(struct: Any, values: Spec) -> Any:
    """The struct that minibroker would use for a dict of Kafka's names."""
    known = {field.name: field for field in list_declared_fields(struct)}
    converted = {}
    for name, value in values.items():
        field = known[snake_case(name)]
        converted[field.name] = converted_value(field.kind, value)
        if is_left_out(field, converted[field.name]):
            converted[field.name] = None
    return struct(**converted)


def is_left_out(field: Field, value: Any) -> bool:
    """Whether it is a tagged struct with nothing but defaults, which is not on the wire and None in minibroker."""
    struct = field.kind.struct
    return struct is not None and field.facts.tag >= 0 and not field.facts.nullable and value == struct()


def converted_value(kind: FieldType, value: Any) -> Any:
    if value is None:
        return None
    if kind.item is not None:
        return [converted_value(kind.item, item) for item in value]
    return as_struct(kind.struct, value) if kind.struct is not None else value
