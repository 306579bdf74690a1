"""Says in words what a number or a UUID in a field means, by the field's name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from minibroker.protocol.apis import ApiKey, get_api_name
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import format_uuid
from minibroker.protocol.records.message import NO_TIMESTAMP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_value_meaning(name: str, value: Any) -> str:
    """Return what a value means in a field of this name, "" if it says all itself."""
    if isinstance(value, bytes):
        return format_uuid(value)
    if name in _BY_NAME:
        return _BY_NAME[name](value)
    if name.endswith("error_code"):
        return _get_error_name(value)
    if "timestamp" in name and isinstance(value, int):
        return format_timestamp(value)
    return ""


def format_timestamp(timestamp_ms: int) -> str:
    """Return a time in UTC; empty for what is too far away."""
    if timestamp_ms == NO_TIMESTAMP:
        return "none"
    try:
        return f"{(_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec='milliseconds')[:-6]}Z"
    except (OverflowError, ValueError):
        return ""


def _get_error_name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else "unknown error"


def _get_api_name(key: int) -> str:
    return get_api_name(key) if key in ApiKey._value2member_map_ else "unknown API"


def _make_name_finder_of_number(*names: str, first_number: int = 0) -> Callable[[int], str]:
    """Return a function from a number to its name, "" for others. The first name is that of `first_number`."""
    return lambda value: names[value - first_number] if first_number <= value < first_number + len(names) else ""


_BY_NAME: dict[str, Callable[[int], str]] = {
    "request_api_key": _get_api_name,
    "api_key": _get_api_name,
    "acks": lambda value: {-1: "all in-sync replicas", 0: "none: no answer", 1: "the leader"}.get(value, ""),
    "isolation_level": _make_name_finder_of_number("read_uncommitted", "read_committed"),
    "key_type": _make_name_finder_of_number("group", "transaction", "share"),
    "leader_epoch": lambda value: "unknown" if value == -1 else "",
    "current_leader_epoch": lambda value: "unknown" if value == -1 else "",
    "replica_id": lambda value: "a consumer" if value == -1 else "",
    "timestamp": lambda value: {-1: "latest", -2: "earliest", -3: "the largest timestamp"}.get(
        value, format_timestamp(value)
    ),
}
