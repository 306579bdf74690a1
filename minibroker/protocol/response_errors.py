"""Finds the error codes in a response, of the request, of topics and of partitions."""

from __future__ import annotations

from functools import cache
from typing import Any

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message
from minibroker.protocol.fields import list_declared_fields

ERROR_FIELDS = ("error_code", "partition_error_code")  # AddPartitionsToTxn has the second
COUNTED_FIELDS = (*ERROR_FIELDS, "acknowledge_error_code")  # ShareFetch has it besides the first


def collect_error_codes(response: Message) -> list[int]:
    """Return all error codes in the response except 0, with repetitions."""
    codes: list[int] = []
    _collect_error_codes_of_struct(response, _find_error_code_fields(type(response)), codes)
    return codes


class _ErrorCodeFields(NamedTuple):
    """The error code fields of a struct, and the fields that contain structs with error codes."""

    here: tuple[str, ...]
    below: tuple[tuple[str, _ErrorCodeFields], ...]


@cache
def _find_error_code_fields(struct: type) -> _ErrorCodeFields:
    """Return the fields of a struct that are error codes, or lead to some."""
    below = []
    here = []
    for field in list_declared_fields(struct):
        inner = (field.kind.item or field.kind).struct
        if field.name in COUNTED_FIELDS:
            here.append(field.name)
        if inner is not None and any(places := _find_error_code_fields(inner)):
            below.append((field.name, places))
    return _ErrorCodeFields(tuple(here), tuple(below))


def _collect_error_codes_of_struct(struct: Any, error_code_fields: _ErrorCodeFields, codes: list[int]) -> None:
    """Append the error codes in a struct, except 0, to `codes`."""
    for name in error_code_fields.here:
        if code := getattr(struct, name):
            codes.append(code)
    for name, inner in error_code_fields.below:
        value = getattr(struct, name)
        if value.__class__ is list:
            for each in value:
                _collect_error_codes_of_struct(each, inner, codes)
        elif value is not None:
            _collect_error_codes_of_struct(value, inner, codes)
