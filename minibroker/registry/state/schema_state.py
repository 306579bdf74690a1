"""The state of a registry: a fold over the records of `_schemas`, with the indexes that requests need."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from minibroker.protocol.records.record import Record
from minibroker.registry.state.qualified_subjects import (
    GLOBAL,
    get_context_prefix,
    parse_subject,
    qualify_subject_within_context,
)
from minibroker.registry.state.schema_records import (
    Key,
    StoredSchema,
    parse_record,
    parse_stored_config,
    parse_stored_mode,
    parse_stored_schema,
)

HIGHEST = "\U0010ffff"  # sorts after every subject that has the same beginning


class ContextIndex:
    """The ids of a context. An id has, by subject, the last version with its schema."""

    def __init__(self) -> None:
        self.versions_by_id: dict[int, dict[str, int]] = {}
        self.id_by_guid: dict[str, int] = {}
        self.referrers: dict[tuple[str, int], set[int]] = {}  # ids, by subject and version
        self.max_id = 0


class SchemaState:
    """All versions, configs, modes and contexts."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, StoredSchema]] = {}
        self._subjects: list[str] = []  # in order
        self._contexts: dict[str, ContextIndex] = {}
        self.contexts: dict[str, None] = {}
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}

    # --- the fold -------------------------------------------------------------------------------

    def apply_record(self, record: Record) -> None:
        """Apply a record. Raises ValueError for one that is not a registry's; then nothing has changed."""
        key, value = parse_record(record)
        if key.kind == "SCHEMA":
            if value is None:
                self._forget_schema(key)
            else:
                self._store_schema(parse_stored_schema(key, value, record.timestamp))
        elif key.kind == "DELETE_SUBJECT" and value is not None and key.name is not None:
            for schema in list(self.versions.get(key.name, {}).values()):
                if schema.version <= value["version"]:
                    self._store_schema(replace(schema, deleted=True))
        elif key.kind == "CLEAR_SUBJECT" and value is not None:
            self._forget_deleted_schemas(key.name)
        elif key.kind == "CONFIG":
            _set_or_remove_key(self.configs, key.name, None if value is None else parse_stored_config(value))
        elif key.kind == "MODE":
            _set_or_remove_key(self.modes, key.name, None if value is None else parse_stored_mode(value))
        elif key.kind == "CONTEXT" and key.name is not None:
            _set_or_remove_key(self.contexts, key.name, value and True)

    def _store_schema(self, schema: StoredSchema) -> None:
        if schema.subject not in self.versions:
            self.versions[schema.subject] = {}
            insort(self._subjects, schema.subject)
        self.versions[schema.subject][schema.version] = schema
        index = self.get_context_index(schema.subject)
        index.versions_by_id.setdefault(schema.id, {})[schema.subject] = schema.version
        index.id_by_guid[schema.guid] = schema.id
        index.max_id = max(index.max_id, schema.id)
        for reference in schema.references:
            target = qualify_subject_within_context(schema.subject, reference.subject), reference.version
            ids = self.get_context_index(target[0]).referrers.setdefault(target, set())
            (ids.discard if schema.deleted else ids.add)(schema.id)

    def _forget_schema(self, key: Key) -> None:
        subject = key.name or ""
        schema = self.versions.get(subject, {}).pop(key.version, None)
        if schema is None:
            return
        if not self.versions[subject]:
            del self.versions[subject]
            del self._subjects[bisect_left(self._subjects, subject)]
        index = self.get_context_index(subject)
        with_id = index.versions_by_id.get(schema.id, {})
        if with_id.get(subject) == key.version:
            del with_id[subject]
            if not with_id:
                del index.versions_by_id[schema.id]
                index.id_by_guid.pop(schema.guid, None)
        for reference in schema.references:
            target = qualify_subject_within_context(subject, reference.subject), reference.version
            self.get_context_index(target[0]).referrers.get(target, set()).discard(schema.id)

    def _forget_deleted_schemas(self, subject: str | None) -> None:
        for name in list(self.iterate_matching_subjects(subject)):
            for schema in list(self.versions[name].values()):
                if schema.deleted:
                    self._forget_schema(schema.key)

    # --- looking up -----------------------------------------------------------------------------

    def get_context_index(self, subject: str) -> ContextIndex:
        """Return the ids of the context of a subject."""
        context = parse_subject(subject).context
        if context not in self._contexts:
            self._contexts[context] = ContextIndex()
        return self._contexts[context]

    def iterate_subjects_with_prefix(self, prefix: str) -> Iterator[str]:
        """Return the subjects that begin with `prefix`, also deleted ones, in order."""
        first = bisect_left(self._subjects, prefix)
        last = bisect_left(self._subjects, prefix + HIGHEST, first)
        return iter(self._subjects[first:last])

    def iterate_matching_subjects(self, subject: str | None) -> Iterator[str]:
        """Return the subject itself if it exists, or all subjects of a context that is named without a subject."""
        if subject is None:
            return iter(list(self._subjects))
        name = parse_subject(subject)
        if name.subject:
            return iter([subject] if subject in self.versions else [])
        if name.context == GLOBAL:
            return iter(list(self._subjects))
        return (
            each for each in self.iterate_subjects_with_prefix(name.prefix) if get_context_prefix(each) == name.prefix
        )

    def has_subjects(self, subject: str | None, deleted: bool) -> bool:
        """Return whether the subject, or any in a context, has a version; with `deleted` a deleted one counts."""
        return any(deleted or self.has_live_version(name) for name in self.iterate_matching_subjects(subject))

    def has_live_version(self, subject: str) -> bool:
        """Return whether the subject has a version that is not deleted."""
        return any(not schema.deleted for schema in self.versions.get(subject, {}).values())

    def list_versions(self, subject: str, deleted: bool = False) -> list[StoredSchema]:
        """Return the versions of a subject, the oldest first; with `deleted` also those that are deleted."""
        versions = self.versions.get(subject, {})
        return [versions[each] for each in sorted(versions) if deleted or not versions[each].deleted]

    def find_latest_version(self, subject: str) -> StoredSchema | None:
        """Return the last version that is not deleted."""
        live = (schema for schema in self.versions.get(subject, {}).values() if not schema.deleted)
        return max(live, key=lambda schema: schema.version, default=None)

    def find_version(self, subject: str, version: int, deleted: bool = False) -> StoredSchema | None:
        """Return a version, -1 for the latest; with `deleted` also one that is deleted."""
        if version == -1:
            return self.find_latest_version(subject)
        found = self.versions.get(subject, {}).get(version)
        return found if found is not None and (deleted or not found.deleted) else None

    def find_schema_by_id(self, id: int, subject: str) -> StoredSchema | None:
        """Return a version with this id of a subject, or of any in the context that `subject` names."""
        with_id = self.get_context_index(subject).versions_by_id.get(id, {})
        name = subject if parse_subject(subject).subject else next(iter(with_id), None)
        return None if name is None or name not in with_id else self.versions[name][with_id[name]]

    def list_context_prefixes(self) -> list[str]:
        """Return all contexts as they are written before a subject, the default one first."""
        return ["", *(f":{context}:" for context in sorted(self.contexts))]


def _set_or_remove_key(target: dict[Any, Any], key: Any, value: Any) -> None:
    """Set the value of a key, or remove the key if the value is None."""
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value
