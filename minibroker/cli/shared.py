"""Common parts of the commands: lazily loaded groups, errors in one line, and tables; `connecting` has clients.

No client library is imported at the top of any command's file, so that `--help` and `serve` do not wait for it.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from minibroker.protocol.legible import escaped
from minibroker.quantities import milliseconds

Command = TypeVar("Command", bound=Callable[..., Any])

CLIENT_ID = "minibroker-cli"
REQUEST_TIMEOUT_S = 30.0
# The width of a table without a terminal: a topic's name alone can have 249 characters.
TABLE_WIDTH = 320
INTERRUPTED = 130


class OneLineGroup(click.Group):
    """A group whose errors are one line on stderr: status 2 for bad input, 1 for an operation that failed."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and exit with its status."""
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except click.ClickException as error:
            click.echo(f"minibroker: {one_line(error.format_message())}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of the output has ended, as `head` does; nothing more can be written, even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def one_line(text: str) -> str:
    """Return the text without line breaks and repeated blanks."""
    return " ".join(text.split())


def help_if_alone(context: click.Context) -> None:
    """Print a group's help if no command of it was asked for."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def failure(message: str) -> click.ClickException:
    """Return the error of a failed operation, with status 1."""
    return click.ClickException(one_line(message))


def assignment_of(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE to a pair. Raises click.BadParameter."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def duration_of(text: str) -> int:
    """Parse an ISO 8601 period, or one like `2 hours`, to ms. Raises click.BadParameter."""
    try:
        return round(milliseconds(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no period like P1DT12H, PT30M or '30 min'") from None


def assignments_option(flag: str, argument: str, help: str) -> Callable[[Command], Command]:
    """An option NAME=VALUE that can be repeated, as a tuple of pairs."""
    return click.option(
        flag, argument, metavar="NAME=VALUE", type=assignment_of, multiple=True, help=f"{help} Can be repeated."
    )


def json_option(help: str) -> Callable[[Command], Command]:
    """`--json`, as argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def reason(error: object) -> str:
    """Return the text of a KafkaException, or a KafkaError (which is no exception in confluent-kafka's types)."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else error
    text = inner.str() if hasattr(inner, "str") else str(inner)
    return one_line(str(text))


def print_table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table as wide as the terminal, or without one as wide as needed; None is an empty cell."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    width = None if sys.stdout.isatty() else TABLE_WIDTH
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else readable(str(value).encode("utf-8", "surrogateescape"))


def bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a field for JSON: UTF-8 as text, other bytes as base64 under another name."""
    try:
        return {name: None if data is None else data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode("ascii")}


def readable(data: bytes) -> str:
    """Return bytes as one line of text that is safe for a terminal.

    UTF-8 is kept; other bytes, and control characters except tabs, are escaped, such as \\x1b.
    """
    return "\t".join(map(escaped, data.decode("utf-8", errors="backslashreplace").split("\t")))
