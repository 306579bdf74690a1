"""The records of the topic `_schemas`, as Confluent's registry writes and reads them: keys and values are JSON.

    {"keytype":"SCHEMA","subject":"a","version":1,"magic":1}    {"subject":"a","version":1,"id":1,"schema":"...", ...}
    {"keytype":"CONFIG","subject":"a","magic":0}                {"subject":"a","compatibilityLevel":"FULL"}
    {"keytype":"MODE","subject":null,"magic":0}                 {"mode":"READONLY"}, of all subjects
    {"keytype":"DELETE_SUBJECT","subject":"a","magic":0}        {"subject":"a","version":2}: all versions up to 2
    {"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}         {"subject":"a"}: deleted versions are forgotten
    {"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}
    {"keytype":"NOOP","magic":0}                                no value; Confluent's writes it when it starts

Without a value, a record takes back the one with the same key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any, Final
from uuid import UUID

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.records.record import Record
from minibroker.registry.formats.java_json import format_json
from minibroker.registry.formats.schema import Reference
from minibroker.registry.state.contracts import check_contract_part

Entry = tuple[bytes, bytes | None]

AVRO: Final = "AVRO"
TENANT: Final = "default"
LEVELS: Final = (
    "NONE",
    *("BACKWARD", "BACKWARD_TRANSITIVE"),
    *("FORWARD", "FORWARD_TRANSITIVE"),
    *("FULL", "FULL_TRANSITIVE"),
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
CONTRACTS: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
TEXTS: Final = ("alias", "compatibilityGroup")
SWITCHES: Final = ("normalize", "validateFields")
POLICIES: Final = ("STRICT", "LENIENT")


class Key(NamedTuple):
    """The key of a record. `name` is a subject, or a context; None stands for all subjects."""

    kind: str
    name: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version of a subject. Its `guid` is the same in all registries."""

    subject: str
    version: int
    id: int
    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False
    timestamp_ms: int = 0
    guid: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "guid", compute_guid(self.text, self.references, self.metadata, self.rule_set))

    @property
    def key(self) -> Key:
        """The key of its record."""
        return Key("SCHEMA", self.subject, self.version)

    def has_rules(self, type: str) -> bool:
        """Return whether it has rules of a type, such as CEL."""
        return any(rule.get("type") == type for rules in (self.rule_set or {}).values() for rule in rules)


def compute_guid(
    text: str,
    references: tuple[Reference, ...] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> str:
    """Return the GUID of a schema: the MD5 of its text, references, metadata and rules, as Confluent computes it."""
    digest = md5(text.encode(), usedforsecurity=False)
    for name, subject, version in references:
        digest.update(name.encode() + subject.encode() + (version & 0xFFFFFFFF).to_bytes(4, "big"))
    if metadata is not None:
        digest.update(b"\x01" + b"".join(_encode_metadata(metadata)))
    if rule_set is not None:
        digest.update(b"\x01")
        for kind in ("migrationRules", "domainRules", "encodingRules"):
            for rule in rule_set.get(kind) or ():
                digest.update(b"".join(_encode_rule(rule)))
    return str(UUID(bytes=digest.digest()))


def _encode_metadata(metadata: Mapping[str, Any]) -> list[bytes]:
    """Return the parts of metadata of which the GUID is computed."""
    tags: Mapping[str, list[str]] = metadata.get("tags") or {}
    properties: Mapping[str, str] = metadata.get("properties") or {}
    parts = [part for name in sorted(tags) for part in (name, *sorted({*tags[name]}))]
    parts += [part for name in sorted(properties) for part in (name, properties[name])]
    parts += sorted({*(metadata.get("sensitive") or ())})
    return [part.encode() for part in parts]


def _encode_rule(rule: Mapping[str, Any]) -> list[bytes]:
    """Return the parts of a rule of which the GUID is computed."""
    params: Mapping[str, str] = rule.get("params") or {}
    parts = [rule.get("name"), rule.get("doc"), rule.get("kind", "TRANSFORM"), rule.get("mode", "WRITEREAD")]
    parts += [rule.get("type"), *sorted({*(rule.get("tags") or ())})]
    parts += [part for name in sorted(params) for part in (name, params[name])]
    parts += [rule.get("expr"), rule.get("onSuccess"), rule.get("onFailure")]
    return [*(part.encode() for part in parts if part is not None), *((b"\x01",) if rule.get("disabled") else ())]


# --- writing ------------------------------------------------------------------------------------


def make_schema_entry(schema: StoredSchema) -> Entry:
    """Return the record of a version."""
    value: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if schema.kind != AVRO:
        value["schemaType"] = schema.kind
    if schema.references:
        value["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        value["metadata"] = dict(schema.metadata)
    if schema.rule_set is not None:
        value["ruleSet"] = dict(schema.rule_set)
    value |= {"schema": schema.text, "deleted": schema.deleted}
    return _encode_key(schema.key), format_json(value).encode()


def make_config_entry(subject: str | None, config: Mapping[str, Any]) -> Entry:
    """Return the record of the config of a subject, or of all."""
    return _make_subject_entry("CONFIG", subject, config)


def make_mode_entry(subject: str | None, mode: str) -> Entry:
    """Return the record of the mode of a subject, or of all."""
    return _make_subject_entry("MODE", subject, {"mode": mode})


def make_delete_subject_entry(subject: str, version: int) -> Entry:
    """Return the record that deletes all versions of a subject up to one."""
    return _make_subject_entry("DELETE_SUBJECT", subject, {"version": version})


def make_clear_subject_entry(subject: str | None) -> Entry:
    """Return the record after which the deleted versions of a subject, or of a context, are forgotten."""
    return _make_subject_entry("CLEAR_SUBJECT", subject, {})


def make_context_entry(context: str) -> Entry:
    """Return the record of a context."""
    return _encode_key(Key("CONTEXT", context)), format_json({"tenant": TENANT, "context": context}).encode()


def make_tombstone(key: Key) -> Entry:
    """Return the record without a value that deletes the one with this key."""
    return _encode_key(key), None


def _make_subject_entry(kind: str, subject: str | None, value: Mapping[str, Any]) -> Entry:
    named = {} if subject is None else {"subject": subject}
    return _encode_key(Key(kind, subject)), format_json(named | dict(value)).encode()


def _encode_key(key: Key) -> bytes:
    if key.kind == "CONTEXT":
        return format_json({"keytype": key.kind, "tenant": TENANT, "context": key.name, "magic": 0}).encode()
    named: dict[str, Any] = {"keytype": key.kind, "subject": key.name}
    if key.kind == "SCHEMA":
        return format_json(named | {"version": key.version, "magic": 1}).encode()
    return format_json(named | {"magic": 0}).encode()


# --- reading ------------------------------------------------------------------------------------


def parse_record(record: Record) -> tuple[Key, dict[str, Any] | None]:
    """Return the key and the value of a record. Raises ValueError for what is none of the registry's."""
    if record.key is None:
        raise ValueError("a record of a registry has a key")
    try:
        key, value = json.loads(record.key), None if record.value is None else json.loads(record.value)
    except RecursionError:
        raise ValueError("the JSON of a record of a registry is not so deep") from None
    if not isinstance(key, dict) or not isinstance(key.get("keytype"), str):
        raise ValueError("the key of a record of a registry has a keytype")
    if value is not None and not isinstance(value, dict):
        raise ValueError("the value of a record of a registry is an object")
    named = key.get("context" if key["keytype"] == "CONTEXT" else "subject")
    version = key.get("version", 0)
    if not isinstance(named, str | None) or not isinstance(version, int):
        raise ValueError("the key of a record of a registry has a subject and a version")
    return Key(key["keytype"], named, version), value


def parse_stored_schema(key: Key, value: Mapping[str, Any], timestamp_ms: int) -> StoredSchema:
    """Return the version of a subject in a record. Raises ValueError."""
    id, text = value.get("id"), value.get("schema")
    if key.name is None or not isinstance(id, int) or not isinstance(text, str):
        raise ValueError("the record of a schema has a subject, an id and a text")
    check_contract_part(value.get("metadata"))
    check_contract_part(value.get("ruleSet"))
    return StoredSchema(
        key.name,
        key.version,
        id,
        text,
        str(value.get("schemaType") or AVRO),
        parse_references(value.get("references")),
        value.get("metadata"),
        value.get("ruleSet"),
        value.get("deleted") is True,
        timestamp_ms,
    )


def parse_stored_config(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config in a record, also with settings that have no effect here. Raises ValueError."""
    config = {name: each for name, each in value.items() if name != "subject" and each is not None}
    if config.get("compatibilityLevel", LEVELS[0]) not in LEVELS:
        raise ValueError("a level is one of Confluent's")
    for name in SWITCHES:
        if not isinstance(config.get(name, False), bool):
            raise ValueError(f"{name} is true or false")
    for name in TEXTS:
        if not isinstance(config.get(name, ""), str):
            raise ValueError(f"{name} is a text")
    for name in CONTRACTS:
        check_contract_part(config.get(name))
    return config


def parse_stored_mode(value: Mapping[str, Any]) -> str:
    """Return the mode in a record. Raises ValueError."""
    mode = value.get("mode")
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError("a mode is one of Confluent's")
    return mode


def parse_references(value: Any) -> tuple[Reference, ...]:
    """Return the references in a record or a request. Raises ValueError."""
    try:
        references = tuple(Reference(each["name"], each["subject"], each["version"]) for each in value or ())
    except (KeyError, TypeError):
        raise ValueError("Invalid schema reference") from None
    for name, subject, version in references:
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise ValueError("Invalid schema reference")
    return references
