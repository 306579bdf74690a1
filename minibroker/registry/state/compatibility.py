"""The seven levels of compatibility, and Confluent's messages about what is not compatible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from minibroker.named_tuples import NamedTuple
from minibroker.registry.formats.schema import ParsedSchema
from minibroker.registry.state.contracts import ContractPart, get_property, get_reserved_names
from minibroker.registry.state.coroutine_slices import ClientLeft, LoopSlices
from minibroker.registry.state.registry_configs import get_compatibility_level
from minibroker.registry.state.registry_errors import Errors
from minibroker.registry.state.schema_formats import SchemaFormats
from minibroker.registry.state.schema_records import StoredSchema
from minibroker.registry.state.schema_state import SchemaState

OTHER_TYPE: Final = "Incompatible because of different schema type"
REMOVED: Final = "removed from its metadata which is present in the old schema's metadata."
SHOWN_CHARACTERS: Final = 10 << 10  # of an older schema in a message


class Candidate(NamedTuple):
    """A schema that is to be compatible with earlier ones of its subject."""

    kind: str
    parsed: ParsedSchema
    metadata: ContractPart


async def find_incompatibilities(
    formats: SchemaFormats,
    state: SchemaState,
    config: Mapping[str, Any],
    candidate: Candidate,
    earlier_versions: Sequence[StoredSchema],
    wait_until_client_left: ClientLeft | None = None,
) -> list[str]:
    """Return why a schema is not compatible with the earlier ones, which are given with the oldest first.

    Only the first one that differs is reported. Raises RegistryError if one of them cannot be parsed, if it takes too
    long to compare two of them, or once `wait_until_client_left` returns: the client is gone.
    """
    level, validates = get_compatibility_level(config), config.get("validateFields") is True
    texts = _find_reserved_differences(candidate, earlier_versions) if validates else []
    others = _select_compatibility_group(config, candidate, earlier_versions)
    slices, lenient = LoopSlices(), config.get("compatibilityPolicy") == "LENIENT"
    compare = partial(
        formats.list_incompatibilities, candidate.kind, lenient=lenient, wait_until_client_left=wait_until_client_left
    )
    direction, _, transitive = level.partition("_")
    for schema in reversed(others if transitive else others[-1:]) if direction != "NONE" else ():
        await slices.yield_to_loop_if_slice_is_over()
        older = await formats.parse_stored_schema(state, schema)
        differences = await _find_differences_from_earlier(compare, direction, candidate, schema, older)
        if differences:
            texts += differences
            break
    in_lower_case = str(validates).lower()
    return [*texts, f"{{validateFields: '{in_lower_case}', compatibility: '{level}'}}"] if texts else []


def _find_reserved_differences(candidate: Candidate, earlier_versions: Sequence[StoredSchema]) -> list[str]:
    """Return which reserved field names are reserved no more, or are names of fields.

    Raises RegistryError if a field has a name that no schema may have.
    """
    reserved = get_reserved_names(candidate.metadata)
    before = get_reserved_names(earlier_versions[-1].metadata) if earlier_versions else set()
    removed = [f"The new schema has reserved field {name} {REMOVED}" for name in sorted(before - reserved)]
    names = candidate.parsed.list_field_names()
    if any(name.startswith("$$") for name in names):  # as only those of JSON Schema can
        raise Errors.INVALID_SCHEMA.make_error(kind=candidate.kind, reason="#: Field names cannot start with $$ prefix")
    taken = sorted(reserved & names)
    return [*removed, *(f"The new schema has field that conflicts with the reserved field {name}." for name in taken)]


def _select_compatibility_group(
    config: Mapping[str, Any], candidate: Candidate, earlier_versions: Sequence[StoredSchema]
) -> list[StoredSchema]:
    """Return the earlier versions of the schema's compatibility group."""
    group = config.get("compatibilityGroup")
    if group is None:
        return list(earlier_versions)
    wanted = get_property(candidate.metadata, group)
    return [each for each in earlier_versions if get_property(each.metadata, group) == wanted]


async def _find_differences_from_earlier(
    compare: Callable[[ParsedSchema, ParsedSchema], Awaitable[list[str]]],
    direction: str,
    candidate: Candidate,
    schema: StoredSchema,
    older_schema: ParsedSchema,
) -> list[str]:
    """Return why a schema and an earlier one are not compatible, and which one that is; empty if they are."""
    forward, backward = direction in ("FORWARD", "FULL"), direction in ("BACKWARD", "FULL")
    texts: list[str] = []
    if candidate.kind != schema.kind:
        texts = [OTHER_TYPE] * (forward + backward)
    else:
        if forward:
            texts += [
                _fill_schema_names_in(each, "old", "new") for each in await compare(older_schema, candidate.parsed)
            ]
        if backward:
            texts += [
                _fill_schema_names_in(each, "new", "old") for each in await compare(candidate.parsed, older_schema)
            ]
    return [*texts, *_describe_old_schema(schema)] if texts else []


def _fill_schema_names_in(message: str, reader: str, writer: str) -> str:
    """Return a message with its first "%s" replaced by `reader`, the second one by `writer`."""
    return message.replace("%s", reader, 1).replace("%s", writer, 1)


def _describe_old_schema(schema: StoredSchema) -> list[str]:
    """Return the version and the text of a schema, as Confluent ends a list of reasons."""
    if len(schema.text) <= SHOWN_CHARACTERS:
        shown = f"'{schema.text}'"
    else:
        shown = f"<truncated to {SHOWN_CHARACTERS} characters> '{schema.text[:SHOWN_CHARACTERS]}'"
    return [f"{{oldSchemaVersion: {schema.version}}}", f"{{oldSchema: {shown}}}"]
