"""What may change between two Protobuf schemas: Confluent's names, which of them a reader survives, its sentences."""

from __future__ import annotations

from typing import Final, NamedTuple

_COMPATIBLE: Final = """
MESSAGE_ADDED MESSAGE_MOVED ENUM_ADDED ENUM_REMOVED ENUM_CONST_ADDED ENUM_CONST_CHANGED
ENUM_CONST_REMOVED FIELD_ADDED FIELD_REMOVED FIELD_NAME_CHANGED FIELD_STRING_OR_BYTES_LABEL_CHANGED
ONEOF_ADDED ONEOF_REMOVED ONEOF_FIELD_ADDED ONEOF_FIELD_MOVED_TO_TOP_LEVEL
"""
COMPATIBLE: Final = frozenset(_COMPATIBLE.split())

_SENTENCES: Final = {
    "PACKAGE_CHANGED": "The package at '{path}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{path}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}


class ProtoChange(NamedTuple):
    """A change of a kind that Confluent names, at a place in the schema."""

    kind: str
    path: tuple[str, ...]

    @property
    def compatible(self) -> bool:
        """Whether a reader with the changed schema still reads what was written before."""
        return self.kind in COMPATIBLE

    @property
    def place(self) -> str:
        """The path as Confluent writes it."""
        return f"#/{'/'.join(self.path)}"

    def make_sentence(self) -> str:
        """Return the change as Confluent describes it, with "%s" for the reader's schema and then the writer's."""
        sentence = _SENTENCES.get(self.kind, "").format(path=self.place)
        return f'{{errorType:"{self.kind}", description:"{sentence}"}}'
