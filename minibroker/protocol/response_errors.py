"""The error codes in a response, wherever its message has them: at the top, of a topic, of a partition.

What is done with them is the caller's business.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from minibroker.protocol.declare import Message
from minibroker.protocol.fields import fields

ERROR_CODE = "error_code"


def error_codes(response: Message) -> list[int]:
    """All codes but 0 that the fields `error_code` of the response have, each as often as it is there."""
    codes: list[int] = []
    _collect(response, _places(type(response)), codes)
    return codes


class _Places(NamedTuple):
    """Whether a struct has a code itself, and its fields that lead to others."""

    here: bool
    below: tuple[tuple[str, _Places], ...]


@cache
def _places(struct: type) -> _Places:
    below = []
    here = False
    for field in fields(struct):
        inner = (field.kind.item or field.kind).struct
        here = here or field.name == ERROR_CODE
        if inner is not None and any(places := _places(inner)):
            below.append((field.name, places))
    return _Places(here, tuple(below))


def _collect(struct: Any, places: _Places, codes: list[int]) -> None:
    if places.here and struct.error_code:
        codes.append(struct.error_code)
    for name, inner in places.below:
        value = getattr(struct, name)
        if value.__class__ is list:
            for each in value:
                _collect(each, inner, codes)
        elif value is not None:
            _collect(value, inner, codes)
