"""Reads data of Protobuf: the message of a schema that indexes choose, as values of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats.decoding_budget import DecodingBudget
from minibroker.registry.formats.protobuf import ProtobufSchema
from minibroker.registry.formats.schema import InvalidData

MAXIMUM_INDEXES: Final = 100  # as deep as messages may be nested, and more
UNCOUNTED_BYTES: Final = 1 << 20
LEAST_BYTES: Final = 4  # of a value in a list of google.protobuf
VARINT, LENGTH_DELIMITED, GROUP_BEGINS, GROUP_ENDS = 0, 2, 3, 4
FIXED_BYTES: Final = {1: 8, 5: 4}
ITEM_BYTES: Final = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64), 8),
    **dict.fromkeys((FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32), 4),
}
MOST_VARINT_BYTES: Final = 10
CONTINUED: Final = bytes(range(0x80, 0x100))  # all bytes of an integer but the last
_AS_JSON: Final = frozenset(  # what JSON has a form of its own for
    f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)


def read_message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes that choose a message, and what comes after them. Raises InvalidData.

    They are a count and as many integers in zigzag form; a count of 0 stands for the first message.
    """
    count, data = _read_zigzag(data)
    if not 0 <= count <= MAXIMUM_INDEXES:
        raise InvalidData(f"there are {count} message indexes")
    indexes = []
    for _ in range(count):
        index, data = _read_zigzag(data)
        indexes.append(index)
    return tuple(indexes) or (0,), data


def read_protobuf(
    schema: ProtobufSchema, indexes: Sequence[int], data: bytes, budget: DecodingBudget | None = None
) -> dict[str, Any]:
    """Return the fields of a message by name, with their defaults; of a oneof only the one that is set.

    Enums are their names, or numbers without one; bytes stay bytes. Raises InvalidData.
    """
    descriptor = find_message(schema, indexes)
    if len(data) > UNCOUNTED_BYTES:
        check_number_of_values(descriptor, data)
    try:
        return _convert_fields(GetMessageClass(descriptor).FromString(data), budget or DecodingBudget())
    except (DecodeError, json_format.SerializeToJsonError, RecursionError) as error:
        raise InvalidData(f"the data is no {descriptor.full_name}: {error}") from None


def find_message(schema: ProtobufSchema, indexes: Sequence[int]) -> Descriptor:
    """Return the message that indexes choose: of the file, then of the message before. Raises InvalidData.

    They count the messages that the schema declares, so not those that protobuf adds for the entries of maps.
    """
    messages = schema.file.list_messages()
    names = [schema.file.package] if schema.file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise InvalidData(f"the schema has no message at the indexes {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].list_messages()
    return schema.descriptor.pool.FindMessageTypeByName(".".join(names))


def _convert_fields(message: Message, budget: DecodingBudget) -> dict[str, Any]:
    """Return the fields of a message by name, as plain Python; one with presence only if it is set."""
    budget.count_values(len(message.DESCRIPTOR.fields))
    return {
        field.name: _convert_value(field, getattr(message, field.name), budget)
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _convert_value(field: Any, value: Any, budget: DecodingBudget) -> Any:
    """Return the value of a field as plain Python: a dict for a map, a list if it is repeated, else one value."""
    if not field.is_repeated:
        return _convert_single_value(field, value, budget)
    budget.count_values(len(value))
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        item = entry.fields_by_name["value"]
        return {key: _convert_single_value(item, value[key], budget) for key in value}
    return [_convert_single_value(field, each, budget) for each in value]


def _convert_single_value(field: Any, value: Any, budget: DecodingBudget) -> Any:
    """Return one value of a field as plain Python: a dict for a message, the name for an enum's number."""
    if field.message_type is not None:
        if field.message_type.full_name in _AS_JSON:
            budget.count_values(value.ByteSize() // LEAST_BYTES)
            return _make_json_form(value)
        return _convert_fields(value, budget)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _make_json_form(message: Message) -> Any:
    """Return a well-known type, such as Timestamp, as protobuf's JSON. Raises InvalidData, as for the year 10,000."""
    try:
        return json_format.MessageToDict(message)
    except ValueError as error:
        raise InvalidData(str(error)) from None


def check_number_of_values(descriptor: Descriptor, data: bytes) -> None:
    """Raise InvalidData if there are too many values, before the library takes 30 bytes for each byte of them.

    What is damaged is left to the library.
    """
    values, place = DecodingBudget(), 0
    within: list[tuple[Descriptor | None, int]] = [(descriptor, len(data))]  # messages that are open, and their ends
    while within:
        message, end = within[-1]
        if place >= end:
            within.pop()
            continue
        values.count_values()
        tag, place = _read_varint(data, place)
        field = None if message is None else message.fields_by_number.get(tag >> 3)
        kind = tag & 7
        if kind == LENGTH_DELIMITED:
            size, place = _read_varint(data, place)
            if field is not None and field.message_type is not None:
                within.append((field.message_type, min(place + size, end)))
                continue
            if field is not None and field.is_repeated and field.cpp_type != field.CPPTYPE_STRING:
                item_bytes = ITEM_BYTES.get(field.type)
                packed = data[place : min(place + size, end)]
                values.count_values(len(packed) // item_bytes if item_bytes else len(packed.translate(None, CONTINUED)))
            place += size
        elif kind == VARINT:
            _, place = _read_varint(data, place)
        elif kind == GROUP_BEGINS:
            within.append((None if field is None else field.message_type, end))
        elif kind == GROUP_ENDS:
            within.pop()
        else:
            place += FIXED_BYTES.get(kind, len(data))


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return an integer, and the place behind it; what is cut off is 0."""
    number = 0
    for index, byte in enumerate(data[position : position + MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, position + index + 1
    return 0, len(data)


def _read_zigzag(data: bytes) -> tuple[int, bytes]:
    """Return an integer in zigzag form, of at most five bytes, and what comes after it. Raises InvalidData."""
    number = 0
    for place, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), data[place + 1 :]
    raise InvalidData("a message index ends too early, or has more than five bytes")
