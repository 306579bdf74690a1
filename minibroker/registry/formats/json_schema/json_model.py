"""JSON Schemas as Confluent's registry sees them when it compares two: one kind of node for each kind of value.

The registry compares what the library Everit makes of a schema, so the kinds are Everit's: keywords of one kind of
value are one node, and keywords of several kinds are nodes that a `Combined` joins by "allOf".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

Limit = int | Decimal


@dataclass(eq=False, slots=True)
class Schema:
    """A node. `text` tells it from the other parts of a `Combined`; it is empty elsewhere."""

    id: str | None = None
    title: str | None = None
    description: str | None = None
    default: str | None = None  # as JSON
    connect_bytes: bool = False  # whether Kafka Connect takes it for bytes, whatever its type
    text: str = ""


@dataclass(eq=False, slots=True)
class Empty(Schema):
    """`{}`: all values."""


@dataclass(eq=False, slots=True)
class Always(Empty):
    """`true`: all values."""


@dataclass(eq=False, slots=True)
class Never(Schema):
    """`false`: no value."""


@dataclass(eq=False, slots=True)
class Boolean(Schema):
    """A boolean."""


@dataclass(eq=False, slots=True)
class Null(Schema):
    """Null."""


@dataclass(eq=False, slots=True)
class String(Schema):
    """A text."""

    max_length: int | None = None
    min_length: int | None = None
    pattern: str | None = None


@dataclass(eq=False, slots=True)
class Number(Schema):
    """A number, or an integer."""

    maximum: Limit | None = None
    minimum: Limit | None = None
    exclusive_maximum: Limit | None = None
    exclusive_minimum: Limit | None = None
    multiple_of: Limit | None = None
    integer: bool = False


@dataclass(eq=False, slots=True)
class Array(Schema):
    """An array: `items` is the schema of all items; or else `first` has those of the first ones."""

    items: Schema | None = None
    first: list[Schema] = field(default_factory=list)
    additional: bool = True  # whether there may be more items than `first`
    additional_schema: Schema | None = None
    max_items: int | None = None
    min_items: int | None = None
    unique: bool = False
    max_contains: Limit | None = None
    min_contains: Limit | None = None
    unevaluated: Schema | None = None


@dataclass(eq=False, slots=True)
class Object(Schema):
    """An object."""

    properties: dict[str, Schema] = field(default_factory=dict)
    patterns: dict[str, Schema] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    additional: bool = True  # whether there may be other properties
    additional_schema: Schema | None = None
    property_dependencies: dict[str, set[str]] = field(default_factory=dict)
    schema_dependencies: dict[str, Schema] = field(default_factory=dict)
    max_properties: int | None = None
    min_properties: int | None = None
    unevaluated: Schema | None = None


@dataclass(eq=False, slots=True)
class Enum(Schema):
    """One of these values, which are JSON."""

    values: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class Const(Schema):
    """This value, which is JSON."""

    value: str = ""


@dataclass(eq=False, slots=True)
class Not(Schema):
    """What another schema does not allow."""

    inner: Schema = field(default_factory=Empty)


@dataclass(eq=False, slots=True)
class Combined(Schema):
    """What all, any or one of some schemas allow."""

    criterion: str = "allOf"
    parts: list[Schema] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Conditional(Schema):
    """`if`, `then` and `else`, which Confluent does not compare."""


@dataclass(eq=False, slots=True)
class Reference(Schema):
    """A `$ref`."""

    target: Schema | None = None

    def resolve(self) -> Schema:
        """Return the schema at the end of a chain of references; one that only leads back to itself allows all."""
        schema: Schema = self
        chain: dict[int, Reference] = {}
        while isinstance(schema, Reference):
            if schema.target is None or id(schema) in chain:
                schema = _ANYTHING
                break
            chain[id(schema)] = schema
            schema = schema.target
        for each in chain.values():
            each.target = schema  # so that a chain is followed once
        return schema


_ANYTHING = Empty()
