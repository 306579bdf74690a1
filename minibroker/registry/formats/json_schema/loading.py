"""Makes nodes of a schema's JSON, as Everit does for drafts 4, 6 and 7, and Confluent's translation for later drafts.

Depth is bounded by that of the JSON: a `$ref` is not followed where it stands, but when all else is loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from minibroker.registry.formats.json_schema.documents import SchemaDocuments
from minibroker.registry.formats.json_schema.json_model import (
    Always,
    Array,
    Boolean,
    Combined,
    Conditional,
    Const,
    Empty,
    Enum,
    Limit,
    Never,
    Not,
    Null,
    Number,
    Object,
    Reference,
    Schema,
    String,
)
from minibroker.registry.formats.json_schema.text import write_json
from minibroker.registry.formats.schema import InvalidSchema

ARRAY: Final = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems")
OBJECT: Final = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
)
NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING: Final = ("minLength", "maxLength", "pattern")
MAXIMUM_SCHEMAS: Final = 20_000
MAXIMUM_PARTS_CHARACTERS: Final = 4 << 20  # of all that is combined, where what is in each other counts again
MAXIMUM_INTEGER: Final = (1 << 31) - 1
KINDS: Final = {"integer": "number"}  # the keywords of a type, where they are not named as the type
CONDITIONS: Final = ("if", "then", "else")
RawSchema = dict[str, Any]


class SchemaDraft(NamedTuple):
    """What tells a draft from the others."""

    id_keyword: str
    keywords: dict[str, tuple[str, ...]]  # by the kind of value that they are about
    constant: bool = True
    conditional: bool = True
    boolean_limits: bool = False  # whether exclusiveMinimum and exclusiveMaximum are booleans
    modern: bool = False  # 2019-09 and later: `$ref` has siblings, and keywords count, not kinds of values


_FOUR: Final = {"array": ARRAY, "object": OBJECT, "number": NUMBER, "string": (*STRING, "format")}
_SIX: Final = _FOUR | {"array": (*ARRAY, "contains"), "object": (*OBJECT, "propertyNames")}
_MODERN: Final = {
    "array": (*ARRAY, "prefixItems", "contains", "minContains", "maxContains", "unevaluatedItems"),
    "object": tuple(name for name in OBJECT if name != "dependencies")
    + ("propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    "number": NUMBER,
    "string": STRING,
}
DRAFT_4: Final = SchemaDraft("id", _FOUR, constant=False, conditional=False, boolean_limits=True)
DRAFT_6: Final = SchemaDraft("$id", _SIX, conditional=False)
DRAFT_7: Final = SchemaDraft("$id", _SIX)
MODERN: Final = SchemaDraft("$id", _MODERN, modern=True)

METASCHEMAS: Final = ("http://json-schema.org/", "https://json-schema.org/")
_BY_NAME: Final = {
    "draft-04": DRAFT_4,
    "draft-06": DRAFT_6,
    "draft-07": DRAFT_7,
    "draft/2019-09": MODERN,
    "draft/2020-12": MODERN,
}


def find_draft(document: dict[str, Any]) -> SchemaDraft:
    """Return the draft that `$schema` names; draft 7 without one, or with one that is not known, as Confluent does."""
    url = document.get("$schema")
    if isinstance(url, str) and url.startswith(METASCHEMAS):
        for name, draft in _BY_NAME.items():
            if name in url:
                return draft
    return DRAFT_7


def load_schema(document: Any, references: Mapping[str, str]) -> Schema:
    """Return the node of a document. Raises InvalidSchema."""
    if isinstance(document, bool):
        return Always() if document else Never()
    if not isinstance(document, dict):
        raise InvalidSchema("a JSON Schema is an object or a boolean")
    draft = find_draft(document)
    return _SchemaLoader(draft, SchemaDocuments(document, references, draft.id_keyword)).load_all(document)


class _SchemaLoader:
    """The nodes that were made so far, by the identity of their JSON, and the references still to follow."""

    def __init__(self, draft: SchemaDraft, documents: SchemaDocuments) -> None:
        self._draft = draft
        self._documents = documents
        self._nodes: dict[int, Schema] = {}
        self._parts_characters = 0
        self._references: deque[tuple[Reference, RawSchema]] = deque()
        self._makers: dict[str, Callable[[RawSchema], Schema]] = {
            "string": _load_string,
            "integer": lambda raw: self._load_number(raw, integer=True),
            "number": self._load_number,
            "boolean": lambda raw: Boolean(),
            "null": lambda raw: Null(),
            "array": self._load_array,
            "object": self._load_object,
        }

    def load_all(self, document: RawSchema) -> Schema:
        """Return the node of the document, with all references followed."""
        root = self._load_schema(document)
        while self._references:
            reference, raw = self._references.popleft()
            name = _get_text(raw, "$ref")
            if name.startswith(METASCHEMAS):  # a schema of schemas: what it allows is not compared
                reference.target = Always()
            else:
                reference.target = self._load_schema(self._documents.resolve_reference(name, raw))
        return root

    def _load_schema(self, raw: Any) -> Schema:
        """Return the node of a schema's JSON."""
        if isinstance(raw, bool):
            return Always() if raw else Never()
        if not isinstance(raw, dict):
            raise InvalidSchema(f"a schema is an object or a boolean, not {_get_json_kind(raw)}")
        node = self._nodes.get(id(raw))
        if node is None:
            if len(self._nodes) >= MAXIMUM_SCHEMAS:
                raise InvalidSchema(f"the schema has more than {MAXIMUM_SCHEMAS} schemas in it")
            node = self._nodes[id(raw)] = self._make_schema(raw)
        return node

    def _make_schema(self, raw: RawSchema) -> Schema:
        """Return the node of an object with keywords: of its only part, or an "allOf" of its parts."""
        parts = self._load_parts(raw)
        if len(parts) == 1:
            node = parts[0]
        elif parts:
            node = Combined(
                criterion="allOf", parts=_sort_combined_first([self._set_comparison_text(part, raw) for part in parts])
            )
        else:
            node = Empty()
        node.id = _get_optional_text(raw, self._draft.id_keyword)
        node.title = _get_optional_text(raw, "title")
        node.description = _get_optional_text(raw, "description")
        node.default = write_json(raw["default"], ordered=True) if "default" in raw else None
        node.connect_bytes = raw.get("connect.type") == "bytes"
        return node

    def _load_parts(self, raw: RawSchema) -> list[Schema]:
        """Return a node for each keyword, or group of them, that a value has to match."""
        if "$ref" in raw and not self._draft.modern:  # before 2019-09 what stands beside it does not count
            return [self._load_reference(raw)]
        parts: list[Schema] = [self._load_reference(raw)] if "$ref" in raw else []
        if "enum" in raw:
            parts.append(Enum(values=frozenset(write_json(value, ordered=True) for value in _get_list(raw, "enum"))))
        parts += [
            self._load_combined_schema(raw, criterion) for criterion in ("allOf", "anyOf", "oneOf") if criterion in raw
        ]
        if "not" in raw:
            parts.append(Not(inner=self._load_schema(raw["not"])))
        if "const" in raw and self._draft.constant:
            parts.append(Const(value=write_json(raw["const"], ordered=True)))
        return parts + self._load_schemas_of_types(raw) + self._load_schemas_without_type(raw)

    def _load_reference(self, raw: RawSchema) -> Reference:
        """Return a reference, which is followed later."""
        reference = Reference()
        self._references.append((reference, raw))
        return reference

    def _load_combined_schema(self, raw: RawSchema, criterion: str) -> Combined:
        """Return the node of "allOf", "anyOf" or "oneOf"."""
        return Combined(
            criterion=criterion,
            parts=_sort_combined_first(
                [self._set_comparison_text(self._load_schema(part), part) for part in _get_list(raw, criterion)]
            ),
        )

    def _load_schemas_of_types(self, raw: RawSchema) -> list[Schema]:
        """Return the node of `type`."""
        if "type" not in raw:
            return []
        kinds = raw["type"]
        if isinstance(kinds, str):
            return [self._load_type(kinds, raw)]
        return [
            Combined(
                criterion="anyOf",
                parts=[
                    self._set_comparison_text(self._load_type(kind, raw), raw, str(kind))
                    for kind in _get_list(raw, "type")
                ],
            )
        ]

    def _load_type(self, kind: Any, raw: RawSchema) -> Schema:
        """Return the node of one type, with the keywords that are about it."""
        maker = self._makers.get(kind) if isinstance(kind, str) else None
        if maker is None:
            raise InvalidSchema(f"unknown type: [{kind}]")
        return maker(raw)

    def _load_schemas_without_type(self, raw: RawSchema) -> list[Schema]:
        """Return the nodes of keywords about kinds of values that `type` does not name, and of conditions."""
        named = raw.get("type", [])
        kinds = {KINDS.get(kind, kind) for kind in ([named] if isinstance(named, str) else named)}
        parts = [
            self._makers[kind](raw)
            for kind in ("array", "object", "number", "string")
            if kind not in kinds and any(self._has_effect(raw, keyword) for keyword in self._draft.keywords[kind])
        ]
        if self._draft.conditional and any(keyword in raw for keyword in CONDITIONS):
            for keyword in CONDITIONS:
                if keyword in raw:
                    self._load_schema(raw[keyword])
            parts.append(Conditional())
        return parts

    def _has_effect(self, raw: RawSchema, keyword: str) -> bool:
        """Return whether a keyword is there; in later drafts, one without any property in it is not."""
        if keyword not in raw:
            return False
        return not (self._draft.modern and keyword in ("properties", "patternProperties") and raw[keyword] == {})

    def _load_number(self, raw: RawSchema, integer: bool = False) -> Number:
        """Return the node of a number."""
        exclusive = {
            name: None if self._draft.boolean_limits and isinstance(raw.get(name), bool) else _get_limit(raw, name)
            for name in ("exclusiveMaximum", "exclusiveMinimum")
        }
        return Number(
            maximum=_get_limit(raw, "maximum"),
            minimum=_get_limit(raw, "minimum"),
            exclusive_maximum=exclusive["exclusiveMaximum"],
            exclusive_minimum=exclusive["exclusiveMinimum"],
            multiple_of=_get_multiple(raw),
            integer=integer,
        )

    def _load_array(self, raw: RawSchema) -> Array:
        """Return the node of an array."""
        array = Array(
            max_items=_get_count(raw, "maxItems"),
            min_items=_get_count(raw, "minItems"),
            unique=_get_boolean(raw, "uniqueItems"),
        )
        items, rest = raw.get("items"), raw.get("additionalItems")
        if self._draft.modern:
            self._add_modern_array_keywords(array, raw)
            if "prefixItems" in raw:
                items, rest = raw["prefixItems"], items
            elif isinstance(items, bool):
                items, rest = None, items
        if isinstance(items, list):
            array.first = [self._load_schema(item) for item in items]
        elif items is not None:
            array.items = self._load_schema(items)
        if rest is False:
            array.additional = array.items is not None
        elif rest is not None and rest is not True:
            array.additional_schema = self._load_schema(rest)
        if "contains" in raw and not self._draft.modern:
            self._load_schema(raw["contains"])
        return array

    def _add_modern_array_keywords(self, array: Array, raw: RawSchema) -> None:
        """Add the keywords of an array that came with 2019-09."""
        if "contains" in raw:
            self._load_schema(raw["contains"])
            array.min_contains = 1 if "minContains" not in raw else _get_limit(raw, "minContains")
            array.max_contains = _get_limit(raw, "maxContains")
        if "unevaluatedItems" in raw:
            array.unevaluated = self._load_schema(raw["unevaluatedItems"])

    def _load_object(self, raw: RawSchema) -> Object:
        """Return the node of an object."""
        node = Object(
            properties=self._load_schemas_by_name(raw, "properties"),
            patterns=self._load_schemas_by_name(raw, "patternProperties"),
            required=set(_get_texts(raw.get("required", []), "required")),
            max_properties=_get_count(raw, "maxProperties"),
            min_properties=_get_count(raw, "minProperties"),
        )
        additional = raw.get("additionalProperties", True)
        if isinstance(additional, bool):
            node.additional = additional
        else:
            node.additional_schema = self._load_schema(additional)
        if "propertyNames" in raw and "propertyNames" in self._draft.keywords["object"]:
            self._load_schema(raw["propertyNames"])
        if self._draft.modern:
            self._add_modern_object_keywords(node, raw)
        else:
            self._add_dependencies(node, raw)
        return node

    def _add_modern_object_keywords(self, node: Object, raw: RawSchema) -> None:
        """Add the keywords of an object that came with 2019-09."""
        node.schema_dependencies = self._load_schemas_by_name(raw, "dependentSchemas")
        node.property_dependencies = {
            name: set(_get_texts(names, "dependentRequired"))
            for name, names in _get_mapping(raw, "dependentRequired").items()
        }
        if "unevaluatedProperties" in raw:
            node.unevaluated = self._load_schema(raw["unevaluatedProperties"])

    def _add_dependencies(self, node: Object, raw: RawSchema) -> None:
        """Add `dependencies`."""
        for name, needed in _get_mapping(raw, "dependencies").items():
            if isinstance(needed, list):
                node.property_dependencies[name] = set(_get_texts(needed, "dependencies"))
            else:
                node.schema_dependencies[name] = self._load_schema(needed)

    def _set_comparison_text(self, node: Schema, raw: Any, kind: str = "") -> Schema:
        """Give a part of a combined schema its type and JSON as text, by which equal parts are found; return it."""
        node.text = f"{type(node).__name__} {kind} {write_json(raw, ordered=True)}"
        self._parts_characters += len(node.text)
        if self._parts_characters > MAXIMUM_PARTS_CHARACTERS:
            raise InvalidSchema("the schema combines too many schemas within each other")
        return node

    def _load_schemas_by_name(self, raw: RawSchema, keyword: str) -> dict[str, Schema]:
        """Return the nodes of a keyword that has schemas by name."""
        return {name: self._load_schema(schema) for name, schema in _get_mapping(raw, keyword).items()}


def _load_string(raw: RawSchema) -> String:
    """Return the node of type "string"."""
    return String(
        max_length=_get_count(raw, "maxLength"),
        min_length=_get_count(raw, "minLength"),
        pattern=_get_optional_text(raw, "pattern"),
    )


def _sort_combined_first(parts: list[Schema]) -> list[Schema]:
    """Return parts with the combined schemas first, as the library Everit orders them."""
    return sorted(parts, key=lambda part: not isinstance(part, Combined))


def _get_json_kind(value: Any) -> str:
    """Return what JSON calls the kind of a value."""
    kinds = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _make_kind_error(raw: RawSchema, keyword: str, kind: str) -> InvalidSchema:
    """Return the error of a keyword whose value is of another kind."""
    return InvalidSchema(f"{keyword}: expected {kind}, found {_get_json_kind(raw[keyword])}")


def _get_text(raw: RawSchema, keyword: str) -> str:
    """Return the text of a keyword. Raises InvalidSchema."""
    if not isinstance(value := raw[keyword], str):
        raise _make_kind_error(raw, keyword, "a text")
    return value


def _get_optional_text(raw: RawSchema, keyword: str) -> str | None:
    """Return the text of a keyword, or None without it. Raises InvalidSchema."""
    return _get_text(raw, keyword) if keyword in raw else None


def _get_list(raw: RawSchema, keyword: str) -> list[Any]:
    """Return the array of a keyword. Raises InvalidSchema."""
    if not isinstance(value := raw[keyword], list):
        raise _make_kind_error(raw, keyword, "an array")
    return value


def _get_mapping(raw: RawSchema, keyword: str) -> dict[str, Any]:
    """Return the object of a keyword, empty without it. Raises InvalidSchema."""
    if not isinstance(value := raw.get(keyword, {}), dict):
        raise _make_kind_error(raw, keyword, "an object")
    return value


def _get_texts(value: Any, keyword: str) -> list[str]:
    """Return an array of texts. Raises InvalidSchema."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidSchema(f"{keyword}: expected an array of texts")
    return value


def _get_boolean(raw: RawSchema, keyword: str) -> bool:
    """Return the boolean of a keyword, False without it. Raises InvalidSchema."""
    if not isinstance(value := raw.get(keyword, False), bool):
        raise _make_kind_error(raw, keyword, "a boolean")
    return value


def _get_count(raw: RawSchema, keyword: str) -> int | None:
    """Return the integer of a keyword, or None without it. Raises InvalidSchema."""
    if keyword not in raw:
        return None
    value = raw[keyword]
    if isinstance(value, bool) or not isinstance(value, int) or not -MAXIMUM_INTEGER - 1 <= value <= MAXIMUM_INTEGER:
        raise _make_kind_error(raw, keyword, "an integer of 32 bits")
    return value


def _get_limit(raw: RawSchema, keyword: str) -> Limit | None:
    """Return the number of a keyword, or None without it. Raises InvalidSchema."""
    if keyword not in raw:
        return None
    if isinstance(value := raw[keyword], bool) or not isinstance(value, int | Decimal):
        raise _make_kind_error(raw, keyword, "a number")
    return value


def _get_multiple(raw: RawSchema) -> Limit | None:
    """Return the number of "multipleOf", or None without it. Raises InvalidSchema."""
    value = _get_limit(raw, "multipleOf")
    if value is not None and not value:
        raise InvalidSchema("multipleOf should not be 0")
    return value
