"""The declaration of a field: its type, the versions that have it, and its default.

The notation for versions and the names of types are Kafka's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.primitives import ZERO_UUID, Region

int8 = Annotated[int, "b"]  # the letter of Python's struct module
int16 = Annotated[int, "h"]
uint16 = Annotated[int, "H"]
int32 = Annotated[int, "i"]
uint32 = Annotated[int, "I"]
int64 = Annotated[int, "q"]
float64 = Annotated[float, "d"]
Uuid = Annotated[bytes, "16s"]  # 16 raw bytes: a UUID object would cost 1.5 us on the hot path
Records = Annotated[memoryview, "records"]  # record batches, as a slice of the input, never a copy
RecordsOrRegion = Annotated[memoryview | bytes | bytearray | Region, "records"]  # a writer may pass a region

_LETTERS = {bool: "?", str: "string", bytes: "bytes"}
_EMPTY: dict[str, Any] = {"?": False, "d": 0.0, "16s": ZERO_UUID, "string": "", "bytes": b"", "records": None}
_VERSIONS_END = 1 << 15


class FieldType(NamedTuple):
    """A field's type.

    `code` is a letter of the struct module for a fixed size, else "string", "bytes", "records", "array" (of `item`) or
    "struct" (of class `struct`).
    """

    code: str
    item: FieldType | None = None
    struct: type | None = None

    @property
    def is_fixed(self) -> bool:
        return self.code in _SIZES

    @property
    def size_bytes(self) -> int:
        """The size of a value, for types of fixed size."""
        return _SIZES[self.code]


_SIZES = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


class FieldFacts(NamedTuple):
    """The arguments of `field()`. If `flexible` is None, lengths are compact in the message's flexible versions."""

    present: range
    nullable: range
    tagged: range
    tag: int
    flexible: range | None
    default: Any
    about: str = ""
    kip: int | None = None


class Field(NamedTuple):
    """A field of a struct. `optional` says whether its Python type includes None."""

    name: str
    kind: FieldType
    optional: bool
    facts: FieldFacts


@cache
def parse_versions(text: str) -> range:
    """Parse Kafka's notation for versions: "3", "0-12", "9+" or "none"."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), _VERSIONS_END if text.endswith("+") else int(last or first) + 1)


def field(
    versions: str = "0+",
    *,
    nullable: str = "0+",
    tag: int = -1,
    tagged: str | None = None,
    flexible: str | None = None,
    default: Any = ...,
    about: str = "",
    kip: int | None = None,
) -> Any:
    """Declare a field.

    present: the versions that have it; in all others it has its default.
    nullable: the versions in which it may be null, if its type includes None.
    tag, tagged: its tag, and the versions in which it is a tagged field (KIP-482); by default all present ones.
    flexible: the versions in which its length is compact, if not those of the message.
    default: by default, as in Kafka, zero, an empty value or a new struct. A tagged struct that cannot be null is None
        in Python if it is not on the wire, which saves creating one for every partition of a response.
    about: what it is for, in one sentence, for people; `describing` has some by name.
    kip: the proposal that brought it, if that is not the one of its first version; 0 if there is none.
    """
    in_tags = tagged if tagged is not None else versions if tag >= 0 else "none"
    own_rule = None if flexible is None else parse_versions(flexible)
    return FieldFacts(
        parse_versions(versions), parse_versions(nullable), parse_versions(in_tags), tag, own_rule, default, about, kip
    )


@cache
def list_declared_fields(struct: type) -> tuple[Field, ...]:
    """Return a struct's fields in wire order. Types are resolved on the first call, so a struct may use later ones."""
    declared: dict[str, FieldFacts] = struct.__dict__["__fields__"]
    texts: dict[str, str] = struct.__annotations__  # texts, as every file of messages postpones their evaluation
    names, own_names = vars(sys.modules[struct.__module__]), dict(vars(struct))
    types = {name: eval(texts[name], names, own_names) for name in declared}
    return tuple(Field(name, *_parse_annotation(types[name]), facts) for name, facts in declared.items())


def _parse_annotation(annotation: Any) -> tuple[FieldType, bool]:
    """Return the kind of a type without None, and whether None was in it."""
    if get_origin(annotation) in (Union, UnionType):
        (inner,) = (each for each in get_args(annotation) if each is not NoneType)
        return _parse_field_kind(inner), True
    return _parse_field_kind(annotation), False


def _parse_field_kind(annotation: Any) -> FieldType:
    """Return the kind of an annotation. Raises TypeError for a type that Kafka's protocol lacks."""
    if get_origin(annotation) is Annotated:
        return FieldType(get_args(annotation)[1])
    if get_origin(annotation) is list:
        return FieldType("array", item=_parse_field_kind(get_args(annotation)[0]))
    if annotation in _LETTERS:
        return FieldType(_LETTERS[annotation])
    if "__fields__" in annotation.__dict__:
        return FieldType("struct", struct=annotation)
    raise TypeError(f"{annotation!r} is not a type of the Kafka protocol")


def get_default_factory(field: Field) -> Callable[[], Any] | None:
    """Return the factory of a field's default if each instance needs its own (a list, a struct), else None."""
    if field.facts.default is not ... or field.kind.code not in ("array", "struct"):
        return None
    if field.kind.code == "array":
        return list
    return None if _has_none_as_absent_default(field) else field.kind.struct


def get_default_value(field: Field) -> Any:
    """Return a field's default if all instances can share it."""
    if field.facts.default is not ...:
        return field.facts.default
    return None if _has_none_as_absent_default(field) else _EMPTY.get(field.kind.code, 0)


def _has_none_as_absent_default(field: Field) -> bool:
    """Return whether a field is None if it is absent, and never null on the wire: an optional tagged struct."""
    return field.kind.code == "struct" and field.facts.tag >= 0 and field.optional and not field.facts.nullable
