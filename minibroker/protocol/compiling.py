"""Makes functions of written Python, keeps them, and says which field it was when one of them fails.

What the Python says is in `reading.py`, `writing.py` and `constructing.py`. A function is made on first use, so a
process pays only for the versions that its clients speak.
"""

from __future__ import annotations

import linecache
import struct as structs
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from minibroker.protocol.primitives import MalformedMessage
from minibroker.protocol.source import Source

READ_FAILURES = (ValueError, IndexError, structs.error)  # all that generated readers raise; ValueError covers bad UTF-8

_PLACES: dict[CodeType, list[tuple[tuple[str, int], ...]]] = {}


def compiled(source: Source, title: str) -> Callable[..., Any]:
    """The function that a source defines. Its text is shown in tracebacks and by debuggers, under the title."""
    text = "\n".join(source.lines) + "\n"
    file = f"<{title}>"
    scope = dict(source.names)
    exec(compile(text, file, "exec"), scope)
    function: Callable[..., Any] = scope[source.lines[0].split("(")[0].removeprefix("def ")]
    _PLACES[function.__code__] = source.places
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return function


def malformed(message: str, version: int, problem: Exception) -> MalformedMessage:
    """Return the error for a failure of a generated reader, with the field that the failing line was about."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code not in _PLACES:
        trace = trace.tb_next
    field = "" if trace is None else _field(trace)
    reason = str(problem) if isinstance(problem, ValueError) else "the data ends too early"
    return MalformedMessage(message, version, field, reason)


def _field(trace: TracebackType) -> str:
    """The field of the failing line; of several that one struct call reads, the first that is not whole."""
    places = _PLACES[trace.tb_frame.f_code][trace.tb_lineno - 1]
    local = trace.tb_frame.f_locals
    left = local["end"] - local["pos"]
    for field, size_bytes in places:
        left -= size_bytes
        if left < 0:
            return field
    return places[-1][0]
