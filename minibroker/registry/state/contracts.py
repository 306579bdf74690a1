"""The metadata and the rules of schemas: configs may have some for all schemas of a subject.

The registry keeps and merges them; clients act on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

ContractPart = Mapping[str, Any] | None

VERSION: Final = "confluent:version"  # a property of the metadata
RESERVED: Final = "confluent:reserved"  # another one: names of fields, with commas between them
RULES: Final = ("migrationRules", "domainRules", "encodingRules")
KINDS: Final = ("TRANSFORM", "CONDITION")
MIGRATING, RUNNING = ("UPGRADE", "DOWNGRADE", "UPDOWN"), ("WRITE", "READ", "WRITEREAD")  # the modes of rules
ACTIONS: Final = ("onSuccess", "onFailure")
TEXTS: Final = ("name", "doc", "kind", "mode", "type", "expr", *ACTIONS)  # of a rule
NAME_CHARACTERS_MAX: Final = 64


class InvalidRules(ValueError):
    """Rules are not valid, although each part of them is of the right type."""


def merge_metadata(older_metadata: ContractPart, newer_metadata: ContractPart) -> ContractPart:
    """Return both metadata; what is newer takes precedence."""
    if older_metadata is None or newer_metadata is None:
        return newer_metadata if older_metadata is None else older_metadata
    merged = {
        part: {**(older_metadata.get(part) or {}), **(newer_metadata.get(part) or {})}
        for part in ("tags", "properties")
    }
    sensitive = sorted({*(older_metadata.get("sensitive") or ()), *(newer_metadata.get("sensitive") or ())})
    return {name: value for name, value in (merged | {"sensitive": sensitive}).items() if value}


def merge_rules(older_rules: ContractPart, newer_rules: ContractPart) -> ContractPart:
    """Return the rules of both; a newer rule replaces the older one of the same name."""
    if older_rules is None or newer_rules is None:
        return newer_rules if older_rules is None else older_rules
    merged: dict[str, Any] = {}
    for kind in RULES:
        added = newer_rules.get(kind) or []
        names = {rule.get("name") for rule in added}
        merged[kind] = [rule for rule in older_rules.get(kind) or [] if rule.get("name") not in names] + added
    return {kind: rules for kind, rules in merged.items() if rules}


def has_same_metadata(required: ContractPart, metadata: ContractPart, version: int) -> bool:
    """Return whether metadata are as required. Any version fits if none is required; theirs is by default `version`."""
    asked, told = get_property(required, VERSION), get_property(metadata, VERSION)
    if asked is None and told is not None:
        required = set_version_in_metadata(required, told)
    elif asked is not None and told is None:
        metadata = set_version_in_metadata(metadata, version)
    return required == metadata


def set_version_in_metadata(metadata: ContractPart, version: int | str) -> ContractPart:
    """Return metadata with the version of the schema."""
    return merge_metadata(metadata, {"properties": {VERSION: str(version)}})


def get_property(metadata: ContractPart, name: str) -> str | None:
    """Return a property of metadata, or None."""
    return None if metadata is None else (metadata.get("properties") or {}).get(name)


def get_reserved_names(metadata: ContractPart) -> set[str]:
    """Return the names of fields that metadata reserve."""
    return {name.strip() for name in (get_property(metadata, RESERVED) or "").split(",")} - {""}


def check_contract_part(contract_part: Any) -> None:
    """Raise ValueError unless a value is None, metadata or rules; parts of these may be None, too."""
    if not isinstance(contract_part, dict | None):
        raise ValueError("metadata and rule sets are objects")
    for name, value in (contract_part or {}).items():
        if name in RULES:
            for rule in _require_type(list, value, f"{name} is a list of rules"):
                _check_rule(rule)
        elif name == "tags":
            for tags in _require_type(dict, value, "tags are lists of texts").values():
                _check_texts(_require_type(list, tags, "tags are lists of texts"), "tags are lists of texts")
        elif name == "properties":
            _check_texts(_require_type(dict, value, "properties are texts").values(), "properties are texts")
        elif name == "sensitive":
            _check_texts(_require_type(list, value, "sensitive is a list of texts"), "sensitive is a list of texts")


def _check_rule(rule: Any) -> None:
    for name, value in _require_type(dict, rule, "a rule is an object").items():
        if name == "tags":
            _check_texts(_require_type(list, value, "a rule's tags are texts"), "a rule's tags are texts")
        elif name == "params":
            _check_texts(_require_type(dict, value, "a rule's params are texts").values(), "a rule's params are texts")
        elif name in TEXTS and not isinstance(value, str | None):
            raise ValueError(f"a rule's {name} is a text")


def _require_type(kind: type[Any], value: Any, message: str) -> Any:
    """Return a value, empty for None. Raises ValueError with this message for another type."""
    if not isinstance(value, kind | None):
        raise ValueError(message)
    return kind() if value is None else value


def _check_texts(values: Iterable[Any], message: str) -> None:
    """Raise ValueError with this message unless all values are texts."""
    if not all(isinstance(each, str) for each in values):
        raise ValueError(message)


def normalize_contract_part(contract_part: Any) -> ContractPart:
    """Return metadata or rules from a request as they are stored: sorted, without what is empty, with defaults.

    Raises ValueError.
    """
    check_contract_part(contract_part)
    if contract_part is None:
        return None
    parts: dict[str, Any] = {}
    for name, value in contract_part.items():
        if not value:
            continue
        if name in RULES:
            parts[name] = [_complete_rule(rule) for rule in value]
        elif name == "tags":
            parts[name] = {tag: sorted({*(value[tag] or ())}) for tag in sorted(value)}
        elif name == "properties":
            parts[name] = {each: value[each] for each in sorted(value)}
        elif name == "sensitive":
            parts[name] = sorted({*value})
    _check_rules(contract_part)
    return parts


def _complete_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as Confluent stores it. Raises ValueError."""
    whole: dict[str, Any] = {"name": rule.get("name"), "doc": rule.get("doc")}
    whole |= {"kind": rule.get("kind") or KINDS[0], "mode": rule.get("mode") or RUNNING[-1], "type": rule.get("type")}
    if whole["kind"] not in KINDS or whole["mode"] not in (*MIGRATING, *RUNNING):
        raise ValueError(f"a rule has no kind {whole['kind']}, or no mode {whole['mode']}")
    params = rule.get("params") or {}
    whole |= {"tags": sorted({*(rule.get("tags") or ())}), "params": {name: params[name] for name in sorted(params)}}
    whole |= {name: rule.get(name) for name in ("expr", *ACTIONS)}
    return {name: value for name, value in whole.items() if value} | {"disabled": rule.get("disabled") is True}


def _check_rules(rule_set: Mapping[str, Any]) -> None:
    """Raise InvalidRules, in Confluent's words, for rules that are not valid."""
    names: set[str | None] = set()
    for kind in RULES:
        modes = MIGRATING if kind == "migrationRules" else RUNNING
        for rule in rule_set.get(kind) or ():
            name, mode = rule.get("name"), rule.get("mode") or RUNNING[-1]
            if name in names:
                raise InvalidRules(f"Found rule with duplicate name '{name}'")
            names.add(name)
            _check_name(name)
            if rule.get("type") is None:
                raise InvalidRules("Missing rule type")
            if mode not in ("WRITEREAD", "UPDOWN") and any("," in (rule.get(each) or "") for each in ACTIONS):
                raise InvalidRules("Multiple actions only valid with WRITEREAD and UPDOWN")
            if mode not in modes:
                raise InvalidRules(f"{kind.removesuffix('Rules').capitalize()} rules can only be {', '.join(modes)}")


def _check_name(name: str | None) -> None:
    if not name:
        raise InvalidRules("Missing rule name" if name is None else "Empty rule name")
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidRules("Rule name too long")
    if not (name[0].isalpha() or name[0] == "_"):
        raise InvalidRules(f"Illegal initial character in rule name: {name}")
    if not all(each.isalnum() or each in "_-" for each in name[1:]):
        raise InvalidRules(f"Illegal character in rule name: {name}")
