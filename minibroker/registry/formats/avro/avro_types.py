"""Avro schemas as a tree of types, parsed by the rules of Avro's Java library, whose errors clients know.

A name that is used twice is one object, so that the tree of a recursive schema is a graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.registry.formats.java_json import format_json, parse_json
from minibroker.registry.formats.schema import InvalidSchema

PRIMITIVES: Final = ("string", "bytes", "int", "long", "float", "double", "boolean", "null")
NAMED: Final = ("record", "error", "enum", "fixed")
FIRST_LETTER: Final = re.compile(r"[^\W\d]")
NAME: Final = re.compile(r"[^\W\d]\w*")
NUMBER: Final = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?")
RESERVED: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
ORDERS: Final = ("ascending", "descending", "ignore")
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
NO_PROPS: Final[Mapping[str, Any]] = {}
CHECKS_MAX: Final = 500_000  # of values in defaults
DEPTH_MAX: Final = 200  # of nested types, so that no text exhausts the stack


class AvroName(NamedTuple):
    """The name of a record, an enum or a fixed type; `space` is its namespace, or None."""

    simple: str
    space: str | None

    @property
    def full(self) -> str:
        """The name with its namespace."""
        return self.simple if self.space is None else f"{self.space}.{self.simple}"

    def format_in_namespace(self, namespace: str | None) -> str:
        """Return the name as it is written within a namespace."""
        if self.space is not None and self.space == namespace and self.simple not in ALL_KINDS:
            return self.simple
        return self.full


class AvroType:
    """A type. Which attributes it has depends on its `kind`, such as "record", "array" or "int"."""

    __slots__ = (
        *("aliases", "branches", "default", "doc", "element", "fields"),
        *("kind", "name", "props", "size", "symbols"),
    )

    def __init__(self, kind: str, name: AvroName | None = None) -> None:
        self.kind = kind
        self.name = name
        self.doc: str | None = None
        self.fields: Sequence[AvroField] = ()  # of a record
        self.element: AvroType = self  # of an array or a map
        self.branches: Sequence[AvroType] = ()  # of a union
        self.symbols: Sequence[str] = ()  # of an enum
        self.default: str | None = None  # of an enum
        self.size = 0  # of a fixed type
        self.aliases: Sequence[AvroName] = ()
        self.props: Mapping[str, Any] = NO_PROPS

    @property
    def java_name(self) -> str:
        """The kind as Java writes it in messages."""
        return "RECORD" if self.kind == "error" else self.kind.upper()

    @property
    def full_name(self) -> str:
        """The full name; that of an unnamed type is its kind."""
        return self.kind if self.name is None else self.name.full


class AvroField(NamedTuple):
    """A field of a record; `default` is a value of JSON, and counts only if `has_default`."""

    name: str
    type: AvroType
    doc: str | None
    has_default: bool
    default: Any
    order: str
    aliases: tuple[str, ...]
    props: Mapping[str, Any]


ALL_KINDS: Final = frozenset({*PRIMITIVES, "record", "enum", "fixed", "array", "map", "union"})
PLAIN: Final = {kind: AvroType(kind) for kind in PRIMITIVES}  # without properties, and so the same everywhere


class AvroParser:
    """Parses several schemas, of which later ones may use the names of earlier ones. `write` names a type in errors."""

    def __init__(self, check_defaults: bool, write: Callable[[AvroType], str]) -> None:
        self._check_defaults = check_defaults
        self._write = write
        self._defaults = DefaultsCheck()
        self.names: dict[str, AvroType] = {}
        self._depth = 0

    def parse(self, text: str) -> AvroType:
        """Parse a schema. Raises InvalidSchema, and RecursionError for one that is nested too deep."""
        try:
            node = parse_json(text)
        except ValueError as error:
            raise InvalidSchema(str(error)) from None
        return self._parse_type(node, None)

    def _parse_type(self, node: Any, namespace: str | None) -> AvroType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSchema(f"The types are nested more than {DEPTH_MAX} deep")
        try:
            if isinstance(node, str):
                return self._find_type(node, namespace)
            if isinstance(node, dict):
                return self._parse_complex_type(node, namespace)
            if isinstance(node, list):
                return self._parse_union(node, namespace)
        finally:
            self._depth -= 1
        raise InvalidSchema(f"Schema not yet supported: {format_json(node)}")

    def _find_known_type(self, text: str, namespace: str | None) -> AvroType | None:
        """Return a primitive type, or the named type that was defined before, or None."""
        if text in PLAIN:
            return PLAIN[text]
        name = _parse_name(text, namespace)
        return self.names.get(name.full) or self.names.get(name.simple)

    def _find_type(self, text: str, namespace: str | None) -> AvroType:
        """Return a primitive type, or the named type that was defined before. Raises InvalidSchema if there is none."""
        found = self._find_known_type(text, namespace)
        if found is None:
            raise InvalidSchema(f"Undefined name: {format_json(text)}")
        return found

    def _parse_complex_type(self, node: dict[str, Any], namespace: str | None) -> AvroType:
        kind = node.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"No type: {format_json(node)}")
        if kind in PRIMITIVES:
            made = AvroType(kind)
        elif kind in NAMED:
            return self._make_named_type(kind, node, namespace)
        elif kind in ("array", "map"):
            made = AvroType(kind)
            part, what = ("items", "array") if kind == "array" else ("values", "map")
            if part not in node:
                raise InvalidSchema(f"No {part} type: {format_json(node)}")
            made.element = self._parse_element(node[part], namespace, what)
        else:
            other = self._find_known_type(kind, namespace)
            if other is None:
                raise InvalidSchema(f"Type not supported: {kind}")
            return other
        props = {name: value for name, value in node.items() if name not in RESERVED}
        if not props and kind in PLAIN:
            return PLAIN[kind]
        made.props = props
        return made

    def _parse_element(self, node: Any, namespace: str | None, name: str) -> AvroType:
        """Parse the items of an array, or the values of a map; a bare name must be known. Raises InvalidSchema."""
        if isinstance(node, str) and self._find_known_type(node, namespace) is None:
            raise InvalidSchema(
                f'{format_json(node)} is not a defined name. The type of the "{name}" field must be a defined name or '
                'a {"type": ...} expression.'
            )
        return self._parse_type(node, namespace)

    def _make_named_type(self, kind: str, node: dict[str, Any], namespace: str | None) -> AvroType:
        given = node.get("name")
        if not isinstance(given, str):
            raise InvalidSchema(f"No name in schema: {format_json(node)}")
        own_space = node.get("namespace")
        name = _parse_name(given, own_space if isinstance(own_space, str) else namespace)
        _check_name(name.simple)
        made = AvroType(kind, name)
        made.doc = _get_optional_text(node, "doc")
        if kind == "enum":
            _set_symbols_of_enum(made, node)
        elif kind == "fixed":
            made.size = _get_fixed_size(node)
        self._define_type(made, name)
        if kind in ("record", "error"):
            self._set_fields_of_record(made, node, name.space)
        made.props = {
            key: value for key, value in node.items() if key not in RESERVED and (kind, key) != ("enum", "default")
        }
        made.aliases = tuple(_parse_name(alias, name.space) for alias in _list_aliases(node))
        return made

    def _define_type(self, named_type: AvroType, name: AvroName) -> None:
        """Note a named type, so that later ones can name it. Raises InvalidSchema if its name is taken."""
        if name.full in self.names:
            raise InvalidSchema(f"Can't redefine: {name.full}")
        self.names[name.full] = named_type

    def _set_fields_of_record(self, record: AvroType, node: dict[str, Any], namespace: str | None) -> None:
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"Record has no fields: {format_json(node)}")
        seen: dict[str, AvroField] = {}
        for each in fields:
            field = self._parse_field(each, namespace)
            if field.name in seen:
                raise InvalidSchema(f"Duplicate field {field.name} in record {record.full_name}")
            seen[field.name] = field
        record.fields = tuple(seen.values())

    def _parse_field(self, node: Any, namespace: str | None) -> AvroField:
        name = node.get("name") if isinstance(node, dict) else None
        if not isinstance(name, str):
            raise InvalidSchema(f"No field name: {format_json(node)}")
        _check_name(name)
        if node.get("type") is None:
            raise InvalidSchema(f"No field type: {format_json(node)}")
        kind = self._parse_element(node["type"], namespace, name)
        order = _get_optional_text(node, "order") or "ascending"
        if order.lower() not in ORDERS:
            raise InvalidSchema(f"No enum constant org.apache.avro.Schema.Field.Order.{order.upper()}")
        has_default, default = "default" in node, node.get("default")
        if kind.kind in ("float", "double") and isinstance(default, str):
            default = _parse_number(default, name)
        if has_default and self._check_defaults and not self._defaults.is_valid(kind, default):
            raise InvalidSchema(f"Invalid default for field {name}: {format_json(default)} not a {self._write(kind)}")
        props = {key: value for key, value in node.items() if key not in FIELD_RESERVED}
        doc = _get_optional_text(node, "doc")
        return AvroField(name, kind, doc, has_default, default, order.lower(), tuple(_list_aliases(node)), props)

    def _parse_union(self, nodes: list[Any], namespace: str | None) -> AvroType:
        union = AvroType("union")
        seen: dict[str, AvroType] = {}
        for node in nodes:
            branch = self._parse_type(node, namespace)
            if branch.kind == "union":
                raise InvalidSchema(f"Nested union: {format_json(nodes)}")
            if branch.full_name in seen:
                raise InvalidSchema(f"Duplicate in union:{branch.full_name}")
            seen[branch.full_name] = branch
        union.branches = tuple(seen.values())
        return union


def _parse_name(text: str, namespace: str | None) -> AvroName:
    head, dot, simple = text.rpartition(".")
    return AvroName(simple, head or None) if dot else AvroName(text, namespace or None)


def _check_name(name: str) -> None:
    if NAME.fullmatch(name):
        return
    if not name:
        raise InvalidSchema("Empty name")
    if not FIRST_LETTER.match(name):
        raise InvalidSchema(f"Illegal initial character: {name}")
    raise InvalidSchema(f"Illegal character in: {name}")


def _get_optional_text(node: Mapping[str, Any], key: str) -> str | None:
    value = node.get(key)
    return value if isinstance(value, str) else None


def _list_aliases(node: Mapping[str, Any]) -> Iterable[str]:
    found = node.get("aliases")
    if found is None:
        return ()
    if not isinstance(found, list):
        raise InvalidSchema(f"aliases not an array: {format_json(dict(node))}")
    if not all(isinstance(each, str) for each in found):
        raise InvalidSchema(f"alias not a string: {format_json(found)}")
    return dict.fromkeys(found)


def _set_symbols_of_enum(enum_type: AvroType, node: dict[str, Any]) -> None:
    symbols = node.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchema(f"Enum has no symbols: {format_json(node)}")
    seen: dict[str, None] = {}
    for symbol in symbols:
        text = symbol if isinstance(symbol, str) else format_json(symbol)
        _check_name(text)
        if text in seen:
            raise InvalidSchema(f"Duplicate enum symbol: {text}")
        seen[text] = None
    enum_type.symbols = tuple(seen)
    enum_type.default = _get_optional_text(node, "default")
    if enum_type.default is not None and enum_type.default not in seen:
        raise InvalidSchema(
            f"The Enum Default: {enum_type.default} is not in the enum symbol set: [{', '.join(enum_type.symbols)}]"
        )


def _get_fixed_size(node: dict[str, Any]) -> int:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size > INT_MAX:
        raise InvalidSchema(f"Invalid or no size: {format_json(node)}")
    if size < 0:
        raise InvalidSchema(f"Malformed data. Length is negative: {size}")
    return size


def _parse_number(text: str, field: str) -> float:
    """Return the number that a text names, as Java reads the default of a float. Raises InvalidSchema."""
    match = NUMBER.fullmatch(text.strip())
    if match is None:
        raise InvalidSchema(f"Can't parse number '{text}' for field '{field}'")
    return float(match[1])


class DefaultsCheck:
    """Checks defaults against types: each value against each branch of a union, so as long as that is not too much."""

    def __init__(self) -> None:
        self._left = CHECKS_MAX

    def is_valid(self, avro_type: AvroType, value: Any) -> bool:
        """Return whether a JSON value may be a default of a type; of a union, if it may be one of any branch.

        Raises InvalidSchema if that takes too long.
        """
        self._left -= 1
        if self._left < 0:
            raise InvalidSchema(f"The defaults have more than {CHECKS_MAX:,} values to be checked")
        match avro_type.kind:
            case "string" | "bytes" | "enum" | "fixed":
                return isinstance(value, str)
            case "int" | "long":
                limit = INT_MAX if avro_type.kind == "int" else LONG_MAX
                return isinstance(value, int) and not isinstance(value, bool) and -limit - 1 <= value <= limit
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "boolean":
                return isinstance(value, bool)
            case "null":
                return value is None
            case "array":
                return isinstance(value, list) and all(self.is_valid(avro_type.element, each) for each in value)
            case "map":
                return isinstance(value, dict) and all(
                    self.is_valid(avro_type.element, each) for each in value.values()
                )
            case "union":
                return any(self.is_valid(branch, value) for branch in avro_type.branches)
        return isinstance(value, dict) and all(self._has_valid_value(field, value) for field in avro_type.fields)

    def _has_valid_value(self, field: AvroField, value: dict[str, Any]) -> bool:
        """Return whether a default of a record has a valid value for this field, or the field has a default."""
        self._left -= 1
        return self.is_valid(field.type, value[field.name]) if field.name in value else field.has_default
