"""Python that is being written, and the functions made of it: lines, and the field that each line is about.

Knows nothing of versions; what the Python says is in `reading.py`, `writing.py` and `declare.py`. A function is
made on first use, so a process pays only for the versions that its clients speak. The field of a line is how an error
in running code is traced to a field at no cost.
"""

from __future__ import annotations

import linecache
import struct as structs
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from keyword import iskeyword
from struct import Struct as Codec
from types import CodeType, TracebackType
from typing import Any

from minibroker.protocol.primitives import ZERO_UUID, MalformedMessage

READ_ITEMS = 1000  # so many items of arrays are read in a step,
WRITTEN_ITEMS = 250  # and so many written, some of which are only made then
FEW = 17  # arrays of fewer fixed-size items are packed and unpacked by codecs made beforehand

_RESERVED = frozenset(
    {"data", "pos", "end", "n", "stop", "view", "new", "out", "raw", "value", "message", "count"}
) | frozenset({"allowance", "left", "long_arrays"})
READ_FAILURES = (ValueError, IndexError, structs.error)  # all that generated readers raise; ValueError covers bad UTF-8
_PLACES: dict[CodeType, list[tuple[tuple[str, int], ...]]] = {}


class Source:
    """The text of one function while it is written.

    `lines` is the text; `places` has, for every line, the fields it is about in wire order, each with the bytes it
    takes; `names` are the objects that the lines refer to.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.places: list[tuple[tuple[str, int], ...]] = []
        self.names = names
        self._depth = 0
        self._path: tuple[str, ...] = ()

    def add(self, text: str, *places: tuple[str, int]) -> None:
        """Adds a line; it is about the current field unless said otherwise."""
        self.lines.append("    " * self._depth + text)
        self.places.append(places or ((self.path, 0),))

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Adds a line that opens a block, and indents what follows inside the `with`."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def about(self, field: str) -> Iterator[None]:
        """Lines added inside the `with` are about this field of the current one."""
        before = self._path
        self._path = (*before, field)
        yield
        self._path = before

    @property
    def path(self) -> str:
        return ".".join(self._path)

    def named(self, name: str, value: Any) -> str:
        """Lets the lines use an object, and returns its name there: the one proposed unless that is taken."""
        while self.names.setdefault(name, value) is not value:
            name += "_"
        return name

    def constant(self, value: Any) -> str:
        """An expression for a default."""
        if value == ZERO_UUID:
            return self.named("ZERO_UUID", ZERO_UUID)
        return repr(value)

    def codec(self, verb: str, letters: str) -> str:
        """The name of a bound method of a precompiled codec; verb is "pack" or "unpack_from"."""
        name = f"{verb.removesuffix('_from')}_{letters.replace('?', 't')}"
        if name not in self.names:
            self.names[name] = getattr(_codec(letters), verb)
        return name

    def few(self, verb: str, letter: str) -> str:
        """The name of a tuple of such methods: the n-th is for n items of the letter."""
        name = f"{verb.removesuffix('_from')}_few_{letter.replace('?', 't')}"
        if name not in self.names:
            self.names[name] = tuple(getattr(_codec(letter * count), verb) for count in range(FEW))
        return name


def _codec(letters: str) -> Codec:
    return Codec(">" + letters)


def free_name(name: str, taken: tuple[str, ...]) -> str:
    """A variable's name, changed where the written code or an enclosing loop already uses it."""
    while name in _RESERVED or name in taken or iskeyword(name):
        name += "_"
    return name


def snake_case(name: str) -> str:
    """TopicProduceData is topic_produce_data."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


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
