"""JSON Schema for the registry: canonical texts, references, and compatibility as Confluent has it.

Drafts 4, 6, 7, 2019-09 and 2020-12; 7 without `$schema`. A schema is checked only for what Confluent reads of it: the
kinds of its keywords' values, its types and references. Regular expressions are not compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minibroker.registry.formats.comparing_budget import ComparingBudget, describe_changes, iterate_changes_with_paths
from minibroker.registry.formats.json_schema.json_changes import LENIENT, STRICT, SchemaChange, SchemaChanges
from minibroker.registry.formats.json_schema.json_comparing import SchemaComparison
from minibroker.registry.formats.json_schema.json_model import Object, Schema
from minibroker.registry.formats.json_schema.loading import load_schema
from minibroker.registry.formats.json_schema.text import read_json, write_json
from minibroker.registry.formats.schema import InvalidSchema


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A JSON Schema."""

    canonical: str
    document: Any
    root: Schema

    def get_normalized_text(self) -> str:
        """Return the canonical text with the names of each object sorted."""
        return write_json(self.document, ordered=True)

    def get_comparable_text(self) -> str:
        """Return the normalized text."""
        return self.get_normalized_text()

    def list_field_names(self) -> set[str]:
        """Return the names of the properties of an object, and none for any other type."""
        return set(self.root.properties) if isinstance(self.root, Object) else set()

    def get_text_in_format(self, format: str) -> str:
        """Return the canonical text: Confluent has no other format of a JSON Schema."""
        return self.canonical


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema, with the texts of those that it refers to by their names. Raises InvalidSchema."""
    document = read_json(text)
    canonical = write_json(document)
    try:
        canonical.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("Invalid JSON: a text has half of a surrogate pair") from None
    return JsonSchema(canonical, document, load_schema(document, references))


def list_incompatibilities(
    reader: JsonSchema, writer: JsonSchema, budget: ComparingBudget | None = None, *, lenient: bool = False
) -> list[str]:
    """Return why `reader` does not accept all that `writer` accepts, in Confluent's words; nothing if it does.

    If it is `lenient`, what is not named in `properties` may change. Raises ComparisonTooLarge.
    """
    allowed = LENIENT if lenient else STRICT
    budget = budget or ComparingBudget()
    comparison = SchemaComparison(allowed, budget)
    try:
        return _describe_incompatible_changes(comparison.compare_all(writer.root, reader.root), allowed, budget)
    finally:
        comparison.clear_compared_pairs()


def _describe_incompatible_changes(
    changes: SchemaChanges, allowed: frozenset[str], budget: ComparingBudget
) -> list[str]:
    """Return a sentence on each change whose kind is not `allowed`."""
    found = (
        SchemaChange(change.kind, path + change.path) for path, change in iterate_changes_with_paths([changes], budget)
    )
    return describe_changes((each.make_sentence() for each in found if each.kind not in allowed), changes.count)
