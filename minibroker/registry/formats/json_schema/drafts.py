"""The drafts of JSON Schema: what each calls its keywords, and which of them are of which kind of value."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

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
