"""Reads data of Protobuf: the message of a schema that indexes choose, as values of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats.protobuf import ProtobufSchema
from minibroker.registry.formats.schema import InvalidData

MAXIMUM_INDEXES: Final = 100  # as deep as messages may be nested, and more
_AS_JSON: Final = frozenset(  # what JSON has a form of its own for
    f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue")
)


def read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes that choose a message, and what comes after them. Raises InvalidData.

    They are a count and as many integers in zigzag form; a count of 0 stands for the first message.
    """
    count, data = _zigzag(data)
    if not 0 <= count <= MAXIMUM_INDEXES:
        raise InvalidData(f"there are {count} message indexes")
    indexes = []
    for _ in range(count):
        index, data = _zigzag(data)
        indexes.append(index)
    return tuple(indexes) or (0,), data


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the form of indexes that choose a message."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_varint, (len(indexes), *indexes)))


def read_protobuf(schema: ProtobufSchema, indexes: Sequence[int], data: bytes) -> dict[str, Any]:
    """Return the fields of a message by name, with their defaults; of a oneof only the one that is set.

    Enums are their names, or numbers without one; bytes stay bytes. Raises InvalidData.
    """
    descriptor = message_of(schema, indexes)
    try:
        return _fields(GetMessageClass(descriptor).FromString(data))
    except (DecodeError, json_format.SerializeToJsonError, ValueError, RecursionError) as error:
        raise InvalidData(f"the data is no {descriptor.full_name}: {error}") from None


def message_of(schema: ProtobufSchema, indexes: Sequence[int]) -> Descriptor:
    """Return the message that indexes choose: of the file, then of the message before. Raises InvalidData.

    They count the messages that the schema declares, so not those that protobuf adds for the entries of maps.
    """
    messages = schema.file.messages()
    names = [schema.file.package] if schema.file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise InvalidData(f"the schema has no message at the indexes {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].messages()
    return schema.descriptor.pool.FindMessageTypeByName(".".join(names))


def _fields(message: Message) -> dict[str, Any]:
    """Return the fields of a message."""
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: Any, value: Any) -> Any:
    """Return the value of a field."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        item = entry.fields_by_name["value"]
        return {key: _single(item, value[key]) for key in value}
    if field.is_repeated:
        return [_single(field, each) for each in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    """Return one value of a field."""
    if field.message_type is not None:
        if field.message_type.full_name in _AS_JSON:
            return json_format.MessageToDict(value)
        return _fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _zigzag(data: bytes) -> tuple[int, bytes]:
    """Return an integer in zigzag form, of at most five bytes, and what comes after it. Raises InvalidData."""
    number = 0
    for place, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), data[place + 1 :]
    raise InvalidData("a message index ends too early, or has more than five bytes")


def _varint(number: int) -> bytes:
    """Return an integer in zigzag form."""
    left = (number << 1) ^ (number >> 31)
    result = bytearray()
    while left >= 0x80:
        result.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*result, left))
