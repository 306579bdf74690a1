"""The interface of a format: what the registry asks of Avro, JSON Schema and Protobuf.

The modules `avro`, `json_schema` and `protobuf` each have these two functions:

    parse(text: str, references: Mapping[str, str]) -> ParsedSchema

        `references` has the text of each schema that is referenced, directly or not, by the name under which it is
        referenced; a schema comes after those that it needs itself. Raises InvalidSchema.

    list_incompatibilities(reader: ParsedSchema, writer: ParsedSchema, budget: Budget) -> list[str]

        Return why `reader` cannot read what was written with `writer`, in Confluent's words; nothing if it can. Both
        are of the module's own format. In a text, the first "%s" stands for the reader ("new" or "old"), and the second
        for the writer, as in Confluent's `Difference`; the registry replaces them. Raises ComparisonTooLarge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from minibroker.named_tuples import NamedTuple
from minibroker.registry.formats.comparing_budget import ComparingBudget

REMEDY: Final = "the extra registry: python3 -m pip install protobuf googleapis-common-protos"  # where Protobuf lacks


class InvalidSchema(ValueError):
    """A text is no schema of its format, or is not valid; the message says why."""


class InvalidData(ValueError):
    """Data cannot be read by its schema; the message says why."""


class Reference(NamedTuple):
    """A name in a schema, and the version of a subject that it stands for. Sorted as Confluent sorts them."""

    name: str
    subject: str
    version: int


class ParsedSchema(Protocol):
    """A schema that was parsed together with what it references."""

    @property
    def canonical(self) -> str:
        """Return the text as Confluent stores it (`canonicalString`), which ids and GUIDs depend on."""

    def get_normalized_text(self) -> str:
        """Return the text as Confluent stores it with `normalize=true`."""

    def get_comparable_text(self) -> str:
        """Return a text that is equal for schemas that Confluent takes for the same one."""

    def list_field_names(self) -> set[str]:
        """Return the names of the fields that are not within another one."""

    def get_text_in_format(self, format: str) -> str:
        """Return the text in a format that Confluent knows for this kind of schema, such as "resolved" or "serialized".

        Any other format, "" as well, gives `canonical`.
        """


class Format(Protocol):
    """A module of a format."""

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Parse a schema. Raises InvalidSchema."""

    def list_incompatibilities(self, reader: ParsedSchema, writer: ParsedSchema, budget: ComparingBudget) -> list[str]:
        """Return why the reader cannot read what was written with the writer. Raises ComparisonTooLarge."""
