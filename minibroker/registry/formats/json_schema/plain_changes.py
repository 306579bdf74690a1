"""Changes of JSON Schemas that need no comparison of other schemas, and content models."""

from __future__ import annotations

from minibroker.registry.formats.java_order import unite_in_java_order
from minibroker.registry.formats.json_schema.json_changes import ChangePart, SchemaChange
from minibroker.registry.formats.json_schema.json_model import Array, Combined, Empty, Never, Object, Schema


def get_kind_of_added_property(schema: Schema, required: bool) -> str:
    """Return the part of a change's kind that says which sort of property was added, such as `OPTIONAL_PROPERTY`."""
    if not required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY" if schema.default is None else "REQUIRED_PROPERTY_WITH_DEFAULT"


def compare_annotations(original: Schema, update: Schema) -> list[ChangePart]:
    """Return the changes of the id, title, description and default, which schemas of all types have."""
    pairs = (
        ("ID_CHANGED", original.id, update.id),
        ("TITLE_CHANGED", original.title, update.title),
        ("DESCRIPTION_CHANGED", original.description, update.description),
        ("DEFAULT_CHANGED", original.default, update.default),
    )
    return [SchemaChange(kind) for kind, before, after in pairs if before != after]


def compare_criteria(original: Combined, update: Combined) -> list[ChangePart]:
    """Return the change between "allOf", "anyOf" and "oneOf", if there is one."""
    if original.criterion == update.criterion:
        return []
    was_single, is_single = len(original.parts) == 1, len(update.parts) == 1
    extended = (
        update.criterion == "anyOf"
        or (was_single and (is_single or update.criterion == "oneOf"))
        or (is_single and original.criterion == "allOf")
    )
    return [SchemaChange("COMBINED_TYPE_EXTENDED" if extended else "COMBINED_TYPE_CHANGED")]


def compare_required(original: Object, update: Object) -> list[ChangePart]:
    """Return which properties have become required or optional, of those that both schemas have."""
    changes: list[ChangePart] = []
    for name in unite_in_java_order(original.properties):
        if name not in update.properties or (name in original.required) == (name in update.required):
            continue
        if name in original.required:
            kind = "REQUIRED_ATTRIBUTE_REMOVED"
        else:
            has_default = update.properties[name].default is not None
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED" if has_default else "REQUIRED_ATTRIBUTE_ADDED"
        changes.append(SchemaChange(kind, (name,)))
    return changes


def is_open_object(schema: Object) -> bool:
    """Return whether an object may have any properties beside the named ones."""
    return (
        not schema.patterns
        and schema.additional
        and schema.additional_schema is None
        and (schema.unevaluated is None or isinstance(schema.unevaluated, Empty))
    )


def is_open_array(schema: Array) -> bool:
    """Return whether an array may have any items behind the first ones."""
    return (
        schema.additional
        and schema.additional_schema is None
        and (schema.unevaluated is None or isinstance(schema.unevaluated, Empty))
    )


def get_schema_of_other_items(schema: Array) -> Schema | None:
    """Return the schema of all items but the first ones, or None."""
    if schema.additional_schema is not None or not schema.additional:
        return schema.additional_schema
    return None if isinstance(schema.unevaluated, Never) else schema.unevaluated
