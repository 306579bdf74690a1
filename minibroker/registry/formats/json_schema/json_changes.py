"""What may change between two JSON Schemas: Confluent's names, which of them a reader survives, and its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from minibroker.registry.formats.comparing_budget import ChangesBelow, CountedChanges

_COMPATIBLE: Final = """
ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED
MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED UNIQUE_ITEMS_REMOVED
MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
"""
STRICT: Final = frozenset(_COMPATIBLE.split())  # of Confluent's policies of compatibility, the one by default
LENIENT: Final = STRICT | {
    *("ADDITIONAL_PROPERTIES_NARROWED", "ADDITIONAL_PROPERTIES_REMOVED"),
    *("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
}

_SENTENCES: Final = {
    """
    MAXIMUM_ADDED MINIMUM_ADDED EXCLUSIVE_MAXIMUM_ADDED EXCLUSIVE_MINIMUM_ADDED MULTIPLE_OF_ADDED
    MAX_LENGTH_ADDED MIN_LENGTH_ADDED PATTERN_ADDED REQUIRED_ATTRIBUTE_ADDED MAX_PROPERTIES_ADDED MIN_PROPERTIES_ADDED
    DEPENDENCY_ARRAY_ADDED DEPENDENCY_SCHEMA_ADDED MAX_ITEMS_ADDED MIN_ITEMS_ADDED MAX_CONTAINS_ADDED MIN_CONTAINS_ADDED
    UNIQUE_ITEMS_ADDED ADDITIONAL_ITEMS_REMOVED ADDITIONAL_PROPERTIES_REMOVED
    UNEVALUATED_PROPERTIES_REMOVED UNEVALUATED_ITEMS_REMOVED
    """: "The keyword at path '{path}' in the %s schema is not present in the %s schema",
    """
    MIN_LENGTH_INCREASED MINIMUM_INCREASED EXCLUSIVE_MINIMUM_INCREASED MIN_PROPERTIES_INCREASED MULTIPLE_OF_EXPANDED
    MIN_ITEMS_INCREASED MIN_CONTAINS_INCREASED
    """: "The value at path '{path}' in the %s schema is more than its value in the %s schema",
    """
    MAX_LENGTH_DECREASED MAXIMUM_DECREASED MAX_ITEMS_DECREASED MAX_CONTAINS_DECREASED EXCLUSIVE_MAXIMUM_DECREASED
    MAX_PROPERTIES_DECREASED
    """: "The value at path '{path}' in the %s schema is less than its value in the %s schema",
    """
    PATTERN_CHANGED MULTIPLE_OF_CHANGED DEPENDENCY_ARRAY_CHANGED
    """: "The value at path '{path}' is different between the %s and %s schema",
    """
    ADDITIONAL_ITEMS_NARROWED ENUM_ARRAY_NARROWED SUM_TYPE_NARROWED ADDITIONAL_PROPERTIES_NARROWED
    UNEVALUATED_PROPERTIES_NARROWED UNEVALUATED_ITEMS_NARROWED
    """: "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema",
    """
    DEPENDENCY_ARRAY_EXTENDED PRODUCT_TYPE_EXTENDED SUM_TYPE_EXTENDED NOT_TYPE_EXTENDED
    """: "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema",
    """
    TYPE_CHANGED TYPE_NARROWED COMBINED_TYPE_CHANGED COMBINED_TYPE_SUBSCHEMAS_CHANGED ENUM_ARRAY_CHANGED
    """: "A type at path '{path}' is different between the %s schema and the %s schema",
    """
    REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_OPEN_CONTENT_MODEL
    """: "The %s schema has an open content model and has a property or item at path '{path}' which is missing in the %s schema",  # noqa: E501
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "The %s schema has an unopen content model and has a required property at path '{path}' which is missing in the %s schema",  # noqa: E501
    """
    PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL
    """: "The %s has a closed content model and is missing a property or item present at path '{path}' in the %s schema",  # noqa: E501
    """
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """: "A property or item is missing in the %s schema but present at path '{path}' in the %s schema and is not covered by its partially open content model",  # noqa: E501
    """
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """: "The %s schema has a property or item at path '{path}' which is missing in the %s schema and is not covered by its partially open content model",  # noqa: E501
}
_SENTENCE: Final = {kind: sentence for kinds, sentence in _SENTENCES.items() for kind in kinds.split()}


class SchemaChange(NamedTuple):
    """A change of a kind that Confluent names, at a place in the schema."""

    kind: str
    path: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The path as Confluent writes it."""
        return f"#/{'/'.join(self.path)}"

    def make_sentence(self) -> str:
        """Return the change as Confluent describes it, with "%s" for the reader's schema and then the writer's."""
        sentence = _SENTENCE.get(self.kind, "").format(path=self.place)
        return f'{{errorType:"{self.kind}", description:"{sentence}\'}}'  # the odd quote is Confluent's


def put_changes_under_key(step: str, parts: Sequence[ChangePart]) -> list[ChangePart]:
    """Return changes as one part, below the key `step` of a schema; an empty list if there are none."""
    return [ChangesBelow(step, parts)] if parts else []


class SchemaChanges(CountedChanges):
    """The changes of a pair of schemas. They are compatible if a reader accepts all that it accepted before them."""

    __slots__ = ("compatible",)

    def __init__(self, parts: Sequence[ChangePart], allowed: frozenset[str]) -> None:
        super().__init__(parts, lambda change: change.kind not in allowed)
        self.compatible = not self.count and all(map(_is_compatible, parts))


class AssumedChanges(SchemaChanges):
    """What is known of a pair that is being compared: it is compatible, or is not, and its changes are elsewhere."""

    def __init__(self, *, compatible: bool) -> None:
        super().__init__([], STRICT)
        self.compatible = compatible


def _is_compatible(part: ChangePart) -> bool:
    """Return False if a part is or holds the changes of schemas that are not compatible."""
    if isinstance(part, ChangesBelow):
        return all(map(_is_compatible, part.parts))
    return not isinstance(part, SchemaChanges) or part.compatible


ChangePart = SchemaChange | ChangesBelow | SchemaChanges
