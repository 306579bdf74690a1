"""What one version of a struct looks like on the wire: which fields, in which order, how small at least.

Says nothing of Python code: `reading.py` and `writing.py` make that from here.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from minibroker.protocol.fields import Field, Kind, fields


class Place(NamedTuple):
    """A field in one version. `nullable` is whether it may be null here, `compact` whether its length is a varint,
    `tagged` whether it is in the tagged section."""

    field: Field
    nullable: bool
    compact: bool
    tagged: bool

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def kind(self) -> Kind:
        return self.field.kind

    @property
    def tag(self) -> int:
        return self.field.facts.tag


class Layout(NamedTuple):
    """The fields of a version: those in its body, those in its tagged section by tag, and those it lacks."""

    body: tuple[Place, ...]
    tagged: tuple[Place, ...]
    absent: tuple[Field, ...]


@cache
def layout(struct: type, version: int, flexible: bool) -> Layout:
    """What `version` of a struct looks like inside a message that is flexible (KIP-482) in this version or not."""
    body: list[Place] = []
    tagged: list[Place] = []
    absent: list[Field] = []
    for field in fields(struct):
        facts = field.facts
        if version not in facts.present:
            absent.append(field)
            continue
        compact = flexible if facts.flexible is None else version in facts.flexible
        place = Place(field, field.optional and version in facts.nullable, compact, version in facts.tagged)
        (tagged if place.tagged else body).append(place)
    return Layout(tuple(body), tuple(sorted(tagged, key=lambda place: place.tag)), tuple(absent))


def least_bytes(struct: type, version: int, flexible: bool) -> int:
    """The fewest bytes that a struct takes in a version: what bounds how many of them the data can hold."""
    body = layout(struct, version, flexible).body
    return sum(_least_bytes(place, version, flexible) for place in body) + (1 if flexible else 0)


def _least_bytes(place: Place, version: int, flexible: bool) -> int:
    kind = place.kind
    if kind.is_fixed:
        return kind.size_bytes
    if kind.struct is not None:
        return 1 if place.nullable else least_bytes(kind.struct, version, flexible)
    if place.compact:
        return 1
    return 2 if kind.code == "string" else 4


def least_item_bytes(item: Kind, version: int, compact: bool) -> int:
    """The fewest bytes that one item of an array takes, never less than 1, so that a count is always bounded."""
    if item.is_fixed:
        return item.size_bytes
    if item.struct is not None:
        return max(1, least_bytes(item.struct, version, compact))
    return 1 if compact else 2 if item.code == "string" else 4
