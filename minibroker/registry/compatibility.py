"""The seven levels of compatibility, and Confluent's messages about what is not compatible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from minibroker.registry.coroutine_slices import Slices
from minibroker.registry.formats.schema import ParsedSchema
from minibroker.registry.schema_formats import SchemaFormats
from minibroker.registry.schema_records import StoredSchema
from minibroker.registry.schema_state import SchemaState

OTHER_TYPE: Final = "Incompatible because of different schema type"
SHOWN_CHARACTERS: Final = 10 << 10  # of an older schema in a message


class Candidate(NamedTuple):
    """A schema that is to be compatible with earlier ones of its subject."""

    kind: str
    parsed: ParsedSchema


async def objections(
    formats: SchemaFormats, state: SchemaState, level: str, candidate: Candidate, earlier: Sequence[StoredSchema]
) -> list[str]:
    """Return why a schema is not compatible with the earlier ones, which are given with the oldest first.

    Only the first one that differs is reported. Raises RegistryError if one of them cannot be parsed.
    """
    direction, _, transitive = level.partition("_")
    if direction == "NONE":
        return []
    slices = Slices()
    for schema in reversed(earlier if transitive else earlier[-1:]):
        await slices.next()
        found = await _compared(formats, state, direction, candidate, schema)
        if found:
            return [*found, f"{{validateFields: 'false', compatibility: '{level}'}}"]
    return []


async def _compared(
    formats: SchemaFormats, state: SchemaState, direction: str, candidate: Candidate, schema: StoredSchema
) -> list[str]:
    older = await formats.parse_stored(state, schema)
    forward, backward = direction in ("FORWARD", "FULL"), direction in ("BACKWARD", "FULL")
    found: list[str] = []
    if candidate.kind != schema.kind:
        found = [OTHER_TYPE] * (forward + backward)
    else:
        if forward:
            differences = await formats.incompatibilities(schema.kind, older, candidate.parsed)
            found += [_filled(each, "old", "new") for each in differences]
        if backward:
            differences = await formats.incompatibilities(schema.kind, candidate.parsed, older)
            found += [_filled(each, "new", "old") for each in differences]
    return [*found, *_shown(schema)] if found else []


def _filled(message: str, reader: str, writer: str) -> str:
    return message.replace("%s", reader, 1).replace("%s", writer, 1)


def _shown(schema: StoredSchema) -> list[str]:
    if len(schema.text) <= SHOWN_CHARACTERS:
        shown = f"'{schema.text}'"
    else:
        shown = f"<truncated to {SHOWN_CHARACTERS} characters> '{schema.text[:SHOWN_CHARACTERS]}'"
    return [f"{{oldSchemaVersion: {schema.version}}}", f"{{oldSchema: {shown}}}"]
