"""Turns .proto files into descriptors and back: clients register them in base64, and decoding needs them.

Options that are neither Protobuf's own nor Confluent's are left out of descriptors; no reader of data needs them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.message_factory import GetMessageClass

from minibroker.registry.formats.protobuf.confluent_meta import read_meta_options, set_meta_options
from minibroker.registry.formats.protobuf.proto_names import NameScope, ProtoNames, is_enum
from minibroker.registry.formats.protobuf.proto_reading import MAXIMUM_CHARACTERS
from minibroker.registry.formats.protobuf.protobuf_model import (
    MAXIMUM_NUMBER,
    SCALARS,
    EnumType,
    EnumValue,
    Field,
    File,
    Message,
    Method,
    OneOf,
    Option,
    OptionKind,
    ProtoExtend,
    Range,
    Service,
    Type,
    parse_map_type,
)
from minibroker.registry.formats.protobuf.words import MAXIMUM_DEPTH
from minibroker.registry.formats.schema import InvalidSchema

_LABELS: Final = {"required": 2, "optional": 1, "repeated": 3, "": 1}
_TYPES: Final = {name.removeprefix("TYPE_").lower(): number for name, number in FieldDescriptorProto.Type.items()}
_TYPE_NAMES: Final = {number: name for name, number in _TYPES.items()}


@cache
def _make_file_class() -> type[FileDescriptorProto]:
    """Return a class of descriptors that knows no options but Protobuf's own, whatever else the process imports."""
    pool = DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    return GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))  # type: ignore[return-value]


def parse_base64_descriptor(text: str) -> File | None:
    """Return the file that a FileDescriptorProto in base64 describes, or None if the text is none."""
    if len(text) > MAXIMUM_CHARACTERS:
        return None
    try:
        proto = _make_file_class().FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    _check_depth(proto.message_type)
    return parse_file(proto)


def encode_base64_descriptor(proto: FileDescriptorProto) -> str:
    """Return a descriptor in base64."""
    return base64.b64encode(proto.SerializeToString(deterministic=True)).decode()


# From descriptors


def parse_file(proto: FileDescriptorProto) -> File:
    """Return the file that a descriptor describes."""
    public = set(proto.public_dependency)
    return File(
        syntax=proto.syntax if proto.syntax in ("proto2", "proto3") else None,
        package=proto.package or None,
        imports=[name for index, name in enumerate(proto.dependency) if index not in public],
        public_imports=[name for index, name in enumerate(proto.dependency) if index in public],
        options=_parse_options(proto.options),
        types=[*map(_make_message_parser(proto.syntax), proto.message_type), *map(_parse_enum, proto.enum_type)],
        extends=_parse_extends(proto.extension, proto.syntax),
        services=[
            Service(
                service.name,
                [
                    Method(
                        method.name,
                        method.input_type,
                        method.output_type,
                        method.client_streaming,
                        method.server_streaming,
                        _parse_options(method.options),
                    )
                    for method in service.method
                ],
                _parse_options(service.options),
            )
            for service in proto.service
        ],
    )


def _make_message_parser(syntax: str) -> Callable[[DescriptorProto], Message]:
    """Return a function that makes the model's message of a descriptor."""

    def make_message(proto: DescriptorProto) -> Message:
        one_ofs = [OneOf(each.name) for each in proto.oneof_decl]
        message = Message(proto.name)
        for field in proto.field:
            if field.HasField("oneof_index") and not field.proto3_optional and field.oneof_index < len(one_ofs):
                one_ofs[field.oneof_index].fields.append(_parse_field(field, syntax, in_one_of=True))
            else:
                message.fields.append(_parse_field(field, syntax))
        message.one_ofs = [each for each in one_ofs if each.fields]
        message.types = [*map(make_message, proto.nested_type), *map(_parse_enum, proto.enum_type)]
        message.options = _parse_options(proto.options)
        message.reserved = [[_parse_range(each.start, each.end - 1)] for each in proto.reserved_range]
        message.reserved += [[name] for name in proto.reserved_name]
        message.extensions = [[_parse_range(each.start, each.end - 1)] for each in proto.extension_range]
        message.extends = _parse_extends(proto.extension, syntax)
        return message

    return make_message


def _parse_enum(proto: EnumDescriptorProto) -> EnumType:
    """Return the enum that a descriptor describes."""
    reserved: list[list[Range | str]] = [[_parse_range(each.start, each.end)] for each in proto.reserved_range]
    reserved += [[name] for name in proto.reserved_name]
    values = [EnumValue(each.name, each.number, _parse_options(each.options)) for each in proto.value]
    return EnumType(proto.name, values, _parse_options(proto.options), reserved)


def _parse_field(proto: FieldDescriptorProto, syntax: str, *, in_one_of: bool = False) -> Field:
    """Return the field that a descriptor describes."""
    label = {2: "required", 3: "repeated"}.get(proto.label, "optional")
    if in_one_of or (syntax == "proto3" and label != "repeated" and not proto.proto3_optional):
        label = ""
    return Field(
        label,
        proto.type_name or _TYPE_NAMES.get(proto.type, "bytes"),
        proto.name,
        proto.number,
        proto.default_value if syntax != "proto3" and proto.HasField("default_value") else None,
        proto.json_name if proto.HasField("json_name") else None,
        _parse_options(proto.options),
    )


def _parse_extends(fields: Iterable[FieldDescriptorProto], syntax: str) -> list[ProtoExtend]:
    """Return extensions, by the message that they extend."""
    by_name: dict[str, ProtoExtend] = {}
    for field in fields:
        by_name.setdefault(field.extendee, ProtoExtend(field.extendee)).fields.append(_parse_field(field, syntax))
    return list(by_name.values())


def _parse_range(start: int, end: int) -> Range:
    return start if start == end else (start, end)


def _parse_options(options: ProtobufMessage) -> list[Option]:
    """Return Protobuf's own options of a descriptor, in the order of their fields, and Confluent's."""
    result = []
    for field, value in options.ListFields():
        if field.is_extension or field.message_type is not None or field.is_repeated:
            continue
        if field.enum_type is not None:
            result.append(Option(field.name, OptionKind.NAME, field.enum_type.values_by_number[value].name))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            result.append(Option(field.name, OptionKind.BOOLEAN, str(value).lower()))
        else:
            result.append(Option(field.name, OptionKind.TEXT, value))
    return result + read_meta_options(options)


def _check_depth(messages: Iterable[DescriptorProto]) -> None:
    """Raise InvalidSchema if messages are nested too deeply."""
    level = list(messages)
    for _ in range(MAXIMUM_DEPTH):
        level = [nested for message in level for nested in message.nested_type]
    if level:
        raise InvalidSchema(f"messages are nested more than {MAXIMUM_DEPTH} levels deep")


# To descriptors


def make_descriptor(name: str, file: File, names: ProtoNames, known_names: Iterable[str]) -> FileDescriptorProto:
    """Return the descriptor of a file, with those of its imports that are known. Raises InvalidSchema."""
    known_names = set(known_names)
    proto = _make_file_class()(name=name, package=file.package or "", syntax=file.syntax or "proto2")
    proto.dependency.extend(each for each in (*file.imports, *file.public_imports) if each in known_names)
    proto.public_dependency.extend(index for index, each in enumerate(proto.dependency) if each in file.public_imports)
    builder = _DescriptorBuilder(names, file.syntax == "proto3")
    scope = NameScope(file.package or "")
    try:
        _set_options(proto.options, file.options)
        for each in file.types:
            builder.add_type(proto, each, scope)
        builder.add_extends(proto.extension, file.extends, scope)
        for service in file.services:
            added = proto.service.add(name=service.name)
            _set_options(added.options, service.options)
            for method in service.methods:
                rpc = added.method.add(
                    name=method.name,
                    input_type=builder.get_full_name(method.request, scope),
                    output_type=builder.get_full_name(method.response, scope),
                    client_streaming=method.request_streams,
                    server_streaming=method.response_streams,
                )
                _set_options(rpc.options, method.options)
    except ValueError as error:  # a number that has no room in its field
        raise InvalidSchema(str(error)) from None
    return proto


class _DescriptorBuilder:
    """The names that types are found by, and the syntax of the file."""

    def __init__(self, names: ProtoNames, is_proto3: bool) -> None:
        self._names = names
        self._is_proto3 = is_proto3

    def get_full_name(self, type_name: str, scope: NameScope) -> str:
        """Return the full name of a type, or the name as it stands if there is none."""
        full = self._names.resolve_type_name(type_name, scope)
        return type_name if full is None else f".{full}"

    def add_type(self, parent: Any, type_: Type, scope: NameScope) -> None:
        """Add a message or enum to a file's or message's descriptor."""
        if isinstance(type_, EnumType):
            self._add_enum(parent.enum_type.add(name=type_.name), type_)
            return
        within_a_message = parent.DESCRIPTOR.name == "DescriptorProto"
        added = parent.nested_type.add() if within_a_message else parent.message_type.add()
        self._set_fields_of_message(added, type_, scope.make_inner_scope(type_.name))

    def _set_fields_of_message(self, proto: DescriptorProto, message: Message, scope: NameScope) -> None:
        """Fill in the descriptor of a message."""
        proto.name = message.name
        _set_options(proto.options, message.options)
        for field in message.fields:
            self._add_field(proto, proto.field.add(), field, scope)
        for one_of in message.one_ofs:
            index = len(proto.oneof_decl)
            proto.oneof_decl.add(name=one_of.name)
            for field in one_of.fields:
                added = proto.field.add(oneof_index=index)
                self._add_field(proto, added, field, scope)
        for added, field in zip(list(proto.field), message.fields, strict=False):  # those of oneofs come after them
            if field.label == "optional" and self._is_proto3:
                added.proto3_optional = True
                added.oneof_index = len(proto.oneof_decl)
                proto.oneof_decl.add(name=f"_{field.name}")
        for group in message.groups:
            self._set_fields_of_message(
                proto.nested_type.add(), Message(group.name, group.fields), scope.make_inner_scope(group.name)
            )
            proto.field.add(
                name=group.name.lower(),
                number=group.number,
                label=_parse_label(group.label),
                type=FieldDescriptorProto.TYPE_GROUP,
                type_name=f".{'.'.join(filter(None, (scope.package, *scope.messages, group.name)))}",
            )
        for each in message.types:
            self.add_type(proto, each, scope)
        for start, end in _iterate_ranges(message.reserved):
            proto.reserved_range.add(start=start, end=end + 1)
        proto.reserved_name.extend(value for each in message.reserved for value in each if isinstance(value, str))
        for start, end in _iterate_ranges(message.extensions):
            proto.extension_range.add(start=start, end=end + 1)
        self.add_extends(proto.extension, message.extends, scope)

    def add_extends(self, extensions: Any, extends: Iterable[ProtoExtend], scope: NameScope) -> None:
        """Add these extensions to `extensions`, of a file's or message's descriptor."""
        for extend in extends:
            for field in extend.fields:
                added = extensions.add(extendee=self.get_full_name(extend.name, scope))
                self._add_field(None, added, field, scope)

    def _add_enum(self, proto: EnumDescriptorProto, enum: EnumType) -> None:
        """Fill in the descriptor of an enum."""
        _set_options(proto.options, enum.options)
        for value in enum.values:
            _set_options(proto.value.add(name=value.name, number=value.number).options, value.options)
        for start, end in _iterate_ranges(enum.reserved):
            proto.reserved_range.add(start=start, end=end)
        proto.reserved_name.extend(value for each in enum.reserved for value in each if isinstance(value, str))

    def _add_field(
        self, parent: DescriptorProto | None, proto: FieldDescriptorProto, field: Field, scope: NameScope
    ) -> None:
        """Fill in the descriptor of a field of a message, or of an extension."""
        proto.name, proto.number, proto.label = field.name, field.number, _parse_label(field.label)
        if entry := parse_map_type(field.type):
            if parent is None:
                raise InvalidSchema(f"{field.name}: an extension is no map")
            self._add_map_entry(parent, proto, entry, scope)
        elif field.type in SCALARS:
            proto.type = FieldDescriptorProto.Type.ValueType(_TYPES[field.type])
        else:
            definition = self._names.find_type(field.type, scope)
            proto.type_name = self.get_full_name(field.type, scope)
            if definition is not None:
                proto.type = (
                    FieldDescriptorProto.TYPE_ENUM if is_enum(definition) else FieldDescriptorProto.TYPE_MESSAGE
                )
        if field.default is not None:
            proto.default_value = field.default
        if field.json_name is not None:
            proto.json_name = field.json_name
        _set_options(proto.options, field.options)

    def _add_map_entry(
        self, parent: DescriptorProto, proto: FieldDescriptorProto, entry: tuple[str, str], scope: NameScope
    ) -> None:
        """Add the message for the entries of a map, which its field then has."""
        camel = "".join(part[:1].upper() + part[1:] for part in proto.name.split("_"))
        added = parent.nested_type.add(name=f"{camel}Entry")
        added.options.map_entry = True
        for number, (name, type_name) in enumerate(zip(("key", "value"), entry, strict=True), 1):
            self._add_field(
                None, added.field.add(), Field("", type_name, name, number), scope.make_inner_scope(added.name)
            )
        proto.label = FieldDescriptorProto.LABEL_REPEATED
        proto.type = FieldDescriptorProto.TYPE_MESSAGE
        proto.type_name = f".{'.'.join(filter(None, (scope.package, *scope.messages, added.name)))}"


def _parse_label(label: str) -> FieldDescriptorProto.Label.ValueType:
    return FieldDescriptorProto.Label.ValueType(_LABELS[label])


def _iterate_ranges(statements: Iterable[Iterable[Range | str]]) -> Iterable[tuple[int, int]]:
    """Yield (first, last) of each range of numbers in statements, which may have names, too."""
    for statement in statements:
        for value in statement:
            if not isinstance(value, str):
                yield (value, value) if isinstance(value, int) else (value[0], min(value[1], MAXIMUM_NUMBER))


def _set_options(proto: ProtobufMessage, options: Sequence[Option]) -> None:
    """Set those options that are Protobuf's own or Confluent's. Raises InvalidSchema if a value is of another kind."""
    set_meta_options(proto, options)
    for option in options:
        field = None if option.custom else proto.DESCRIPTOR.fields_by_name.get(option.name)
        if field is None or field.message_type is not None or field.is_repeated:
            continue
        value: Any = option.value
        if field.enum_type is not None:
            if value not in field.enum_type.values_by_name:
                raise InvalidSchema(f"{option.name}: there is no value {value!r}")
            value = field.enum_type.values_by_name[value].number
        elif field.type == FieldDescriptor.TYPE_BOOL:
            value = value == "true"
        elif field.type != FieldDescriptor.TYPE_STRING or option.kind is not OptionKind.TEXT:
            raise InvalidSchema(f"{option.name}: {value!r} is no value of it")
        setattr(proto, option.name, value)


# Files that need not be registered

_CONFLUENT: Final = {
    "confluent/meta.proto": """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
}
_GOOGLE: Final[Mapping[str, str]] = {
    f"google/{folder}/{name}.proto": f"google.{folder}.{name}_pb2"
    for folder, names in {
        "protobuf": "any api descriptor duration empty field_mask source_context struct timestamp type wrappers",
        "type": "calendar_period color date datetime dayofweek decimal expr fraction interval latlng money month "
        "phone_number postal_address quaternion timeofday",
    }.items()
    for name in names.split()
}


@cache
def find_well_known(name: str) -> str | File | None:
    """Return a file that Confluent's registry knows by itself: its text, or what it declares; None for any other.

    Google's common types are there if googleapis-common-protos is installed.
    """
    if name in _CONFLUENT:
        return _CONFLUENT[name]
    if name == "google/protobuf/descriptor.proto":
        return parse_file(_copy_descriptor(descriptor_pb2.DESCRIPTOR))
    if name not in _GOOGLE:
        return None
    try:
        module = import_module(_GOOGLE[name])
    except ImportError:
        return None
    return parse_file(_copy_descriptor(module.DESCRIPTOR))


def _copy_descriptor(descriptor: Any) -> FileDescriptorProto:
    """Return a descriptor as a message."""
    proto = FileDescriptorProto()
    descriptor.CopyToProto(proto)
    return proto
