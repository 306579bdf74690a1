"""Finds the error codes in a response, of the request, of topics and of partitions."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.declare import Message
from minibroker.protocol.fields import fields

ERROR_FIELDS = ("error_code", "partition_error_code")  # AddPartitionsToTxn has the second


def error_codes(response: Message) -> list[int]:
    """Return all error codes in the response except 0, with repetitions."""
    codes: list[int] = []
    _collect(response, _places(type(response)), codes)
    return codes


class _Places(NamedTuple):
    """The error code field of a struct ("" for none), and the fields that contain structs with error codes."""

    here: str
    below: tuple[tuple[str, _Places], ...]


@cache
def _places(struct: type) -> _Places:
    below = []
    here = ""
    for field in fields(struct):
        inner = (field.kind.item or field.kind).struct
        here = field.name if field.name in ERROR_FIELDS else here
        if inner is not None and any(places := _places(inner)):
            below.append((field.name, places))
    return _Places(here, tuple(below))


def _collect(struct: Any, places: _Places, codes: list[int]) -> None:
    if places.here and (code := getattr(struct, places.here)):
        codes.append(code)
    for name, inner in places.below:
        value = getattr(struct, name)
        if value.__class__ is list:
            for each in value:
                _collect(each, inner, codes)
        elif value is not None:
            _collect(value, inner, codes)
