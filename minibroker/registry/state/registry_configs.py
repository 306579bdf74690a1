"""Configs and modes: which apply to a subject, and what a request may set.

A subject's own comes first, then that of its context, then that of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minibroker.registry.state.contracts import ContractPart, InvalidRules, normalize_contract_part
from minibroker.registry.state.qualified_subjects import GLOBAL, get_context_prefix
from minibroker.registry.state.registry_errors import Errors, RegistryError
from minibroker.registry.state.schema_records import CONTRACTS, LEVELS, MODES, POLICIES, SWITCHES, TEXTS
from minibroker.registry.state.schema_state import SchemaState

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
IMPORTING: Final = ("IMPORT", "FORWARD")
OVERRIDE: Final = "READONLY_OVERRIDE"
READING: Final = ("READONLY", OVERRIDE)
EVERYWHERE: Final = f":{GLOBAL}:"


def _list_scopes(subject: str | None) -> Iterator[str | None]:
    """Return whose settings may apply to a subject, the nearest first."""
    if subject:
        yield subject
    prefix = get_context_prefix(subject)
    if prefix:
        yield prefix
    else:
        yield None
    yield EVERYWHERE


def find_config(state: SchemaState, subject: str | None) -> Mapping[str, Any]:
    """Return the config that applies to a subject; the level comes from further away if the nearest has none."""
    found = [state.configs[scope] for scope in _list_scopes(subject) if scope in state.configs]
    level = next((config["compatibilityLevel"] for config in found if "compatibilityLevel" in config), DEFAULT_LEVEL)
    return {**(found[0] if found else {}), "compatibilityLevel": level}


def get_compatibility_level(config: Mapping[str, Any]) -> str:
    """Return the level of a config."""
    return str(config.get("compatibilityLevel", DEFAULT_LEVEL))


def find_mode(state: SchemaState, subject: str | None) -> str:
    """Return the mode that applies to a subject."""
    found = (get_own_mode(state, scope) for scope in _list_scopes(subject))
    return next((mode for mode in found if mode is not None), DEFAULT_MODE)


def get_own_mode(state: SchemaState, scope: str | None) -> str | None:
    """Return the mode that is set for a subject or context itself, or None; READONLY_OVERRIDE of all comes first."""
    if OVERRIDE in (state.modes.get(None), state.modes.get(EVERYWHERE)):
        return OVERRIDE
    return state.modes.get(scope)


def parse_mode(mode: Any) -> str:
    """Return the mode in a request. Raises RegistryError."""
    name = mode.upper() if isinstance(mode, str) else ""
    if name not in MODES:
        raise Errors.INVALID_MODE.make_error()
    return name


def merge_config(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config after a request, which sets what it names; null removes it. Raises RegistryError."""
    changed = dict(before)
    for name, value in changes.items():
        stored = "compatibilityLevel" if name == "compatibility" else name
        if value is None:
            changed.pop(stored, None)
        else:
            changed[stored] = _check_config_value(stored, value)
    return changed


def _check_config_value(name: str, value: Any) -> Any:
    """Return a config's value as it is stored. Raises RegistryError if it is not valid."""
    if name == "compatibilityLevel":
        level = value.upper() if isinstance(value, str) else ""
        if level not in LEVELS:
            raise Errors.INVALID_COMPATIBILITY.make_error()
        return level
    if name == "compatibilityPolicy":
        policy = value.upper() if isinstance(value, str) else ""
        if policy not in POLICIES:
            raise Errors.INVALID_POLICY.make_error()
        return policy
    if name in SWITCHES and isinstance(value, bool):
        return value
    if name in TEXTS and isinstance(value, str):
        return value
    if name in CONTRACTS:
        return parse_contract(value)
    raise RegistryError(422, f"{name} cannot be set to {value!r} here")


def parse_contract(part: Any) -> ContractPart:
    """Return metadata or rules of a request as they are stored. Raises RegistryError."""
    try:
        return normalize_contract_part(part)
    except InvalidRules as error:
        raise Errors.INVALID_RULES.make_error(reason=str(error)) from None
    except (ValueError, TypeError) as error:
        raise RegistryError(422, str(error)) from None
