"""The errors of the registry's HTTP API, with Confluent's codes and texts."""

from __future__ import annotations

from enum import Enum
from typing import Final

from minibroker.registry.formats.schema import Reference

INVALID_SCHEMA: Final = 42201


class RegistryError(Exception):
    """An answer that is an error: its HTTP status is the beginning of its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


class Errors(Enum):
    """The errors, each with its code and its text, in which words are put."""

    SUBJECT_NOT_FOUND = 40401, "Subject '{subject}' not found."
    VERSION_NOT_FOUND = 40402, "Version {version} not found."
    SCHEMA_NOT_FOUND = 40403, "Schema not found"
    ID_NOT_FOUND = 40403, "Schema {id} not found"
    SUBJECT_DELETED = 40404, "Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    SUBJECT_NOT_DELETED = 40405, "Subject '{subject}' was not deleted first before being permanently deleted"
    VERSION_DELETED = (
        40406,
        "Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently",
    )
    VERSION_NOT_DELETED = (
        40407,
        "Subject '{subject}' Version {version} was not deleted first before being permanently deleted",
    )
    NO_CONFIG = 40408, "Subject '{subject}' does not have subject-level compatibility configured"
    NO_MODE = 40409, "Subject '{subject}' does not have subject-level mode configured"
    INCOMPATIBLE_SCHEMA = (
        40901,
        'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{reasons}]',
    )
    TOO_MUCH_COMPARING = 422, "{reason}"
    INVALID_SCHEMA = 42201, "Invalid schema of type {kind}, details: {reason}"
    NO_SCHEMA = 42201, "Empty schema"
    INVALID_VERSION = (
        42202,
        "The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )
    INVALID_COMPATIBILITY = (
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )
    INVALID_POLICY = 42203, "Invalid compatibility policy. Valid values are strict and lenient"
    INVALID_MODE = 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT."
    NOT_PERMITTED = 42205, "{reason}"
    REFERENCED = (
        42206,
        "One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )
    INVALID_SUBJECT = 42208, "The specified subject '{subject}' is not a valid."
    TOO_LARGE = 42209, "Register operation failed because schema is too large"
    INVALID_RULES = 42210, "{reason}"
    CONTEXT_NOT_EMPTY = 42211, "The specified context '{context}' is not empty."
    STORE_FAILED = 50001, "Error in the backend data store: {reason}"

    def make_error(self, **words: object) -> RegistryError:
        """Return the error with these words in its text."""
        code, text = self.value
        return RegistryError(code, text.format(**words))


def describe_missing_reference(reference: Reference) -> str:
    """Return why a schema is invalid whose reference does not exist."""
    return f'No schema reference found for subject "{reference.subject}" and version {reference.version}'
