"""Describes messages for people: the fields in a version, and the generated Python that reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import isclass
from pkgutil import iter_modules
from typing import NamedTuple

from minibroker.protocol import headers, messages
from minibroker.protocol.declare import Message
from minibroker.protocol.fields import Field, FieldType, get_default_factory, get_default_value, list_declared_fields
from minibroker.protocol.generated_readers import generate_reader
from minibroker.protocol.generated_writers import generate_writer
from minibroker.protocol.layout import FieldInVersion, make_struct_layout
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record_fields import STRUCTS, RecordStruct
from minibroker.protocol.shared_fields import ABOUT

_TYPES = {"?": "bool", "b": "int8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "q": "int64"}
_TYPES |= {"d": "float64", "16s": "uuid"}


class FieldRow(NamedTuple):
    """A field in one version of a message.

    `depth` is the number of enclosing structs, `type` is in Kafka's notation ("[]int32"), `versions` are all that have
    the field, `tag` is None outside the tagged section, `default` is its value in versions without it, as Python.
    `about` says what it is for, `kip` is the number of the proposal that brought it; empty and None if not known.
    """

    depth: int
    name: str
    type: str
    versions: str
    nullable: bool
    compact: bool
    tag: int | None
    default: str
    about: str
    kip: int | None


def find_messages_by_name(name: str) -> list[type[Message]]:
    """Return the messages of a name: "Metadata" is a request and a response, "TopicRecord" is a record.

    Case does not matter. The list may be empty.
    """
    wanted = {name.lower(), f"{name}request".lower(), f"{name}response".lower()}
    return [message for message in list_messages() if message.__name__.lower() in wanted]


def list_messages() -> list[type[Message]]:
    """Return all messages, by file name, and in the order of each file."""
    modules = [import_module(f"{messages.__name__}.{each.name}") for each in iter_modules(messages.__path__)]
    found = [each for module in [*modules, headers] for each in vars(module).values()]
    return [each for each in found if isclass(each) and issubclass(each, Message) and each is not Message]


def list_message_names() -> list[str]:
    """Return all names that may be asked for: messages, APIs, and the parts of records."""
    names = {message.__name__ for message in list_messages()}
    names |= {name.removesuffix("Request") for name in names}
    return sorted(names.union(*(struct.names for struct in STRUCTS)))


def summarize_message(message: type[Message]) -> str:
    """Return what a message is, in one line."""
    return (message.__doc__ or "").partition("\n")[0]


def describe_fields(message: type[Message], version: int) -> list[FieldRow]:
    """Return the fields of a version in wire order. Nested fields follow the field that contains them.

    Raises ValueError for a version that the message does not have.
    """
    message.check_version(version)
    return _describe_struct_fields(message, message, version, 0)


def find_record_structs(name: str) -> list[RecordStruct]:
    """Return the part of records of a name, "RecordBatch" or "MessageSet", if there is one. Case does not matter."""
    return [struct for struct in STRUCTS if name.lower() in map(str.lower, struct.names)]


def describe_record_fields(struct: RecordStruct, depth: int = 0) -> list[FieldRow]:
    """Return the fields of a part of records. Nested fields follow the field that contains them."""
    nested = {f"[]{each.type}": each for each in STRUCTS}
    rows: list[FieldRow] = []
    for field in struct.fields:
        name, type_, about, kip, nullable, versions = field
        rows.append(FieldRow(depth, name, type_, versions or struct.versions, nullable, False, None, "", about, kip))
        if type_ in nested:
            rows += describe_record_fields(nested[type_], depth + 1)
    return rows


def generate_reader_text(message: type[Message], version: int) -> str:
    """Return the Python that reads a version. Raises ValueError for a version that the message does not have."""
    message.check_version(version)
    return "\n".join(generate_reader(message, version, version in message.flexible).lines)


def generate_writer_text(message: type[Message], version: int) -> str:
    """Return the Python that writes a version. Raises ValueError for a version that the message does not have."""
    message.check_version(version)
    return "\n".join(generate_writer(message, version, version in message.flexible).lines)


def format_versions(versions: range, newest: int) -> str:
    """Return a range of versions in Kafka's notation: "3+", "0-8", "none". `newest` is the message's newest version."""
    if not versions or versions.start > newest:
        return "none"
    if versions[-1] >= newest:
        return f"{versions.start}+"
    return str(versions.start) if len(versions) == 1 else f"{versions.start}-{versions[-1]}"


def _describe_struct_fields(struct: type, message: type[Message], version: int, depth: int) -> list[FieldRow]:
    shape = make_struct_layout(struct, version, version in message.flexible)
    rows: list[FieldRow] = []
    for place in shape.body + shape.tagged:
        rows.append(_describe_field(place, struct, message, version, depth))
        nested = (place.kind.item or place.kind).struct
        if nested is not None:
            rows += _describe_struct_fields(nested, message, version, depth + 1)
    return rows


def _describe_field(
    versioned_field: FieldInVersion, struct: type, message: type[Message], version: int, depth: int
) -> FieldRow:
    field = versioned_field.field
    told = find_field_background(field.name, struct, message)
    return FieldRow(
        depth=depth,
        name=versioned_field.name,
        type=format_type(versioned_field.kind),
        versions=told.versions,
        nullable=versioned_field.nullable,
        compact=versioned_field.compact and not versioned_field.kind.is_fixed and versioned_field.kind.struct is None,
        tag=versioned_field.tag if version in field.facts.tagged else None,
        default=_format_default(field),
        about=told.about,
        kip=told.kip,
    )


class FieldBackground(NamedTuple):
    """What the bytes of a field do not say: which versions have it, what it is for, and the KIP that brought it."""

    versions: str
    about: str
    kip: int | None


@cache
def find_field_background(name: str, struct: type, message: type[Message]) -> FieldBackground:
    """Return what is known of a field of `struct`, which is the message, or a part of it."""
    (field,) = (each for each in list_declared_fields(struct) if each.name == name)
    present, (first, kip) = field.facts.present, _find_first_versions_of_structs(message)[struct]
    if present.start > first:
        first, kip = present.start, None
    return FieldBackground(
        format_versions(range(first, present.stop), message.versions[-1]),
        field.facts.about or ABOUT.get(name, ""),
        (field.facts.kip if field.facts.kip is not None else kip or message.kips.get(first)) or None,
    )


@cache
def _find_first_versions_of_structs(message: type[Message]) -> Mapping[type, tuple[int, int | None]]:
    """Return the first version that has each struct of a message, and the KIP of the field it came with, if it has one.

    The fields of the struct may be declared as if they had been there before.
    """
    first_versions: dict[type, tuple[int, int | None]] = {}

    def collect_first_version(struct: type, first: int, kip: int | None) -> None:
        if struct in first_versions and first_versions[struct][0] <= first:
            return
        first_versions[struct] = first, kip
        for field in list_declared_fields(struct):
            nested = (field.kind.item or field.kind).struct
            if nested is not None:
                own = field.facts
                collect_first_version(
                    nested, max(first, own.present.start), own.kip or (kip if own.present.start <= first else None)
                )

    collect_first_version(message, message.versions.start, None)
    return first_versions


def _format_default(field: Field) -> str:
    maker = get_default_factory(field)
    if maker is not None:
        return "[]" if maker is list else f"{maker.__name__}()"
    value = get_default_value(field)
    return "ZERO_UUID" if value == ZERO_UUID else repr(value)


def format_type(field_type: FieldType) -> str:
    if field_type.item is not None:
        return f"[]{format_type(field_type.item)}"
    return field_type.struct.__name__ if field_type.struct is not None else _TYPES.get(field_type.code, field_type.code)
