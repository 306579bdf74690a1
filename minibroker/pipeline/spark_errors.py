"""Errors between Spark and people: ours as Spark shall show them, and one line out of the pages that it says of them.

Spark prints the whole way to an exception, and of ours the last line says all. Which errors these are is
`log_source`'s; any other is a fault of the program, and keeps its traceback.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from minibroker.pipeline.log_source import PipelineError

# The last line of a traceback: the exception's qualified name, and what it says.
RAISED: Final = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<message>.+)$")
OURS: Final = "minibroker."
ERROR_CLASS: Final = re.compile(r"^\[[A-Z_.0-9]+\] ")
CAUSE: Final = re.compile(r"^(?:Caused by)?: (?P<name>[\w.$]+): (?P<message>.+)$", re.MULTILINE)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row")


def reason_of(text: str) -> str:
    """Find what is wrong in Spark's text: the Python error of ours in it, else any Python error, else Java's cause.

    Spark wraps a task's error several times over, with the stacks of Java and of Python around a line or two of sense.
    """
    raised = [match for line in text.splitlines() if (match := RAISED.match(line))]
    for match in reversed(raised):
        if match["name"].startswith(OURS):
            return match["message"]
    if "Traceback (most recent call last)" in text and raised:
        return f"{raised[-1]['name'].rpartition('.')[2]}: {raised[-1]['message']}"
    causes = list(CAUSE.finditer(text))
    if causes:
        return f"{causes[-1]['name'].rpartition('.')[2]}: {causes[-1]['message']}"
    first = next((line for line in text.splitlines() if line.strip()), text)
    return ERROR_CLASS.sub("", first)


def told_plainly(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that Spark calls, whose `PipelineError` comes without the frames below it."""

    @functools.wraps(method)
    def plain(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except PipelineError as error:
            raise error.with_traceback(None) from None

    return plain


def rows_told_plainly(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield what a task gives, row by row or batch by batch; raise its errors as `told_plainly` does."""
    try:
        yield from rows
    except PipelineError as error:
        raise error.with_traceback(None) from None
