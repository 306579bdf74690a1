"""What a registry does: registers, finds and deletes versions of subjects, by their configs and modes.

Each method reads what is new in `_schemas` first. Writers wait for each other, and decide on the state that they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from minibroker.registry.formats.schema import ParsedSchema, Reference
from minibroker.registry.state import schema_records as records
from minibroker.registry.state.compatibility import Candidate, find_incompatibilities
from minibroker.registry.state.contracts import (
    VERSION,
    get_property,
    has_same_metadata,
    merge_metadata,
    merge_rules,
    set_version_in_metadata,
)
from minibroker.registry.state.coroutine_slices import ClientLeft, LoopSlices, yield_to_loop_after_large_text
from minibroker.registry.state.qualified_subjects import (
    DEFAULT,
    get_context_prefix,
    parse_subject,
    qualify_subject_within_context,
)
from minibroker.registry.state.registry_configs import IMPORTING, READING, find_config, find_mode, merge_config
from minibroker.registry.state.registry_errors import INVALID_SCHEMA, Errors, RegistryError
from minibroker.registry.state.schema_formats import SchemaFormats, sort_references
from minibroker.registry.state.schema_records import Entry, Key, StoredSchema
from minibroker.registry.state.schema_state import SchemaState
from minibroker.registry.state.schemas_topic import SchemasTopic

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker

LATEST: Final = -1


@dataclass(frozen=True)
class NewSchema:
    """A schema in a request. An `id` of -1 is to be assigned; version 0 is the next one, -1 the latest."""

    text: str
    kind: str = records.AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    id: int = -1
    version: int = 0
    normalize: bool = False


class Registry:
    """A registry on the topic `_schemas` of a broker."""

    def __init__(self, cluster: Callable[[], Broker]) -> None:
        """`cluster` returns the broker that runs now."""
        self._topic = SchemasTopic(cluster)
        self._cluster = cluster
        self.formats = SchemaFormats()
        self._writing = asyncio.Lock()
        self._likenesses: dict[str, str] = {}  # by GUID

    async def read_state(self) -> SchemaState:
        """Return the current state, to be read before anything else is awaited. Raises RegistryError."""
        return await self._topic.read_state()

    def read_state_synchronously(self) -> SchemaState:
        """Return the current state, for tests: it blocks the event loop. Raises RegistryError."""
        return self._topic.read_state_synchronously()

    @property
    def cluster_id(self) -> str:
        """The id of the broker's cluster."""
        return self._cluster().cluster_id

    # --- registering ----------------------------------------------------------------------------

    async def register_schema(
        self, subject: str, new_schema: NewSchema, wait_until_client_left: ClientLeft | None = None
    ) -> StoredSchema:
        """Register a schema, unless the subject has it, and return it. Raises RegistryError.

        Nothing is registered if `wait_until_client_left` returns while it is compared: its client is gone.
        """
        async with self._writing:
            state = await self._topic.read_state_to_change()
            config = find_config(state, subject)
            has_defaults = any(name.startswith(("default", "override")) for name in config)
            if new_schema.text.strip() and not has_defaults:
                schema = await self._find_version(state, subject, new_schema, latest_only=new_schema.version == LATEST)
                known = None if schema is None else _find_registered_version(state, new_schema, schema)
                if known is not None:
                    return known
            return await self._register_schema(subject, new_schema, wait_until_client_left)

    async def _register_schema(
        self, subject: str, new_schema: NewSchema, wait_until_client_left: ClientLeft | None
    ) -> StoredSchema:
        state, asked, mark = await self._topic.read_state_to_change(), new_schema, self._topic.state_version
        config, mode = find_config(state, subject), find_mode(state, subject)
        _check_may_register(subject, mode, new_schema)
        earlier = state.list_versions(subject)
        next_version = max(state.versions.get(subject, {0: None}), default=0) + 1
        if mode not in IMPORTING:
            new_schema = _complete_schema_from_config(new_schema, config, earlier, next_version)
        if not new_schema.text.strip():
            raise Errors.NO_SCHEMA.make_error()
        schema, parsed = await self._prepare_schema(state, subject, new_schema, stored=new_schema.id >= 0)
        index = state.get_context_index(subject)
        id = index.id_by_guid.get(schema.guid, -1) if new_schema.id == -1 else new_schema.id
        if new_schema.version == 0:
            known = await self._find_equal_schema(state, earlier, schema, parsed, id)
            if known is not None:
                return known
        if mode not in IMPORTING:
            candidate = Candidate(new_schema.kind, parsed, schema.metadata)
            reasons = await find_incompatibilities(
                self.formats, state, config, candidate, earlier, wait_until_client_left
            )
            if reasons:
                raise Errors.INCOMPATIBLE_SCHEMA.make_error(subject=subject, reasons=", ".join(reasons))
        if new_schema.version > 0 and new_schema.version != next_version and mode not in IMPORTING:
            raise RegistryError(INVALID_SCHEMA, "Version is not one more than previous version")
        await yield_to_loop_after_large_text(len(schema.text))
        state = await self._topic.read_state_to_change()
        if self._topic.state_version != mark:  # others write to the topic, too
            return await self._register_schema(subject, asked, wait_until_client_left)
        version = new_schema.version if new_schema.version > 0 else next_version
        _check_id_is_free(state, subject, schema, id)
        schema = replace(schema, version=version, id=index.max_id + 1 if id < 0 else id)
        await self._topic.append_records(
            [*_list_entries_needed_before(state, schema), records.make_schema_entry(schema)]
        )
        return schema

    async def _prepare_schema(
        self, state: SchemaState, subject: str, new_schema: NewSchema, *, stored: bool = False
    ) -> tuple[StoredSchema, ParsedSchema]:
        """Return a new schema as it is to be stored, without id and version. Raises RegistryError."""
        references = tuple(
            each._replace(version=_find_referenced_version(state, subject, each)) if each.version == LATEST else each
            for each in new_schema.references
        )
        parse = partial(
            self.formats.parse_schema, state, new_schema.kind, references=references, subject=subject, stored=stored
        )
        parsed = await parse(
            new_schema.text, check_defaults=new_schema.normalize and not stored
        )  # as Confluent, else never
        text = parsed.canonical
        if new_schema.normalize:
            text, references = await self.formats.normalize_text(new_schema.kind, parsed), sort_references(references)
            parsed = await parse(text)
        return StoredSchema(
            subject, 0, -1, text, new_schema.kind, references, new_schema.metadata, new_schema.rule_set
        ), parsed

    # --- finding --------------------------------------------------------------------------------

    async def find_registered_schema(
        self, subject: str, new_schema: NewSchema, deleted: bool = False
    ) -> StoredSchema | None:
        """Return the version of a subject with this schema, or None. Raises RegistryError for an invalid schema.

        A subject without a context is looked for in all.
        """
        state = await self.read_state()
        schema = await self._find_given_or_completed_schema(state, subject, new_schema, deleted)
        name = parse_subject(subject)
        if schema is None and name.context == DEFAULT:
            for prefix in state.list_context_prefixes()[1:]:
                try:
                    schema = schema or await self._find_given_or_completed_schema(
                        state, prefix + name.subject, new_schema, deleted
                    )
                except RegistryError as error:
                    if error.code != INVALID_SCHEMA:
                        raise
        return schema

    async def _find_given_or_completed_schema(
        self, state: SchemaState, subject: str, new_schema: NewSchema, deleted: bool
    ) -> StoredSchema | None:
        """Return the version with this schema as given, or completed by the latest one and the config, or None."""
        found = await self._find_version(state, subject, new_schema, deleted=deleted)
        latest = state.find_latest_version(subject)
        if found is not None or latest is None:
            return found
        completed = _merge_contracts(new_schema, find_config(state, subject), latest)
        return None if completed == new_schema else await self._find_version(state, subject, completed, deleted=deleted)

    async def _find_version(
        self,
        state: SchemaState,
        subject: str,
        new_schema: NewSchema,
        *,
        deleted: bool = False,
        latest_only: bool = False,
    ) -> StoredSchema | None:
        """Return the version of a subject (or its latest only) that has this schema, or None."""
        if not new_schema.text.strip():
            return None
        try:
            schema, parsed = await self._prepare_schema(state, subject, new_schema)
        except RegistryError:  # only a new schema has its defaults checked, and no deleted references
            schema, parsed = await self._prepare_schema(state, subject, new_schema, stored=True)
        candidates = state.list_versions(subject, deleted)
        return await self._find_equal_schema(state, candidates[-1:] if latest_only else candidates, schema, parsed, -1)

    async def _find_equal_schema(
        self,
        state: SchemaState,
        candidates: Sequence[StoredSchema],
        schema: StoredSchema,
        parsed: ParsedSchema,
        id: int,
    ) -> StoredSchema | None:
        """Return the last candidate with this schema, which may differ in the order of its parts, or None.

        A schema without references is also one with references that has the same text when they are resolved. The
        version in the metadata need not be there.
        """
        same = [candidate for candidate in candidates if candidate.guid == schema.guid]
        if same:
            return same[-1] if id in (-1, same[-1].id) else None
        if not candidates:
            return None
        likeness, slices = await self.formats.get_comparison_text(parsed, schema), LoopSlices()
        for candidate in reversed(candidates):
            await slices.yield_to_loop_if_slice_is_over()
            if (
                candidate.kind != schema.kind
                or id not in (-1, candidate.id)
                or not _have_same_contracts(schema, candidate)
            ):
                continue
            if await self._get_comparison_text_of_stored(state, candidate) == likeness:
                return candidate
            if candidate.references and not schema.references:
                resolved = await self.formats.parse_stored_schema(state, candidate)
                if await self.formats.format_text(candidate.kind, resolved, "resolved") == schema.text:
                    return candidate
        return None

    async def _get_comparison_text_of_stored(self, state: SchemaState, schema: StoredSchema) -> str:
        found = self._likenesses.get(schema.guid)
        if found is None:
            parsed = await self.formats.parse_stored_schema(state, schema)
            found = self._likenesses[schema.guid] = await self.formats.get_comparison_text(parsed, schema)
        return found

    async def check_compatibility(
        self,
        subject: str,
        new_schema: NewSchema,
        earlier_versions: Sequence[StoredSchema],
        wait_until_client_left: ClientLeft | None = None,
    ) -> list[str]:
        """Return why a schema is not compatible with versions of a subject, by the subject's level.

        Raises RegistryError, also if `wait_until_client_left` returns: the client is gone.
        """
        if not new_schema.text.strip():
            raise Errors.NO_SCHEMA.make_error()
        state = await self.read_state()
        config = find_config(state, subject)
        schema, parsed = await self._prepare_schema(state, subject, new_schema)
        candidate = Candidate(new_schema.kind, parsed, schema.metadata)
        return await find_incompatibilities(
            self.formats, state, config, candidate, earlier_versions, wait_until_client_left
        )

    # --- deleting -------------------------------------------------------------------------------

    async def delete_version(self, subject: str, version: int, version_text: str, *, permanent: bool) -> int:
        """Delete a version, which must be deleted before it is deleted permanently; return it. Raises RegistryError."""
        async with self._writing:
            state = await self._topic.read_state_to_change()
            if (
                not permanent
                and state.find_version(subject, version) is None
                and state.find_version(subject, version, deleted=True)
            ):
                raise Errors.VERSION_DELETED.make_error(subject=subject, version=version_text)
            schema = state.find_version(subject, version, deleted=True)
            if schema is None:
                raise make_missing_version_error(state, subject, version, deleted=True)
            _check_writable(state, subject)
            _check_unreferenced(state, schema)
            if permanent and not schema.deleted:
                raise Errors.VERSION_NOT_DELETED.make_error(subject=subject, version=schema.version)
            if permanent:
                last = len(state.versions[subject]) == 1
                settings = _list_setting_tombstones(state, subject) if last else ()
                await self._topic.append_records([records.make_tombstone(schema.key), *settings])
            else:
                await self._topic.append_records([records.make_schema_entry(replace(schema, deleted=True))])
            return schema.version

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; return them. Raises RegistryError."""
        async with self._writing:
            state = await self._topic.read_state_to_change()
            if not state.has_subjects(subject, deleted=True):
                raise Errors.SUBJECT_NOT_FOUND.make_error(subject=subject)
            if not permanent and not state.has_subjects(subject, deleted=False):
                raise Errors.SUBJECT_DELETED.make_error(subject=subject)
            _check_writable(state, subject)
            schemas = state.list_versions(subject, deleted=permanent)
            for schema in schemas:
                _check_unreferenced(state, schema)
                if permanent and not schema.deleted:
                    raise Errors.SUBJECT_NOT_DELETED.make_error(subject=subject)
            if permanent:
                tombstones = [records.make_tombstone(schema.key) for schema in schemas]
                await self._append_in_portions([*tombstones, *_list_setting_tombstones(state, subject)])
            elif schemas:
                await self._topic.append_records([records.make_delete_subject_entry(subject, schemas[-1].version)])
            return [schema.version for schema in schemas]

    # --- configs, modes and contexts ------------------------------------------------------------

    async def set_config(self, subject: str | None, changes: Mapping[str, Any] | None) -> None:
        """Change the config of a subject, of a context, or (None) of all, as a request asks; without one, remove it.

        Raises RegistryError.
        """
        async with self._writing:
            state = await self._topic.read_state_to_change()
            entry = records.make_tombstone(Key("CONFIG", subject))
            if changes is not None:
                entry = records.make_config_entry(subject, merge_config(state.configs.get(subject, {}), changes))
            _check_writable(state, subject)
            await self._topic.append_records([entry])

    async def set_mode(self, subject: str | None, mode: str | None, *, force: bool = False) -> None:
        """Set the mode as `set_config` does; None removes it. IMPORT needs subjects without versions, unless `force`.

        Raises RegistryError.
        """
        async with self._writing:
            state = await self._topic.read_state_to_change()
            entries: list[Entry] = []
            if mode == "IMPORT" and find_mode(state, subject) != "IMPORT" and not force:
                if state.has_subjects(subject, deleted=False):
                    raise Errors.NOT_PERMITTED.make_error(reason="Cannot import since found existing subjects")
                for name in state.iterate_matching_subjects(subject):
                    for schema in state.list_versions(name, deleted=True):
                        _check_unreferenced(state, schema)
                        entries.append(records.make_tombstone(schema.key))
                entries.append(records.make_clear_subject_entry(subject))
            removed = records.make_tombstone(Key("MODE", subject))
            entries.append(removed if mode is None else records.make_mode_entry(subject, mode))
            await self._append_in_portions(entries)

    async def delete_mode(self, scope: str | None, *, recursive: bool) -> None:
        """Remove the mode of a subject, of a context or (None) of all; also those of a context's subjects, if asked.

        Raises RegistryError.
        """
        async with self._writing:
            state = await self._topic.read_state_to_change()
            named = scope is not None and parse_subject(scope).subject != ""
            inside = [
                name
                for name in state.modes
                if name and get_context_prefix(name) == get_context_prefix(scope) and name != scope
            ]
            scopes = [scope, *(inside if recursive and not named else ())]
            await self._append_in_portions([records.make_tombstone(Key("MODE", each)) for each in scopes])

    async def delete_context(self, prefix: str) -> None:
        """Delete a context without subjects. Raises RegistryError."""
        async with self._writing:
            state = await self._topic.read_state_to_change()
            if state.has_subjects(prefix, deleted=True):
                raise Errors.CONTEXT_NOT_EMPTY.make_error(context=prefix)
            await self._topic.append_records([records.make_tombstone(Key("CONTEXT", parse_subject(prefix).context))])

    async def _append_in_portions(self, entries: Sequence[Entry], portion: int = 1000) -> None:
        """Append records in several batches, so that none takes long or is too large."""
        for begin in range(0, len(entries), portion):
            await self._topic.append_records(entries[begin : begin + portion])
            await self._topic.read_state_to_change()


def make_missing_version_error(state: SchemaState, subject: str, version: int, deleted: bool) -> RegistryError:
    """Return the error for a version that does not exist."""
    if state.has_subjects(subject, deleted):
        return Errors.VERSION_NOT_FOUND.make_error(version=version)
    return Errors.SUBJECT_NOT_FOUND.make_error(subject=subject)


def _check_writable(state: SchemaState, subject: str | None) -> None:
    if find_mode(state, subject) in READING:
        raise Errors.NOT_PERMITTED.make_error(
            reason=f"Subject {subject} in context {get_context_prefix(subject)} is in read-only mode"
        )


def _check_may_register(subject: str, mode: str, new_schema: NewSchema) -> None:
    place = f"Subject {subject} in context {get_context_prefix(subject)}"
    if mode in READING:
        raise Errors.NOT_PERMITTED.make_error(reason=f"{place} is in read-only mode")
    if new_schema.id >= 0 and mode not in IMPORTING:
        raise Errors.NOT_PERMITTED.make_error(reason=f"{place} is not in import mode")
    if new_schema.id < 0 and mode != "READWRITE":
        raise Errors.NOT_PERMITTED.make_error(reason=f"{place} is not in read-write mode")


def _check_unreferenced(state: SchemaState, schema: StoredSchema) -> None:
    if state.get_context_index(schema.subject).referrers.get((schema.subject, schema.version)):
        raise Errors.REFERENCED.make_error(subject=schema.subject, version=schema.version)


def _check_id_is_free(state: SchemaState, subject: str, schema: StoredSchema, id: int) -> None:
    """Raise RegistryError if the id is that of another schema."""
    known = state.find_schema_by_id(id, get_context_prefix(subject)) if id >= 0 else None
    if known is not None and (known.guid != schema.guid or known.kind != schema.kind):
        raise Errors.NOT_PERMITTED.make_error(
            reason=f"Overwrite new schema with id {id} in context {get_context_prefix(subject)} is not permitted."
        )


def _list_entries_needed_before(state: SchemaState, schema: StoredSchema) -> list[Entry]:
    """Return the records to write before a new version: its context, and tombstones of deleted versions with its id."""
    context = parse_subject(schema.subject).context
    new_context = [] if context == DEFAULT or context in state.contexts else [records.make_context_entry(context)]
    replaced = [
        records.make_tombstone(each.key)
        for each in state.versions.get(schema.subject, {}).values()
        if each.deleted and each.id == schema.id and each.version < schema.version
    ]
    return [*new_context, *replaced]


def _list_setting_tombstones(state: SchemaState, subject: str) -> list[Entry]:
    """Return the records that remove the mode and the config of a subject."""
    kinds = (("MODE", state.modes), ("CONFIG", state.configs))
    return [records.make_tombstone(Key(kind, subject)) for kind, found in kinds if subject in found]


def _find_referenced_version(state: SchemaState, subject: str, reference: Reference) -> int:
    """Return the latest version of the subject that a reference names, LATEST if it has none."""
    latest = state.find_latest_version(qualify_subject_within_context(subject, reference.subject))
    return LATEST if latest is None else latest.version


def _find_registered_version(
    state: SchemaState, new_schema: NewSchema, registered_schema: StoredSchema
) -> StoredSchema | None:
    """Return the stored version with the schema, id and version that are to be registered, or None."""
    if new_schema.version in (0, LATEST):
        return registered_schema if new_schema.id in (-1, registered_schema.id) else None
    if new_schema.id != registered_schema.id:
        return None
    older = state.find_version(registered_schema.subject, new_schema.version)
    return (
        older
        if older is not None and (older.id, older.guid) == (registered_schema.id, registered_schema.guid)
        else None
    )


def _have_same_contracts(schema: StoredSchema, other_schema: StoredSchema) -> bool:
    return schema.rule_set == other_schema.rule_set and has_same_metadata(
        schema.metadata, other_schema.metadata, other_schema.version
    )


def _complete_schema_from_config(
    new_schema: NewSchema, config: Mapping[str, Any], earlier_versions: Sequence[StoredSchema], next_version: int
) -> NewSchema:
    """Return a schema with what it takes from the version before and from the config, as in Confluent's registry."""
    previous = earlier_versions[-1] if earlier_versions else None
    if not new_schema.text.strip() and previous is not None:
        new_schema = replace(new_schema, text=previous.text, kind=previous.kind, references=previous.references)
    new_schema = _merge_contracts(new_schema, config, previous)
    if new_schema.version != 0 or get_property(new_schema.metadata, VERSION) is not None:
        new_schema = replace(new_schema, metadata=set_version_in_metadata(new_schema.metadata, next_version))
    return new_schema


def _merge_contracts(new_schema: NewSchema, config: Mapping[str, Any], previous: StoredSchema | None) -> NewSchema:
    """Return a schema with metadata and rules of the version before, and the config's defaults and overrides."""
    metadata, rules = new_schema.metadata, new_schema.rule_set
    if previous is not None:
        metadata = previous.metadata if metadata is None else metadata
        rules = previous.rule_set if rules is None else rules
    metadata = merge_metadata(merge_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = merge_rules(merge_rules(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    return replace(new_schema, metadata=metadata, rule_set=rules)
