"""`--engine`: whether a job runs in this process or in Spark. Both give the same results.

Spark takes 10 s of CPU and more to start, which pays only for logs that one process reads in more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

import click

from minibroker.quantities import bytes_text, count_text

Engine = Literal["auto", "local", "spark"]
Command = TypeVar("Command", bound=Callable[..., Any])

ENGINES: Final = ("auto", "local", "spark")
LOCAL_BYTES_MAX: Final = 1 << 30
LOCAL_RECORDS_MAX: Final = 2_000_000  # of a broker, which does not say how large they are


def engine_option(command: Command) -> Command:
    """`--engine`, as argument `engine`, for `runs_locally`."""
    return click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="Run in this process or in Spark; auto chooses by size, and Spark if --master or --conf is given.",
    )(command)


def runs_locally(engine: Engine, *, size_bytes: int | None = None, records: int | None = None) -> bool:
    """Return whether a log of this size, or so many records of a broker, is read by this process. Say so on stderr."""
    if engine != "auto":
        return engine == "local"
    if _is_given("master") or _is_given("conf"):
        return False
    if size_bytes is not None:
        local, size = size_bytes < LOCAL_BYTES_MAX, bytes_text(size_bytes)
    else:
        local, size = (records or 0) < LOCAL_RECORDS_MAX, f"{count_text(records or 0)} records"
    where = "in this process; --engine spark uses Spark" if local else "by Spark; --engine local does without"
    click.echo(f"reading {size} {where}", err=True)
    return local


def _is_given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"
