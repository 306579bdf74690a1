"""Confluent's HTTP API: a method for each path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from minibroker.registry.api.http_messages import Answer, Request
from minibroker.registry.api.registry_routes import (
    INT_MAX,
    ROUTES,
    add_route,
    make_not_found_error,
    parse_limit,
    parse_path_number,
    parse_version_number,
    select_page,
)
from minibroker.registry.api.settings_api import SettingsApi
from minibroker.registry.formats.java_json import format_json
from minibroker.registry.state.coroutine_slices import LoopSlices, yield_to_loop_after_large_text
from minibroker.registry.state.qualified_subjects import (
    DEFAULT,
    WILDCARD,
    is_valid_subject,
    make_context_prefix,
    normalize_subject,
    parse_subject,
    qualify_subject_within_context,
)
from minibroker.registry.state.registry import NewSchema, make_missing_version_error
from minibroker.registry.state.registry_configs import find_config, parse_contract
from minibroker.registry.state.registry_errors import INVALID_SCHEMA, Errors, RegistryError
from minibroker.registry.state.schema_records import AVRO, StoredSchema, parse_references
from minibroker.registry.state.schema_state import SchemaState

GROUP_ID: Final = "schema-registry"
SERVER_VERSION: Final = "8.3.0"  # of Confluent's registry, whose API this is
LISTED_MAX, SCHEMAS_MAX = 20_000, 1000  # in an answer
TAGGING: Final = ("schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags")


class RegistryApi(SettingsApi):
    """Answers requests by a registry."""

    async def answer(self, request: Request) -> Answer:
        """Answer a request. Raises RegistryError."""
        of_path = [route for route in ROUTES.get(len(request.segments), ()) if route.matches(request.segments)]
        route_of_method = next((route for route in of_path if route.method == request.method), None)
        if route_of_method is None:
            raise RegistryError(405, "HTTP 405 Method Not Allowed") if of_path else make_not_found_error()
        if "findTags" in request.query:
            raise RegistryError(422, "findTags is not supported here")
        request.variables = {
            part[1:-1]: segment
            for part, segment in zip(route_of_method.parts, request.segments, strict=True)
            if part[0] == "{"
        }
        answer = await route_of_method.handler(self, request)
        return answer if isinstance(answer, Answer) else Answer(answer)

    # --- subjects -------------------------------------------------------------------------------

    @add_route("GET", "/")
    async def answer_root(self, request: Request) -> Any:
        """Return an empty object, for clients that check whether a registry is there."""
        return {}

    @add_route("GET", "/subjects")
    async def list_subjects(self, request: Request) -> list[str]:
        """Return the names of the subjects with a prefix, by default all of all contexts."""
        state = await self._registry.read_state()
        deleted, only = request.get_query_flag("deleted"), request.get_query_flag("deletedOnly")
        names = (
            name
            for name in _list_subjects_with_prefix(
                state, normalize_subject(request.get_query_text("subjectPrefix", WILDCARD))
            )
            if (deleted and not only) or state.has_live_version(name) != only
        )
        return select_page(request, names, LISTED_MAX)

    @add_route("POST", "/subjects/{subject}")
    async def find_schema(self, request: Request) -> dict[str, Any]:
        """Return the version of a subject that has the schema of the request."""
        subject, deleted = await self._get_subject(request), request.get_query_flag("deleted")
        new = await self._parse_new_schema(request, subject)
        schema = await self._registry.find_registered_schema(subject, new, deleted)
        if schema is None:
            state = await self._registry.read_state()
            raise (
                Errors.SCHEMA_NOT_FOUND.make_error()
                if state.has_subjects(subject, deleted)
                else Errors.SUBJECT_NOT_FOUND.make_error(subject=subject)
            )
        return await self._describe_schema_as_requested(request, schema)

    @add_route("DELETE", "/subjects/{subject}")
    async def delete_subject(self, request: Request) -> list[int]:
        """Delete a subject; return its versions."""
        subject = await self._get_subject(request)
        return await self._registry.delete_subject(subject, permanent=request.get_query_flag("permanent"))

    @add_route("GET", "/subjects/{subject}/metadata")
    async def find_version_by_metadata(self, request: Request) -> dict[str, Any]:
        """Return the latest version whose metadata has properties."""
        state, subject = await self._registry.read_state(), await self._get_subject(request)
        wanted = dict(zip(request.query.get("key", []), request.query.get("value", []), strict=False)).items()
        for schema in reversed(state.list_versions(subject, request.get_query_flag("deleted"))):
            if schema.metadata is not None and wanted <= (schema.metadata.get("properties") or {}).items():
                return await self._describe_schema_as_requested(request, schema)
        known = state.has_subjects(subject, request.get_query_flag("deleted"))
        raise Errors.SCHEMA_NOT_FOUND.make_error() if known else Errors.SUBJECT_NOT_FOUND.make_error(subject=subject)

    # --- versions -------------------------------------------------------------------------------

    @add_route("GET", "/subjects/{subject}/versions")
    async def list_versions(self, request: Request) -> list[int]:
        """Return the versions of a subject."""
        state, subject = await self._registry.read_state(), await self._get_subject(request)
        only = request.get_query_flag("deletedOnly")
        deleted = only or request.get_query_flag("deleted")
        if not state.has_subjects(subject, deleted):
            raise Errors.SUBJECT_NOT_FOUND.make_error(subject=subject)
        found = [schema.version for schema in state.list_versions(subject, deleted) if schema.deleted or not only]
        return select_page(request, found, SCHEMAS_MAX * 10)

    @add_route("POST", "/subjects/{subject}/versions")
    async def register_schema(self, request: Request) -> dict[str, Any]:
        """Register a schema; return its id.

        The text of Protobuf is not in the answer: Confluent's client for Python would keep it for the id, and then take
        it for the descriptor in base64 that it had registered.
        """
        subject = await self._get_subject(request)
        if not is_valid_subject(subject):
            raise Errors.INVALID_SUBJECT.make_error(subject=subject)
        schema = await self._registry.register_schema(
            subject, await self._parse_new_schema(request, subject), request.left
        )
        fields = describe_version(schema)
        left_out = {"subject", "ts", "deleted"} | ({"schema"} if schema.kind == "PROTOBUF" else set())
        return {name: fields[name] for name in fields if name not in left_out}

    @add_route("GET", "/subjects/{subject}/versions/{version}")
    async def get_version(self, request: Request) -> dict[str, Any]:
        """Return a version of a subject."""
        return await self._describe_schema_as_requested(
            request, await self._get_stored_version(request, request.get_query_flag("deleted"))
        )

    @add_route("GET", "/subjects/{subject}/versions/{version}/schema")
    async def get_version_text(self, request: Request) -> Answer:
        """Return the text of a version alone."""
        schema = await self._get_stored_version(request, request.get_query_flag("deleted"))
        return Answer(raw=(await self._describe_schema_as_requested(request, schema))["schema"])

    @add_route("GET", "/subjects/{subject}/versions/{version}/referencedby")
    async def list_referrers(self, request: Request) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        schema = await self._get_stored_version(request, deleted=True)
        state = await self._registry.read_state()
        found = sorted(state.get_context_index(schema.subject).referrers.get((schema.subject, schema.version), ()))
        return select_page(request, found, LISTED_MAX)

    @add_route("DELETE", "/subjects/{subject}/versions/{version}")
    async def delete_version(self, request: Request) -> int:
        """Delete a version; return it."""
        subject, named = await self._get_subject(request), request.variables["version"]
        permanent = request.get_query_flag("permanent")
        return await self._registry.delete_version(subject, parse_version_number(named), named, permanent=permanent)

    async def _get_stored_version(self, request: Request, deleted: bool) -> StoredSchema:
        subject, version = await self._get_subject(request), parse_version_number(request.variables["version"])
        state = await self._registry.read_state()
        schema = state.find_version(subject, version, deleted)
        name = parse_subject(subject)
        if schema is None and name.context == DEFAULT:
            others = (
                state.find_version(prefix + name.subject, version, deleted)
                for prefix in state.list_context_prefixes()[1:]
            )
            schema = next(filter(None, others), None)
        if schema is None:
            raise make_missing_version_error(state, subject, version, deleted)
        return schema

    # --- schemas --------------------------------------------------------------------------------

    @add_route("GET", "/schemas")
    async def list_schemas(self, request: Request) -> Answer:
        """Return the versions of all subjects with a prefix, or also of those that have such an alias."""
        state, deleted = await self._registry.read_state(), request.get_query_flag("deleted")
        latest, rules, slices = request.get_query_flag("latestOnly"), request.get_query_text("ruleType"), LoopSlices()
        first, count = request.get_query_number("offset", 0), parse_limit(request, SCHEMAS_MAX)
        prefix = normalize_subject(request.get_query_text("subjectPrefix"))
        aliases = _group_aliases(state, prefix) if request.get_query_flag("aliases") else {}
        listed: list[StoredSchema] = []
        for name in sorted({*_list_subjects_with_prefix(state, prefix), *aliases}):
            await slices.yield_to_loop_if_slice_is_over()
            schemas = state.list_versions(name, deleted)[-1 if latest else None :]
            listed += [schema for schema in schemas if not rules or schema.has_rules(rules)]
            if len(listed) >= first + count:
                break
        texts: list[str] = []
        for schema in listed[max(first, 0) : first + count]:
            await slices.yield_to_loop_if_slice_is_over()
            also = {"aliases": aliases[schema.subject]} if schema.subject in aliases else {}
            texts.append(format_json(describe_version(schema) | also))
        return Answer(raw=f"[{','.join(texts)}]")

    @add_route("GET", "/schemas/types")
    async def list_schema_types(self, request: Request) -> list[str]:
        """Return the types of schemas."""
        return ["JSON", "PROTOBUF", AVRO]

    @add_route("GET", "/schemas/ids/{id}")
    async def get_schema_by_id(self, request: Request) -> dict[str, Any]:
        """Return the schema with an id."""
        schema = await self._get_schema_by_id(request)
        found = await self._describe_schema_as_requested(request, schema)
        if "subject" not in request.query:
            found = {name: value for name, value in found.items() if name not in ("subject", "version")}
        if request.get_query_flag("fetchMaxId"):
            found["maxId"] = (await self._registry.read_state()).get_context_index(schema.subject).max_id
        return {name: value for name, value in found.items() if name != "id"}

    @add_route("GET", "/schemas/ids/{id}/schema")
    async def get_schema_text_by_id(self, request: Request) -> Answer:
        """Return the text of the schema with an id alone."""
        return Answer(
            raw=(await self._describe_schema_as_requested(request, await self._get_schema_by_id(request)))["schema"]
        )

    @add_route("GET", "/schemas/ids/{id}/subjects")
    async def list_subjects_of_id(self, request: Request) -> list[str]:
        """Return the subjects with the schema of an id."""
        return select_page(request, [subject for subject, _ in await self._list_versions_of_id(request)], LISTED_MAX)

    @add_route("GET", "/schemas/ids/{id}/versions")
    async def list_versions_of_id(self, request: Request) -> list[dict[str, Any]]:
        """Return the versions of subjects with the schema of an id."""
        found = [
            {"subject": subject, "version": version} for subject, version in await self._list_versions_of_id(request)
        ]
        return select_page(request, found, LISTED_MAX)

    @add_route("GET", "/schemas/guids/{guid}")
    async def get_schema_by_guid(self, request: Request) -> dict[str, Any]:
        """Return the schema with a GUID."""
        state, guid = await self._registry.read_state(), request.variables["guid"]
        for prefix, id in _list_ids_of_guid(state, guid):
            schema = state.find_schema_by_id(id, prefix)
            if schema is not None:
                found = await self._describe_schema_as_requested(request, schema)
                return {name: value for name, value in found.items() if name not in ("subject", "version", "id")}
        raise Errors.ID_NOT_FOUND.make_error(id=guid)

    @add_route("GET", "/schemas/guids/{guid}/ids")
    async def list_ids_of_guid(self, request: Request) -> list[dict[str, Any]]:
        """Return the ids of the schema with a GUID, by context."""
        state, guid = await self._registry.read_state(), request.variables["guid"]
        found = [{"context": parse_subject(prefix).context, "id": id} for prefix, id in _list_ids_of_guid(state, guid)]
        if not found:
            raise Errors.ID_NOT_FOUND.make_error(id=guid)
        return found

    async def _get_schema_by_id(self, request: Request) -> StoredSchema:
        state, id = await self._registry.read_state(), parse_path_number(request.variables["id"])
        subject = _resolve_subject(state, request.get_query_text("subject"))
        found, name = state.find_schema_by_id(id, subject), parse_subject(subject)
        if found is None and name.subject and name.context == DEFAULT:
            others = (
                state.find_schema_by_id(id, prefix + name.subject) for prefix in state.list_context_prefixes()[1:]
            )
            found = next(filter(None, others), None) or state.find_schema_by_id(id, name.prefix)
        if found is None:
            raise Errors.ID_NOT_FOUND.make_error(id=id)
        return found

    async def _list_versions_of_id(self, request: Request) -> list[tuple[str, int]]:
        try:
            schema = await self._get_schema_by_id(request)
        except RegistryError as error:
            raise Errors.SCHEMA_NOT_FOUND.make_error() if error.code == 40403 else error from None
        state = await self._registry.read_state()
        with_id = state.get_context_index(schema.subject).versions_by_id[schema.id]
        deleted = request.get_query_flag("deleted")
        return [each for each in with_id.items() if deleted or not state.versions[each[0]][each[1]].deleted]

    # --- compatibility --------------------------------------------------------------------------

    @add_route(
        "POST", "/compatibility/subjects/{subject}/versions", "/compatibility/subjects/{subject}/versions/{version}"
    )
    async def check_compatibility(self, request: Request) -> dict[str, Any]:
        """Return whether a schema is compatible with a version of a subject, or with all that its level names."""
        state, subject = await self._registry.read_state(), await self._get_subject(request)
        earlier = state.list_versions(subject)
        if "version" in request.variables:
            version = parse_version_number(request.variables["version"])
            schema = state.find_version(subject, version)
            if schema is None and version != -1:
                raise Errors.VERSION_NOT_FOUND.make_error(version=version)
            earlier = [] if schema is None else [schema]
        verbose = request.get_query_flag("verbose")
        try:
            new = await self._parse_new_schema(request, subject)
            reasons = await self._registry.check_compatibility(subject, new, earlier, request.left)
        except RegistryError as error:
            if error.code != INVALID_SCHEMA or not verbose:
                raise
            reasons = [error.message]
        return {"is_compatible": not reasons} | ({"messages": reasons} if verbose else {})

    # --- contexts and the server ----------------------------------------------------------------

    @add_route("GET", "/contexts")
    async def list_contexts(self, request: Request) -> list[str]:
        """Return the contexts."""
        return select_page(request, [DEFAULT, *sorted((await self._registry.read_state()).contexts)], LISTED_MAX)

    @add_route("DELETE", "/contexts/{context}")
    async def delete_context(self, request: Request) -> Answer:
        """Delete a context without subjects."""
        try:
            prefix = make_context_prefix(request.variables["context"])
        except ValueError as error:
            raise RegistryError(400, str(error)) from None
        await self._registry.delete_context(prefix)
        return Answer(status=204, raw="")

    @add_route("GET", "/v1/metadata/id")
    async def get_cluster_id(self, request: Request) -> dict[str, Any]:
        """Return the ids of the cluster and of the registry."""
        clusters = {"kafka-cluster": self._registry.cluster_id, "schema-registry-cluster": GROUP_ID}
        return {"scope": {"path": [], "clusters": clusters}, "id": ""}

    @add_route("GET", "/v1/metadata/version")
    async def get_server_version(self, request: Request) -> dict[str, str]:
        """Return the version of Confluent's registry whose API this is."""
        return {"version": SERVER_VERSION, "commitId": "minibroker"}

    @add_route("GET", "/v1/metadata/deployment")
    async def get_deployment(self, request: Request) -> dict[str, Any]:
        """Return what is particular to this registry, which is nothing."""
        return {"attributes": []}

    # --- parts of requests and answers ----------------------------------------------------------

    async def _get_subject(self, request: Request) -> str:
        """Return the subject of a path, or the one for which it is an alias."""
        return _resolve_subject(await self._registry.read_state(), normalize_subject(request.variables["subject"]))

    async def _parse_new_schema(self, request: Request, subject: str) -> NewSchema:
        """Return the schema in a request. Raises RegistryError."""
        body = request.parse_body()
        await yield_to_loop_after_large_text(len(request.body))
        config = find_config(await self._registry.read_state(), subject)
        text, kind = body.get("schema") or "", body.get("schemaType") or AVRO
        id, version = body.get("id"), body.get("version")
        if not isinstance(text, str) or not isinstance(kind, str):
            raise RegistryError(422, "schema and schemaType are texts")
        if not all(each is None or (type(each) is int and -1 <= each <= INT_MAX) for each in (id, version)):
            raise RegistryError(422, "id and version are numbers")
        for name in TAGGING:
            if body.get(name):
                raise RegistryError(422, f"{name} is not supported here")
        try:
            references = parse_references(body.get("references"))
        except ValueError as error:
            raise RegistryError(422, str(error)) from None
        metadata, rules = parse_contract(body.get("metadata")), parse_contract(body.get("ruleSet"))
        normalize = request.get_query_flag("normalize") or config.get("normalize") is True
        return NewSchema(text, kind, references, metadata, rules, -1 if id is None else id, version or 0, normalize)

    async def _describe_schema_as_requested(self, request: Request, schema: StoredSchema) -> dict[str, Any]:
        """Return a schema for an answer, in the format that the query asks for."""
        found, wanted = describe_version(schema), request.get_query_text("format").strip()
        if request.get_query_text("referenceFormat") == "qualified":
            for reference in found.get("references", ()):
                reference["subject"] = qualify_subject_within_context(schema.subject, reference["subject"])
        if wanted:
            parsed = await self._registry.formats.parse_stored_schema(await self._registry.read_state(), schema)
            found["schema"] = await self._registry.formats.format_text(schema.kind, parsed, wanted)
        return found


def describe_version(schema: StoredSchema) -> dict[str, Any]:
    """Return a version as answers show it."""
    fields: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    fields |= {"guid": schema.guid, "schemaType": schema.kind}
    if schema.references:
        fields["references"] = [reference._asdict() for reference in schema.references]
    if schema.metadata is not None:
        fields["metadata"] = dict(schema.metadata)
    if schema.rule_set is not None:
        fields["ruleSet"] = dict(schema.rule_set)
    return fields | {"schema": schema.text, "ts": schema.timestamp_ms, "deleted": schema.deleted}


def _resolve_subject(state: SchemaState, subject: str) -> str:
    """Return a subject, or the one for which it is an alias."""
    alias = state.configs.get(subject, {}).get("alias") if subject else None
    return qualify_subject_within_context(subject, str(alias)) if alias else subject


def _list_subjects_with_prefix(state: SchemaState, prefix: str) -> list[str]:
    """Return the subjects with a prefix, in order.

    They are of its context, or of all if it begins with the wildcard.
    """
    return list(
        filter(
            _make_prefix_matcher(prefix),
            state.iterate_subjects_with_prefix("" if prefix.startswith(WILDCARD) else prefix),
        )
    )


def _make_prefix_matcher(prefix: str) -> Callable[[str], bool]:
    if prefix.startswith(WILDCARD):
        bare = prefix.removeprefix(WILDCARD)
        return lambda name: not bare or parse_subject(name).subject.startswith(bare)
    context = parse_subject(prefix).context
    return lambda name: name.startswith(prefix) and parse_subject(name).context == context


def _group_aliases(state: SchemaState, prefix: str) -> dict[str, list[str]]:
    """Return by subject its aliases with a prefix."""
    matches, found = _make_prefix_matcher(prefix), dict[str, list[str]]()
    for name in sorted(name for name in state.configs if name and matches(name)):
        subject = _resolve_subject(state, name)
        if subject != name:
            found.setdefault(subject, []).append(name)
    return found


def _list_ids_of_guid(state: SchemaState, guid: str) -> list[tuple[str, int]]:
    """Return the ids of a GUID, with the contexts as they are written before a subject."""
    found = ((prefix, state.get_context_index(prefix).id_by_guid.get(guid)) for prefix in state.list_context_prefixes())
    return [(prefix, id) for prefix, id in found if id is not None]
