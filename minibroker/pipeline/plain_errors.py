"""Shortens errors for Spark, which prints the whole stack trace.

Of the errors of `log_source` and of the client, the last line has all that is needed. All others are bugs, and keep
their stack trace.
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


def raise_plain_errors(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function for Spark whose `PipelineError` and `ClientError` come without the frames below it."""

    @functools.wraps(method)
    def call_method(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except (PipelineError, ClientError) as error:
            raise error.with_traceback(None) from None

    return call_method


def iterate_with_plain_errors(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows or batches of a task. Raise its errors as `raise_plain_errors` does."""
    try:
        yield from rows
    except (PipelineError, ClientError) as error:
        raise error.with_traceback(None) from None
