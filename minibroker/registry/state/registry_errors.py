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


def make_subject_not_found_error(subject: str) -> RegistryError:
    """Return the error for a subject that does not exist."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def make_version_not_found_error(version: int) -> RegistryError:
    """Return the error for a version that does not exist."""
    return RegistryError(40402, f"Version {version} not found.")


def make_schema_not_found_error(id: int | str | None = None) -> RegistryError:
    """Return the error for a schema that is not in the subject, or an id or GUID that does not exist."""
    return RegistryError(40403, "Schema not found" if id is None else f"Schema {id} not found")


def make_subject_deleted_error(subject: str) -> RegistryError:
    """Return the error for deleting a deleted subject."""
    return RegistryError(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def make_subject_not_deleted_error(subject: str) -> RegistryError:
    """Return the error for deleting a subject permanently that is not deleted."""
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def make_version_deleted_error(subject: str, version: str) -> RegistryError:
    """Return the error for deleting a deleted version."""
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def make_version_not_deleted_error(subject: str, version: int) -> RegistryError:
    """Return the error for deleting a version permanently that is not deleted."""
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def make_no_config_error(subject: str) -> RegistryError:
    """Return the error for a subject without a config of its own."""
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def make_no_mode_error(subject: str) -> RegistryError:
    """Return the error for a subject without a mode of its own."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def make_incompatible_schema_error(subject: str, reasons: list[str]) -> RegistryError:
    """Return the error for registering a schema that is not compatible."""
    return RegistryError(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{', '.join(reasons)}]",
    )


def make_invalid_schema_error(kind: str, reason: str) -> RegistryError:
    """Return the error for a text that is no schema of its type."""
    return RegistryError(INVALID_SCHEMA, f"Invalid schema of type {kind}, details: {reason}")


def make_too_much_comparing_error(reason: str) -> RegistryError:
    """Return the error for two schemas that take too long to compare."""
    return RegistryError(422, reason)


def make_no_schema_error() -> RegistryError:
    """Return the error for an empty schema."""
    return RegistryError(INVALID_SCHEMA, "Empty schema")


def describe_missing_reference(reference: Reference) -> str:
    """Return why a schema is invalid whose reference does not exist."""
    return f'No schema reference found for subject "{reference.subject}" and version {reference.version}'


def make_invalid_version_error(version: str) -> RegistryError:
    """Return the error for a version that is no number and not "latest"."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def make_invalid_compatibility_error() -> RegistryError:
    """Return the error for an unknown compatibility level."""
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def make_invalid_policy_error() -> RegistryError:
    """Return the error for an unknown compatibility policy."""
    return RegistryError(42203, "Invalid compatibility policy. Valid values are strict and lenient")


def make_invalid_mode_error() -> RegistryError:
    """Return the error for an unknown mode."""
    return RegistryError(42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT.")


def make_not_permitted_error(reason: str) -> RegistryError:
    """Return the error for what the mode forbids."""
    return RegistryError(42205, reason)


def make_referenced_error(subject: str, version: int) -> RegistryError:
    """Return the error for deleting a schema that others refer to."""
    return RegistryError(
        42206,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def make_invalid_subject_error(subject: str) -> RegistryError:
    """Return the error for a name that no subject may have."""
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def make_too_large_error() -> RegistryError:
    """Return the error for a schema that does not fit into a record."""
    return RegistryError(42209, "Register operation failed because schema is too large")


def make_invalid_rules_error(reason: str) -> RegistryError:
    """Return the error for rules that do not fit together."""
    return RegistryError(42210, reason)


def make_context_not_empty_error(context: str) -> RegistryError:
    """Return the error for deleting a context with subjects."""
    return RegistryError(42211, f"The specified context '{context}' is not empty.")


def make_store_failed_error(reason: str) -> RegistryError:
    """Return the error for a failure of the topic."""
    return RegistryError(50001, f"Error in the backend data store: {reason}")
