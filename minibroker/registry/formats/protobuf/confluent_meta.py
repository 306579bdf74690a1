"""Puts Confluent's own options into descriptors and takes them out: a text, parameters and tags of what is declared.

Clients that execute rules find the tags of fields there. A message with the field that the extension is has the same
bytes, so that no other file needs to be known.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, reduce
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats.protobuf.proto_options import convert_option_to_map, merge_options
from minibroker.registry.formats.protobuf.protobuf_model import Option, OptionKind, OptionWord

_NAMES: Final = {
    "FileOptions": "confluent.file_meta",
    "MessageOptions": "confluent.message_meta",
    "FieldOptions": "confluent.field_meta",
    "EnumOptions": "confluent.enum_meta",
    "EnumValueOptions": "confluent.enum_value_meta",
}
_MESSAGES: Final = {
    "Options": {"meta": (1088, "Meta", 1)},
    "Meta": {"doc": (1, "", 1), "params": (2, "Param", 3), "tags": (3, "", 3)},
    "Param": {"key": (1, "", 1), "value": (2, "", 1)},  # an entry of a map, which so keeps its place
}


def set_meta_options(proto: Message, options: Iterable[Option]) -> None:
    """Set Confluent's option, such as `confluent.field_meta`, of a descriptor, if it is among `options`."""
    name = _NAMES.get(proto.DESCRIPTOR.name)
    of_name = [convert_option_to_map(each) for each in options if each.custom and each.name.removeprefix(".") == name]
    if not of_name or (option := reduce(merge_options, of_name)).kind is not OptionKind.MAP:
        return
    values = option.value
    holder: Any = _make_message_class_with_meta()()
    holder.meta.doc = _format_value(values.get("doc", ""))
    for each in _make_list_of_value(values.get("params")):
        if isinstance(each, dict):
            holder.meta.params.add(key=_format_value(each.get("key", "")), value=_format_value(each.get("value", "")))
    holder.meta.tags.extend(map(_format_value, _make_list_of_value(values.get("tags"))))
    proto.MergeFromString(holder.SerializeToString())


def read_meta_options(proto: Message) -> list[Option]:
    """Return Confluent's option, such as `confluent.field_meta`, of a descriptor, or an empty list."""
    name = _NAMES.get(proto.DESCRIPTOR.name)
    if name is None:
        return []
    try:
        meta = _make_message_class_with_meta().FromString(proto.SerializeToString()).meta
    except DecodeError:  # another option has the number of Confluent's
        return []
    values = {
        "doc": meta.doc,
        "params": [{"key": each.key, "value": each.value} for each in meta.params],
        "tags": list(meta.tags),
    }
    kept = {each: value for each, value in values.items() if value}
    return [Option(name, OptionKind.MAP, kept, custom=True)] if kept else []


def _format_value(value: Any) -> str:
    """Return a string, number or name as text; empty for a map or list."""
    return value.text if isinstance(value, OptionWord) else value if isinstance(value, str) else ""


def _make_list_of_value(value: Any) -> list[Any]:
    """Return a list as it is, one value as a list, and an empty list for None."""
    return value if isinstance(value, list) else [] if value is None else [value]


@cache
def _make_message_class_with_meta() -> Any:
    """Return the class of messages that have the option as their field."""
    file = FileDescriptorProto(name="meta", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, type_name, label) in fields.items():
            kind = FieldDescriptorProto.TYPE_MESSAGE if type_name else FieldDescriptorProto.TYPE_STRING
            message.field.add(
                name=field,
                number=number,
                label=FieldDescriptorProto.Label.ValueType(label),
                type=kind,
                type_name=f".{type_name}" if type_name else None,
            )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("Options"))
