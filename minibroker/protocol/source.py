"""Generated Python: its lines, the field of each line, and compiling it into functions.

`generated_readers.py`, `generated_writers.py` and `declare.py` generate the lines. A function is compiled on first use,
so a process pays only for the versions that its clients use. By the field of a line, an error in running code names
the field at no cost.
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

READ_ITEMS = 1000  # items of arrays that are read in one step
WRITTEN_ITEMS = 250  # items that are written in one step; some are only created then
UNKNOWN_TAGS = "unknown_tags"  # the slot of a struct for tagged fields that are not declared; mostly it is not set
FEW = 17  # precompiled codecs pack and unpack arrays of fewer fixed-size items

_RESERVED = frozenset(
    {"data", "pos", "end", "n", "stop", "view", "new", "out", "raw", "value", "message", "count"}
) | frozenset({"allowance", "left", "long_arrays"})
READ_FAILURES = (ValueError, IndexError, structs.error)  # raised by generated readers; ValueError also for bad UTF-8
_PLACES: dict[CodeType, list[tuple[tuple[str, int], ...]]] = {}


class FunctionSource:
    """The text of one generated function.

    `lines` is the text; `places` has for every line its fields in wire order, each with its size in bytes; `names` are
    the objects that the lines use.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.places: list[tuple[tuple[str, int], ...]] = []
        self.names = names
        self._depth = 0
        self._path: tuple[str, ...] = ()

    def add_line(self, text: str, *fields: tuple[str, int]) -> None:
        """Add a line that reads or writes these fields, each (path, bytes); by default the current one."""
        self.lines.append("    " * self._depth + text)
        self.places.append(fields or ((self.current_field_path, 0),))

    @contextmanager
    def add_block_with_head(self, first_line: str) -> Iterator[None]:
        """Add a line that opens a block, and indent the lines added inside the `with`."""
        self.add_line(first_line)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def enter_field(self, field: str) -> Iterator[None]:
        """Make this field of the current one the current field inside the `with`."""
        before = self._path
        self._path = (*before, field)
        yield
        self._path = before

    @property
    def current_field_path(self) -> str:
        return ".".join(self._path)

    def bind_object_to_name(self, name: str, value: Any) -> str:
        """Make an object available to the lines. Return its name there: `name`, or another if that is taken."""
        while self.names.setdefault(name, value) is not value:
            name += "_"
        return name

    def make_default_expression(self, value: Any) -> str:
        """Return the Python expression of a field's default."""
        if value == ZERO_UUID:
            return self.bind_object_to_name("ZERO_UUID", ZERO_UUID)
        return repr(value)

    def bind_codec_method(self, method: str, letters: str) -> str:
        """Return the name by which the lines call "pack" or "unpack_from" of a `struct` with these codes."""
        name = f"{method.removesuffix('_from')}_{letters.replace('?', 't')}"
        if name not in self.names:
            self.names[name] = getattr(_make_big_endian_codec(letters), method)
        return name

    def bind_codec_methods_for_few_items(self, method: str, letter: str) -> str:
        """Return the name of a tuple whose n-th item is the `struct` method for n values with this code."""
        name = f"{method.removesuffix('_from')}_few_{letter.replace('?', 't')}"
        if name not in self.names:
            self.names[name] = tuple(getattr(_make_big_endian_codec(letter * count), method) for count in range(FEW))
        return name


def _make_big_endian_codec(letters: str) -> Codec:
    return Codec(">" + letters)


def choose_free_name(name: str, taken_names: tuple[str, ...]) -> str:
    """Return a name for a variable, changed if the generated code or an enclosing loop already uses it."""
    while name in _RESERVED or name in taken_names or iskeyword(name):
        name += "_"
    return name


def convert_to_snake_case(name: str) -> str:
    """Convert TopicProduceData to topic_produce_data."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def compile_function(source: FunctionSource, title: str) -> Callable[..., Any]:
    """Compile a source into its function. Tracebacks and debuggers show its text under the title."""
    text = "\n".join(source.lines) + "\n"
    file = f"<{title}>"
    scope = dict(source.names)
    exec(compile(text, file, "exec"), scope)
    function: Callable[..., Any] = scope[source.lines[0].split("(")[0].removeprefix("def ")]
    _PLACES[function.__code__] = source.places
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return function


def make_malformed_error(message: str, version: int, problem: Exception) -> MalformedMessage:
    """Return the error for a failure of a generated reader, with the field of the failing line."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code not in _PLACES:
        trace = trace.tb_next
    field = "" if trace is None else _find_failed_field(trace)
    reason = str(problem) if isinstance(problem, ValueError) else "the data ends too early"
    return MalformedMessage(message, version, field, reason)


def _find_failed_field(trace: TracebackType) -> str:
    """Return the field of the failing line. If one struct call reads several, it is the first incomplete one."""
    places = _PLACES[trace.tb_frame.f_code][trace.tb_lineno - 1]
    local = trace.tb_frame.f_locals
    left = local["end"] - local["pos"]
    for field, size_bytes in places:
        left -= size_bytes
        if left < 0:
            return field
    return places[-1][0]
