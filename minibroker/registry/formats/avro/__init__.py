"""Avro: parsing, canonical and normalized text, and Confluent's verdicts on compatibility.

This is not a library's, as there is none in Python that keeps the order of properties, writes a schema as Avro's Java
library does, or says where two schemas differ in its words: Apache's own gives unordered sets of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Final

from minibroker.registry.formats.avro.avro_compatibility import DifferencePart, TypeComparison
from minibroker.registry.formats.avro.avro_types import AvroParser
from minibroker.registry.formats.avro.avro_writing import write_canonical_schema, write_normalized_schema
from minibroker.registry.formats.comparing_budget import (
    ComparingBudget,
    CountedChanges,
    describe_changes,
    iterate_changes_with_paths,
)
from minibroker.registry.formats.schema import InvalidSchema, ParsedSchema

TOO_DEEP: Final = "The types are nested too deep"


class AvroSchema:
    """A schema, with the types that it refers to."""

    def __init__(self, text: str, references: Mapping[str, str], check_defaults: bool) -> None:
        parser = AvroParser(check_defaults, write_canonical_schema)
        self._referenced = [parser.parse(each) for each in references.values()]
        self.type = parser.parse(text)

    @cached_property
    def canonical(self) -> str:
        """The text as Java writes it. Raises InvalidSchema if values are nested too deep, as the others do."""
        return _write_unless_too_deep(partial(write_canonical_schema, self.type, self._referenced))

    def get_normalized_text(self) -> str:
        """Return the text as Confluent normalizes it."""
        return _write_unless_too_deep(partial(write_normalized_schema, self.type, self._referenced))

    def get_comparable_text(self) -> str:
        """Return the normalized text with the defaults as they are."""
        return _write_unless_too_deep(
            partial(write_normalized_schema, self.type, self._referenced, converts_defaults=False)
        )

    def list_field_names(self) -> set[str]:
        """Return the names of the fields of a record, and none for any other type."""
        return {field.name for field in self.type.fields}

    def get_text_in_format(self, format: str) -> str:
        """Return the canonical text, or with "resolved" the one that contains what it refers to."""
        return (
            _write_unless_too_deep(partial(write_canonical_schema, self.type))
            if format == "resolved"
            else self.canonical
        )


def _write_unless_too_deep(write_schema: Callable[[], str]) -> str:
    """Return the text. Raises InvalidSchema if the schema is nested too deep."""
    try:
        return write_schema()
    except RecursionError:
        raise InvalidSchema(TOO_DEEP) from None


def parse(text: str, references: Mapping[str, str], *, check_defaults: bool = False) -> AvroSchema:
    """Parse a schema. Raises InvalidSchema, with `check_defaults` if the default of a field is not valid, too."""
    try:
        return AvroSchema(text, references, check_defaults)
    except RecursionError:
        raise InvalidSchema(TOO_DEEP) from None


def list_incompatibilities(
    reader: ParsedSchema, writer: ParsedSchema, budget: ComparingBudget | None = None
) -> list[str]:
    """Return why the reader cannot read the writer's data, in Confluent's words. Raises ComparisonTooLarge."""
    assert isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema)
    budget = budget or ComparingBudget()
    comparison = TypeComparison(budget)
    try:
        return _describe_differences(comparison.compare_types(reader.type, writer.type), budget)
    finally:
        comparison.clear_compared_pairs()


def _describe_differences(differences: list[DifferencePart], budget: ComparingBudget) -> list[str]:
    found = CountedChanges(differences)
    return describe_changes((str(change) for _, change in iterate_changes_with_paths([found], budget)), found.count)
