"""The view of schemas: the subjects of the registry with their versions, and who refers to whom. It only reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from uuid import UUID

from minibroker.explorer.answers_in_threads import make_answer_in_thread
from minibroker.explorer.records_view import indent_json
from minibroker.registry.state.coroutine_slices import LoopSlices
from minibroker.registry.state.qualified_subjects import qualify_subject_within_context
from minibroker.registry.state.registry_configs import find_config, find_mode, get_compatibility_level
from minibroker.registry.state.registry_errors import RegistryError
from minibroker.registry.state.schema_records import StoredSchema
from minibroker.registry.state.schema_state import SchemaState
from minibroker.testing.broker import Broker
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

MOST_SUBJECTS: Final = 10_000
MOST_VERSIONS: Final = 1_000  # of a subject: the newest
MOST_REFERRERS: Final = 200
LATEST: Final = -1
IN_JSON: Final = ("AVRO", "JSON")  # the kinds of schemas that are
PARTS: Final = ("-value", "-key")  # what a subject has behind the name of its topic


def make_schema_routes(broker: Broker) -> Routes:
    """Return the routes of the schemas view of a broker with a registry."""
    routes = Routes("/schemas")

    @routes.get("")
    async def list_subjects() -> dict[str, Any]:
        """Return all subjects, also deleted ones, with the level and the mode that apply where none is set."""
        state, slices = await _get_state(broker), LoopSlices()
        subjects = list(islice(state.iterate_subjects_with_prefix(""), MOST_SUBJECTS))
        found = []
        for name in subjects:
            await slices.yield_to_loop_if_slice_is_over()
            if name in state.versions:  # still
                found.append(_summarize_subject(state, name))
        more = len(state.versions) - len(subjects)
        return {
            "subjects": found,
            "more": max(more, 0),
            "level": get_compatibility_level(find_config(state, None)),
        } | _get_mode(state, None)

    @routes.get("/subject")
    async def get_subject(name: str) -> dict[str, Any]:
        """Return a subject with its versions, the newest first."""
        state = await _get_state(broker)
        topic = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
        versions = _list_versions(state, name)[::-1]
        own = state.configs.get(name, {})
        return {
            "name": name,
            "level": get_compatibility_level(find_config(state, name)),
            "has_own_level": "compatibilityLevel" in own,
            "config": {each: value for each, value in own.items() if each != "compatibilityLevel"},
            "topic": topic if topic in broker.running.cluster.image.topics else None,
            "versions": [_describe_schema(state, each) for each in versions[:MOST_VERSIONS]],
            "more": max(len(versions) - MOST_VERSIONS, 0),
        } | _get_mode(state, name)

    _add_version_routes(broker, routes)
    return routes


def _add_version_routes(broker: Broker, routes: Routes) -> None:
    @routes.get("/version")
    async def get_version(subject: str, version: int = LATEST) -> Answer:
        """Return a version with its text, what it refers to, and what refers to it."""
        state = await _get_state(broker)
        found = state.find_version(subject, version, deleted=True)
        if found is None:
            raise LookupError(f"the registry has no version {version} of {subject}")
        said = _describe_schema(state, found) | {
            "references": [
                [each.name, qualify_subject_within_context(subject, each.subject), each.version]
                for each in found.references
            ],
            "referrers": list(islice(_iterate_referrers(state, found), MOST_REFERRERS)),
            "metadata": found.metadata,
            "rules": found.rule_set,
        }
        return await make_answer_in_thread(lambda: said | {"text": _indent_schema(found)})

    @routes.get("/named")
    async def find_schema(schema: str, subject: str = "") -> dict[str, Any]:
        """Return where the schema is that records name by id or GUID: in this subject if it is there, or in another."""
        state = await _get_state(broker)
        id = (
            int(schema)
            if schema.isdecimal()
            else state.get_context_index("").id_by_guid.get(_parse_guid(schema), LATEST)
        )
        places = state.get_context_index("").versions_by_id.get(id)
        if not places:
            raise LookupError(f"the registry has no schema {schema}")
        name = subject if subject in places else next(iter(places))
        return {"subject": name, "version": places[name]}


async def _get_state(broker: Broker) -> SchemaState:
    """Return the registry's state. Raises RuntimeError if it cannot be read."""
    try:
        return await broker.registry.read_state()
    except RegistryError as error:
        raise RuntimeError(f"the registry cannot be read: {error.message}") from None


def _list_versions(state: SchemaState, subject: str) -> list[StoredSchema]:
    """Return all versions of a subject, the oldest first. Raises LookupError."""
    found = state.list_versions(subject, deleted=True)
    if not found:
        raise LookupError(f"the registry has no subject {subject}")
    return found


def _summarize_subject(state: SchemaState, subject: str) -> dict[str, Any]:
    versions = _list_versions(state, subject)
    latest = state.find_latest_version(subject)
    return {
        "name": subject,
        "kind": versions[-1].kind,
        "count": len(state.list_versions(subject)),
        "latest": None if latest is None else latest.version,
        "level": get_compatibility_level(find_config(state, subject)),
    }


def _get_mode(state: SchemaState, subject: str | None) -> dict[str, str]:
    """Return the mode that applies to a subject, or to all (None), as the registry answers it."""
    return {"mode": find_mode(state, subject)}


def _describe_schema(state: SchemaState, schema: StoredSchema) -> dict[str, Any]:
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        "guid": schema.guid,
        "kind": schema.kind,
        "deleted": schema.deleted,
        "timestamp_ms": schema.timestamp_ms,
        "size": len(schema.text),
        "refers_to": len(schema.references),
        "referred_by": len(state.get_context_index(schema.subject).referrers.get((schema.subject, schema.version), ())),
    }


def _iterate_referrers(state: SchemaState, schema: StoredSchema) -> Iterator[tuple[str, int]]:
    """Yield the subjects and versions that refer to a schema."""
    index = state.get_context_index(schema.subject)
    for id in sorted(index.referrers.get((schema.subject, schema.version), ())):
        yield from sorted(index.versions_by_id.get(id, {}).items())


def _indent_schema(schema: StoredSchema) -> str:
    """Return the text of a schema with indentation, if it is JSON that can be read so."""
    if schema.kind in IN_JSON:
        with suppress(ValueError, RecursionError):
            return indent_json(schema.text)
    return schema.text


def _parse_guid(text: str) -> str:
    """Return a GUID as the registry writes it. Raises LookupError."""
    try:
        return str(UUID(text))
    except ValueError:
        raise LookupError(f"the registry has no schema {text[:100]}") from None
