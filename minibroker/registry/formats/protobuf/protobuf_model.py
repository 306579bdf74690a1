"""What a .proto file declares, in the parts and the order that its canonical text has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

_SCALARS: Final = (
    "bool bytes double fixed32 fixed64 float int32 int64 sfixed32 sfixed64 sint32 sint64 string uint32 uint64"
)
SCALARS: Final = frozenset(_SCALARS.split())
MAXIMUM_NUMBER: Final = (1 << 29) - 1  # of a field


class OptionKind(Enum):
    """The kind of the value of an option."""

    TEXT = "text"
    BOOLEAN = "boolean"
    NUMBER = "number"
    NAME = "name"
    MAP = "map"
    LIST = "list"
    OPTION = "option"  # another option: that of a field of a message, as in "(a).b = 1"


class OptionWord(NamedTuple):
    """A boolean, number or name within a map or list, where a plain text stands for itself."""

    kind: OptionKind
    text: str


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `value` is a text, or a dict, a list or an Option for the kinds of these names."""

    name: str
    kind: OptionKind
    value: Any
    custom: bool = False  # whether the name stands in parentheses


Range = int | tuple[int, int]  # both ends are in it


@dataclass(slots=True)
class Field:
    """A field. `label` is "required", "optional", "repeated" or nothing."""

    label: str
    type: str
    name: str
    number: int
    default: str | None = None
    json_name: str | None = None
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """A group, of proto2."""

    label: str
    name: str
    number: int
    fields: list[Field] = field(default_factory=list)


@dataclass(slots=True)
class OneOf:
    """Fields of which at most one is set."""

    name: str
    fields: list[Field] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoExtend:
    """Fields that extend a message declared elsewhere."""

    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Message:
    """A message."""

    name: str
    fields: list[Field] = field(default_factory=list)
    one_ofs: list[OneOf] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[list[Range | str]] = field(default_factory=list)  # each of a statement
    extensions: list[list[Range]] = field(default_factory=list)
    extends: list[ProtoExtend] = field(default_factory=list)

    @property
    def is_map_entry(self) -> bool:
        """Whether this stands for the entries of a map, as in a schema that was made of a descriptor."""
        return any(option.name == "map_entry" and option.value == "true" for option in self.options)

    def list_messages(self) -> list[Message]:
        """Return the messages in it."""
        return [each for each in self.types if isinstance(each, Message)]

    def iterate_all_fields(self) -> Iterator[Field]:
        """Yield its fields, and then those of its oneofs."""
        yield from self.fields
        for one_of in self.one_ofs:
            yield from one_of.fields


@dataclass(slots=True)
class EnumValue:
    """A value of an enum."""

    name: str
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class EnumType:
    """An enum."""

    name: str
    values: list[EnumValue] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserved: list[list[Range | str]] = field(default_factory=list)


Type = Message | EnumType


@dataclass(slots=True)
class Method:
    """A method of a service."""

    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    """A service."""

    name: str
    methods: list[Method] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class File:
    """A .proto file."""

    syntax: str | None = None
    package: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    extends: list[ProtoExtend] = field(default_factory=list)
    services: list[Service] = field(default_factory=list)

    def list_messages(self) -> list[Message]:
        """Return the messages that are in no other one."""
        return [each for each in self.types if isinstance(each, Message)]


def parse_map_type(type_name: str) -> tuple[str, str] | None:
    """Return the types of the keys and the values of a map, or None for any other type."""
    if not type_name.startswith("map<"):
        return None
    key, _, value = type_name[4:-1].partition(",")
    return key.strip(), value.strip()
