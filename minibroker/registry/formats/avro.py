"""Avro: parsing, canonical and normalized text, and Confluent's verdicts on compatibility.

This is not a library's, as there is none in Python that keeps the order of properties, writes a schema as Avro's Java
library does, or says where two schemas differ in its words: Apache's own gives unordered sets of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from minibroker.registry.formats.avro_compatibility import Comparison
from minibroker.registry.formats.avro_types import Parser
from minibroker.registry.formats.avro_writing import canonical_text, normalized_text
from minibroker.registry.formats.schema import InvalidSchema, ParsedSchema


class AvroSchema:
    """A schema, with the types that it refers to."""

    def __init__(self, text: str, references: Mapping[str, str], check_defaults: bool) -> None:
        parser = Parser(check_defaults)
        self._referenced = [parser.parse(each) for each in references.values()]
        self.type = parser.parse(text)

    @cached_property
    def canonical(self) -> str:
        """The text as Java writes it."""
        return canonical_text(self.type, self._referenced)

    def normalized(self) -> str:
        """Return the text as Confluent normalizes it."""
        return normalized_text(self.type, self._referenced)

    def comparable(self) -> str:
        """Return the normalized text with the defaults as they are."""
        return normalized_text(self.type, self._referenced, converts=False)

    def field_names(self) -> set[str]:
        """Return the names of the fields of a record, and none for any other type."""
        return {field.name for field in self.type.fields}

    def formatted(self, format: str) -> str:
        """Return the canonical text, or with "resolved" the one that contains what it refers to."""
        return canonical_text(self.type) if format == "resolved" else self.canonical


def parse(text: str, references: Mapping[str, str], *, check_defaults: bool = False) -> AvroSchema:
    """Parse a schema. Raises InvalidSchema, with `check_defaults` if the default of a field is not valid, too."""
    try:
        return AvroSchema(text, references, check_defaults)
    except RecursionError:
        raise InvalidSchema("The types are nested too deep") from None


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """Return why the reader cannot read what was written with the writer, in Confluent's words."""
    assert isinstance(reader, AvroSchema) and isinstance(writer, AvroSchema)
    return [str(difference) for difference in Comparison().differences(reader.type, writer.type)]
