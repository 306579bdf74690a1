"""The texts of Avro schemas: as Java's `Schema.toString` writes them, and as Confluent's registry normalizes them.

Confluent's normalization writes full names and sorted properties, and then parses that and writes it as Java does.
What is left of it: properties, aliases and keys of defaults are sorted, empty docs of types are dropped, and defaults
are what Java makes of them by their types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import copysign, inf
from struct import pack, unpack
from typing import Any, Final

from minibroker.registry.formats.avro.avro_types import LONG_MAX, AvroField, AvroName, AvroType
from minibroker.registry.formats.java_json import format_json, quote_string

# The types of Java's logical types; another logical type is a property like any other.
LOGICAL_TYPES: Final = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string",),
    "date": ("int",),
    "time-millis": ("int",),
    **dict.fromkeys(("time-micros", "timestamp-millis", "timestamp-micros"), ("long",)),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), ("long",)),
}

_NOTHING: Final = object()  # the default that Java sees where a value does not fit a type


def write_canonical_schema(schema: AvroType, known_types: Iterable[AvroType] = ()) -> str:
    """Return a schema as Java writes it. Types in `known_types` are only named, as are all after their first use."""
    return _AvroWriter(known_types, sort=False, converts=False).write_type(schema, None)


def write_normalized_schema(
    schema: AvroType, known_types: Iterable[AvroType] = (), *, converts_defaults: bool = True
) -> str:
    """Return a schema as Confluent stores it when it is normalized; its defaults stay unless `converts_defaults`."""
    return _AvroWriter(known_types, sort=True, converts=converts_defaults).write_type(schema, None)


class _AvroWriter:
    def __init__(self, known: Iterable[AvroType], sort: bool, converts: bool) -> None:
        self._known = {each.name: each for each in known if each.name is not None}
        self._sort = sort
        self._converts = converts

    def write_type(self, avro_type: AvroType, namespace: str | None) -> str:
        """Return a type as JSON; of a named type that was written before, only the name."""
        if avro_type.name is not None:
            return self._write_named_type(avro_type, avro_type.name, namespace)
        if avro_type.kind == "union":
            return "[" + ",".join(self.write_type(branch, namespace) for branch in avro_type.branches) + "]"
        parts = [f'"type":"{avro_type.kind}"']
        if avro_type.kind in ("array", "map"):
            part = "items" if avro_type.kind == "array" else "values"
            parts.append(f'"{part}":{self.write_type(avro_type.element, namespace)}')
        elif not avro_type.props:
            return f'"{avro_type.kind}"'
        return _write_object([*parts, *self._write_props(avro_type)])

    def _write_named_type(self, avro_type: AvroType, name: AvroName, namespace: str | None) -> str:
        """Return a record, enum or fixed type as JSON; after its first use, only its name."""
        if self._known.get(name) is avro_type:
            return quote_string(name.format_in_namespace(namespace))
        self._known[name] = avro_type
        parts = [f'"type":"{avro_type.kind}"', f'"name":{quote_string(name.simple)}']
        if name.space != namespace:
            parts.append(f'"namespace":{quote_string(name.space or "")}')
        if avro_type.doc or (avro_type.doc is not None and not self._sort):
            parts.append(f'"doc":{quote_string(avro_type.doc)}')
        if avro_type.kind == "enum":
            parts.append(f'"symbols":{format_json(list(avro_type.symbols))}')
            if avro_type.default is not None:
                parts.append(f'"default":{quote_string(avro_type.default)}')
        elif avro_type.kind == "fixed":
            parts.append(f'"size":{avro_type.size}')
        else:
            parts.append(
                '"fields":[' + ",".join(self._write_field(field, name.space) for field in avro_type.fields) + "]"
            )
        parts += self._write_props(avro_type)
        if avro_type.aliases:
            aliases = sorted(avro_type.aliases, key=lambda alias: alias.full) if self._sort else avro_type.aliases
            parts.append(f'"aliases":{format_json([alias.format_in_namespace(name.space) for alias in aliases])}')
        return _write_object(parts)

    def _write_field(self, field: AvroField, namespace: str | None) -> str:
        parts = [f'"name":{quote_string(field.name)}', f'"type":{self.write_type(field.type, namespace)}']
        if field.doc is not None:
            parts.append(f'"doc":{quote_string(field.doc)}')
        default = _convert_default(field.type, field.default) if self._converts else field.default
        if field.has_default and default is not _NOTHING:
            parts.append(f'"default":{format_json(self._sort_keys_if_normalized(default))}')
        if field.order != "ascending":
            parts.append(f'"order":"{field.order}"')
        if field.aliases:
            parts.append(f'"aliases":{format_json(sorted(field.aliases) if self._sort else list(field.aliases))}')
        if field.props:
            parts += _write_members(self._sort_keys_if_normalized(field.props))
        return _write_object(parts)

    def _write_props(self, avro_type: AvroType) -> list[str]:
        """Return the properties of a type as members of a JSON object, in Java's order if normalized."""
        if not avro_type.props:
            return []
        props = self._sort_keys_if_normalized(avro_type.props)
        if self._sort and avro_type.kind in LOGICAL_TYPES.get(str(props.get("logicalType")), ()):
            leading = ("logicalType", "precision", "scale") if props["logicalType"] == "decimal" else ("logicalType",)
            props = {name: props[name] for name in leading if props.get(name)} | props
        return _write_members(props)

    def _sort_keys_if_normalized(self, value: Any) -> Any:
        return _sort_keys(value) if self._sort else value


def _convert_default(avro_type: AvroType, value: Any) -> Any:
    """Return a default as Java writes it, in a union as of the first branch; _NOTHING if it does not fit the type."""
    while avro_type.kind == "union" and avro_type.branches:
        avro_type = avro_type.branches[0]
    match value:
        case None | bool():
            return value
        case int() | float() if avro_type.kind in ("float", "double"):
            small = isinstance(value, float) or abs(value) <= LONG_MAX
            return (
                (_find_shortest_equal_float(value) if avro_type.kind == "float" else float(value))
                if small
                else _NOTHING
            )
        case int():
            return value if avro_type.kind in ("int", "long") else _NOTHING
        case str() if avro_type.kind in ("bytes", "fixed"):
            return value.encode("latin-1", "replace").decode("latin-1")
        case str():
            return value if avro_type.kind in ("string", "enum") else _NOTHING
        case list() if avro_type.kind == "array":
            return [_convert_inner_default(avro_type.element, each) for each in value]
        case dict() if avro_type.kind == "map":
            return {name: _convert_inner_default(avro_type.element, each) for name, each in value.items()}
        case dict() if avro_type.kind == "record":
            types = {field.name: field.type for field in avro_type.fields}
            return {name: _convert_inner_default(types[name], each) for name, each in value.items() if name in types}
    return _NOTHING


def _convert_inner_default(avro_type: AvroType, value: Any) -> Any:
    """Return what Java makes of a value within a default; a value that it would reject stays."""
    found = _convert_default(avro_type, value)
    return value if found is _NOTHING else found


def _find_shortest_equal_float(value: float) -> float:
    """Return the number with the fewest digits that is the same one in 32 bits."""
    try:
        single = unpack("f", pack("f", value))
    except OverflowError:
        return copysign(inf, value)
    return next(
        found for found in _iterate_roundings(single[0]) if unpack("f", pack("f", found)) == single or found != found
    )


def _iterate_roundings(number: float) -> Iterator[float]:
    """Yield a number rounded to one significant digit, then to two, and so on up to nine."""
    for digits in range(1, 10):
        yield float(f"{number:.{digits}g}")


def _write_object(parts: Iterable[str]) -> str:
    """Return a JSON object with these members, which are JSON already."""
    return "{" + ",".join(parts) + "}"


def _write_members(props: Mapping[str, Any]) -> list[str]:
    """Return each property as a member of a JSON object, like `"doc":"..."`."""
    return [f"{quote_string(name)}:{format_json(value)}" for name, value in props.items()]


def _sort_keys(value: Any) -> Any:
    """Return a value whose objects have their keys in alphabetical order."""
    if isinstance(value, dict):
        return {name: _sort_keys(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sort_keys(each) for each in value]
    return value
