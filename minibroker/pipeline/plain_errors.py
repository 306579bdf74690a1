"""Errors as Spark shall show them: it prints the whole way to an exception, and of ours the last line says all.

Which errors these are is `log_source`'s and the client's; any other is a fault of the program, and keeps its traceback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.log_source import PipelineError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Row = TypeVar("Row")


def told_plainly(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A function that Spark calls, whose `PipelineError` or `ClientError` comes without the frames below it."""

    @functools.wraps(method)
    def plain(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except (PipelineError, ClientError) as error:
            raise error.with_traceback(None) from None

    return plain


def rows_told_plainly(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield what a task gives, row by row or batch by batch; raise its errors as `told_plainly` does."""
    try:
        yield from rows
    except (PipelineError, ClientError) as error:
        raise error.with_traceback(None) from None
