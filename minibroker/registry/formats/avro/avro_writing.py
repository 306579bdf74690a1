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


def write_canonical_schema(schema: AvroType, known: Iterable[AvroType] = ()) -> str:
    """Return a schema as Java writes it. Types in `known` are only named, as are all after their first use."""
    return _AvroWriter(known, sort=False, converts=False).write_type(schema, None)


def write_normalized_schema(schema: AvroType, known: Iterable[AvroType] = (), *, converts: bool = True) -> str:
    """Return a schema as Confluent stores it when it is normalized; the defaults stay unless it `converts` them."""
    return _AvroWriter(known, sort=True, converts=converts).write_type(schema, None)


class _AvroWriter:
    def __init__(self, known: Iterable[AvroType], sort: bool, converts: bool) -> None:
        self._known = {each.name: each for each in known if each.name is not None}
        self._sort = sort
        self._converts = converts

    def write_type(self, kind: AvroType, space: str | None) -> str:
        if kind.name is not None:
            return self._write_named(kind, kind.name, space)
        if kind.kind == "union":
            return "[" + ",".join(self.write_type(branch, space) for branch in kind.branches) + "]"
        parts = [f'"type":"{kind.kind}"']
        if kind.kind in ("array", "map"):
            part = "items" if kind.kind == "array" else "values"
            parts.append(f'"{part}":{self.write_type(kind.element, space)}')
        elif not kind.props:
            return f'"{kind.kind}"'
        return _write_object([*parts, *self._write_props(kind)])

    def _write_named(self, kind: AvroType, name: AvroName, space: str | None) -> str:
        if self._known.get(name) is kind:
            return quote_string(name.format_in_namespace(space))
        self._known[name] = kind
        parts = [f'"type":"{kind.kind}"', f'"name":{quote_string(name.simple)}']
        if name.space != space:
            parts.append(f'"namespace":{quote_string(name.space or "")}')
        if kind.doc or (kind.doc is not None and not self._sort):
            parts.append(f'"doc":{quote_string(kind.doc)}')
        if kind.kind == "enum":
            parts.append(f'"symbols":{format_json(list(kind.symbols))}')
            if kind.default is not None:
                parts.append(f'"default":{quote_string(kind.default)}')
        elif kind.kind == "fixed":
            parts.append(f'"size":{kind.size}')
        else:
            parts.append('"fields":[' + ",".join(self._write_field(field, name.space) for field in kind.fields) + "]")
        parts += self._write_props(kind)
        if kind.aliases:
            aliases = sorted(kind.aliases, key=lambda alias: alias.full) if self._sort else kind.aliases
            parts.append(f'"aliases":{format_json([alias.format_in_namespace(name.space) for alias in aliases])}')
        return _write_object(parts)

    def _write_field(self, field: AvroField, space: str | None) -> str:
        parts = [f'"name":{quote_string(field.name)}', f'"type":{self.write_type(field.type, space)}']
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

    def _write_props(self, kind: AvroType) -> list[str]:
        if not kind.props:
            return []
        props = self._sort_keys_if_normalized(kind.props)
        if self._sort and kind.kind in LOGICAL_TYPES.get(str(props.get("logicalType")), ()):
            leading = ("logicalType", "precision", "scale") if props["logicalType"] == "decimal" else ("logicalType",)
            props = {name: props[name] for name in leading if props.get(name)} | props
        return _write_members(props)

    def _sort_keys_if_normalized(self, value: Any) -> Any:
        return _sort_keys(value) if self._sort else value


def _convert_default(kind: AvroType, value: Any) -> Any:
    """Return what Java makes of a default: numbers of the type, by the first branch of a union; maybe _NOTHING."""
    while kind.kind == "union" and kind.branches:
        kind = kind.branches[0]
    match value:
        case None | bool():
            return value
        case int() | float() if kind.kind in ("float", "double"):
            small = isinstance(value, float) or abs(value) <= LONG_MAX
            return (_find_shortest_equal_float(value) if kind.kind == "float" else float(value)) if small else _NOTHING
        case int():
            return value if kind.kind in ("int", "long") else _NOTHING
        case str() if kind.kind in ("bytes", "fixed"):
            return value.encode("latin-1", "replace").decode("latin-1")
        case str():
            return value if kind.kind in ("string", "enum") else _NOTHING
        case list() if kind.kind == "array":
            return [_convert_inner_default(kind.element, each) for each in value]
        case dict() if kind.kind == "map":
            return {name: _convert_inner_default(kind.element, each) for name, each in value.items()}
        case dict() if kind.kind == "record":
            types = {field.name: field.type for field in kind.fields}
            return {name: _convert_inner_default(types[name], each) for name, each in value.items() if name in types}
    return _NOTHING


def _convert_inner_default(kind: AvroType, value: Any) -> Any:
    """Return what Java makes of a value within a default; what it would fail with stays."""
    found = _convert_default(kind, value)
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
    """Yield a number with ever more digits."""
    for digits in range(1, 10):
        yield float(f"{number:.{digits}g}")


def _write_object(parts: Iterable[str]) -> str:
    return "{" + ",".join(parts) + "}"


def _write_members(props: Mapping[str, Any]) -> list[str]:
    return [f"{quote_string(name)}:{format_json(value)}" for name, value in props.items()]


def _sort_keys(value: Any) -> Any:
    """Return a value whose objects have their keys in alphabetical order."""
    if isinstance(value, dict):
        return {name: _sort_keys(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sort_keys(each) for each in value]
    return value
