"""Writes the `__init__` of a struct: keyword arguments, one line a field, no loop when it runs."""

from __future__ import annotations

from minibroker.protocol.fields import default_maker, default_value, fields
from minibroker.protocol.source import Source

_MISSING = object()


def constructing(struct: type) -> Source:
    """The function `__init__(self, *, name=default, ...)` of a struct."""
    source = Source({"MISSING": _MISSING})
    arguments, lines = [], []
    for field in fields(struct):
        maker = default_maker(field)
        if maker is None:
            default, value = source.constant(default_value(field)), field.name
        else:
            made = "[]" if maker is list else f"{source.named(maker.__name__, maker)}()"
            default, value = "MISSING", f"{made} if {field.name} is MISSING else {field.name}"
        arguments.append(f"{field.name}={default}")
        lines.append(f"self.{field.name} = {value}")
    with source.block(f"def __init__(self{', *, ' if arguments else ''}{', '.join(arguments)}):"):
        for line in lines or ["pass"]:
            source.add(line)
    return source
