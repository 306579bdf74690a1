"""The layout of a version of a struct on the wire: its fields, their order, and its smallest size."""

from __future__ import annotations

from functools import cache

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.fields import Field, FieldType, list_declared_fields


class FieldInVersion(NamedTuple):
    """A field in one version: whether it may be null, whether its length is a varint, and whether it is tagged."""

    field: Field
    nullable: bool
    compact: bool
    tagged: bool

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def kind(self) -> FieldType:
        return self.field.kind

    @property
    def tag(self) -> int:
        return self.field.facts.tag


class StructLayout(NamedTuple):
    """The fields of a version: those in its body, those in its tagged section by tag, and those it does not have."""

    body: tuple[FieldInVersion, ...]
    tagged: tuple[FieldInVersion, ...]
    absent: tuple[Field, ...]


@cache
def make_struct_layout(struct: type, version: int, flexible: bool) -> StructLayout:
    """Return the layout of a struct in `version` of a message, which is `flexible` (KIP-482) in it or not."""
    body: list[FieldInVersion] = []
    tagged: list[FieldInVersion] = []
    absent: list[Field] = []
    for field in list_declared_fields(struct):
        facts = field.facts
        if version not in facts.present:
            absent.append(field)
            continue
        compact = flexible if facts.flexible is None else version in facts.flexible
        place = FieldInVersion(field, field.optional and version in facts.nullable, compact, version in facts.tagged)
        (tagged if place.tagged else body).append(place)
    return StructLayout(tuple(body), tuple(sorted(tagged, key=lambda place: place.tag)), tuple(absent))


def measure_smallest_struct_bytes(struct: type, version: int, flexible: bool) -> int:
    """Return the smallest size of a struct in a version, which bounds how many the data can contain."""
    body = make_struct_layout(struct, version, flexible).body
    return sum(_measure_smallest_field_bytes(place, version, flexible) for place in body) + (1 if flexible else 0)


def _measure_smallest_field_bytes(versioned_field: FieldInVersion, version: int, flexible: bool) -> int:
    """Return the smallest size of a field in a version."""
    kind = versioned_field.kind
    if kind.is_fixed:
        return kind.size_bytes
    if kind.struct is not None:
        return 1 if versioned_field.nullable else measure_smallest_struct_bytes(kind.struct, version, flexible)
    if versioned_field.compact:
        return 1
    return 2 if kind.code == "string" else 4


def measure_smallest_item_bytes(item: FieldType, version: int, compact: bool) -> int:
    """Return the smallest size of an array's item, at least 1, so that the data bounds the count."""
    if item.is_fixed:
        return item.size_bytes
    if item.struct is not None:
        return max(1, measure_smallest_struct_bytes(item.struct, version, compact))
    return 1 if compact else 2 if item.code == "string" else 4


def estimate_item_memory_bytes(item: FieldType, version: int, flexible: bool) -> int:
    """Return the memory of an empty item in a request's array, with about the memory of its part of the response."""
    return _POINTER_BYTES + _estimate_object_memory_bytes(item, version, flexible) + _ANSWERED_BYTES


def _estimate_object_memory_bytes(field_type: FieldType, version: int, flexible: bool) -> int:
    """Return the memory of an empty value of this type, with the structs inside of it."""
    if field_type.item is not None:
        return _LIST_BYTES
    if field_type.code == "records":
        return _VIEW_BYTES
    if field_type.struct is None:
        return _VALUE_BYTES
    places = (
        *make_struct_layout(field_type.struct, version, flexible).body,
        *make_struct_layout(field_type.struct, version, flexible).tagged,
    )
    nested = (place.kind for place in places if place.kind.item or place.kind.struct or place.kind.code == "records")
    slots = _POINTER_BYTES * len(list_declared_fields(field_type.struct))
    return _HEAD_BYTES + slots + sum(_estimate_object_memory_bytes(each, version, flexible) for each in nested)


# The sizes of CPython 3.11 on a 64-bit machine, with the overhead of its garbage collector.
_POINTER_BYTES = 8
_HEAD_BYTES = 40
_LIST_BYTES = 72
_VIEW_BYTES = 200
_VALUE_BYTES = 32
_ANSWERED_BYTES = 160
