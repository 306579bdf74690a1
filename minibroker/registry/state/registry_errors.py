"""The errors of the registry's HTTP API, with Confluent's codes and texts."""

from __future__ import annotations

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


def subject_not_found(subject: str) -> RegistryError:
    """Return the error for a subject that does not exist."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """Return the error for a version that does not exist."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(id: int | str | None = None) -> RegistryError:
    """Return the error for a schema that is not in the subject, or an id or GUID that does not exist."""
    return RegistryError(40403, "Schema not found" if id is None else f"Schema {id} not found")


def subject_deleted(subject: str) -> RegistryError:
    """Return the error for deleting a deleted subject."""
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_deleted(subject: str) -> RegistryError:
    """Return the error for deleting a subject permanently that is not deleted."""
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_deleted(subject: str, version: str) -> RegistryError:
    """Return the error for deleting a deleted version."""
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_deleted(subject: str, version: int) -> RegistryError:
    """Return the error for deleting a version permanently that is not deleted."""
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_config(subject: str) -> RegistryError:
    """Return the error for a subject without a config of its own."""
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_mode(subject: str) -> RegistryError:
    """Return the error for a subject without a mode of its own."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    """Return the error for registering a schema that is not compatible."""
    return RegistryError(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]",
    )


def invalid_schema(kind: str, reason: str) -> RegistryError:
    """Return the error for a text that is no schema of its type."""
    return RegistryError(INVALID_SCHEMA, f"Invalid schema of type {kind}, details: {reason}")


def too_much(reason: str) -> RegistryError:
    """Return the error for two schemas that take too long to compare."""
    return RegistryError(422, reason)


def no_schema() -> RegistryError:
    """Return the error for an empty schema."""
    return RegistryError(INVALID_SCHEMA, "Empty schema")


def describe_missing_reference(reference: Reference) -> str:
    """Return why a schema is invalid whose reference does not exist."""
    return f'No schema reference found for subject "{reference.subject}" and version {reference.version}'


def invalid_version(version: str) -> RegistryError:
    """Return the error for a version that is no number and not "latest"."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_level() -> RegistryError:
    """Return the error for an unknown compatibility level."""
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_policy() -> RegistryError:
    """Return the error for an unknown compatibility policy."""
    return RegistryError(42203, "Invalid compatibility policy. Valid values are strict and lenient")


def invalid_mode() -> RegistryError:
    """Return the error for an unknown mode."""
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT.")


def not_permitted(reason: str) -> RegistryError:
    """Return the error for what the mode forbids."""
    return RegistryError(42205, reason)


def make_referenced_error(subject: str, version: int) -> RegistryError:
    """Return the error for deleting a schema that others refer to."""
    return RegistryError(
        42206,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def invalid_subject(subject: str) -> RegistryError:
    """Return the error for a name that no subject may have."""
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def too_large() -> RegistryError:
    """Return the error for a schema that does not fit into a record."""
    return RegistryError(42209, "Register operation failed because schema is too large")


def invalid_rules(reason: str) -> RegistryError:
    """Return the error for rules that do not fit together."""
    return RegistryError(42210, reason)


def context_not_empty(context: str) -> RegistryError:
    """Return the error for deleting a context with subjects."""
    return RegistryError(42211, f"The specified context '{context}' is not empty.")


def store_failed(reason: str) -> RegistryError:
    """Return the error for a failure of the topic."""
    return RegistryError(50001, f"Error in the backend data store: {reason}")
