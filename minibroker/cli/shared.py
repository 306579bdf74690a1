"""Common parts of the commands: lazily loaded groups, how a command ends, and tables; `connecting` has clients.

No client library is imported at the top of any command's file, so that `--help` and `serve` do not wait for it.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from minibroker.protocol.legible import format_readable, join_lines

if TYPE_CHECKING:
    from rich.table import Column

Command = TypeVar("Command", bound=Callable[..., Any])
CompleteNames = Callable[[click.Context, click.Parameter, str], list[str]]

CLIENT_ID = "minibroker-cli"
# The width of a table without a terminal: a topic's name alone can have 249 characters.
TABLE_WIDTH = 320
INTERRUPTED = 130
WHOLE_SENTENCE = 500  # characters
SPANS: Final = ("timeout_ms",)  # names of ms that are no moments
# The same letter for the same thing in all commands, that of kcat where it has one.
SHORT_OPTIONS: Final = {
    "--bootstrap-server": "-b",
    "--client": "-X",
    "--compression": "-z",
    "--count": "-c",
    "--group": "-g",
    "--header": "-H",
    "--json": "-J",
    "--key-separator": "-K",
    "--partition": "-p",
    "--partitions": "-p",
    "--to-offset": "-o",
    "--topic": "-t",
}
# Numbers as large as the fields of requests.
PARTITION: Final = click.IntRange(0, (1 << 31) - 1)
PARTITION_COUNT: Final = click.IntRange(1, (1 << 31) - 1)
REPLICATION_FACTOR: Final = click.IntRange(1, (1 << 15) - 1)
OFFSET: Final = click.IntRange(0, (1 << 63) - 1)
NAMED: Final = {"TOPIC": ("--topic", "-t"), "GROUP": ("--group", "-g"), "HOST": ("--bootstrap-server", "-b")}
# Why output cannot be written.
OUTPUT_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class NamedCommand(click.Command):
    """A command whose TOPIC, GROUP or HOST may also be given by an option, as Kafka's tools and kcat take it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments into the context."""
        return super().parse_args(ctx, list(self._iterate_positional_arguments(args)))

    def _iterate_positional_arguments(self, args: list[str]) -> Iterator[str]:
        """Yield the arguments, but `orders` for `--topic orders` if this command has no such option."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        with_value = {name for each in options if not each.is_flag and not each.count for name in each.opts}
        arguments = {each.human_readable_name for each in self.params if isinstance(each, click.Argument)}
        wanted = {name for each in arguments for name in NAMED.get(each.lstrip("[").split("[")[0].split(".")[0], ())}
        flags = wanted.difference(*(each.opts for each in options))
        rest = iter(args)
        for each in rest:
            name, equals, value = each.partition("=")
            if each == "--":
                yield each
                yield from rest
            elif name in flags:
                yield value if equals else next(rest, each)
            else:
                yield each
                yield from islice(rest, int(each in with_value))


class WholeHelpGroup(click.Group):
    """A group whose help has the whole first sentence of each command, where click would cut it at one line.

    It prints that help if no command is named. Its commands have short options, and a misspelt one is answered with the
    one that was meant.
    """

    command_class = NamedCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments into the context."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else add_short_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with, and its arguments. Raises click.UsageError."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from minibroker.cli.mistakes import make_no_command_error

            raise make_no_command_error(ctx, args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(WHOLE_SENTENCE)) for name, each in found if each])


class LazyGroup(WholeHelpGroup):
    """A group whose commands are imported when they are looked up, as their libraries cost the others time.

    `modules` has the module of each command, which holds a click command of that name (with _ for -), in the order of
    the help.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **extra: Any) -> None:
        super().__init__(*args, **extra)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        if cmd_name not in self._modules:
            return None
        command = getattr(import_module(self._modules[cmd_name]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return add_short_options(command)


class OneLineGroup(LazyGroup):
    """The whole program: its errors are one line on stderr. Status 2 is bad input, 1 an operation that failed."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and exit with its status."""
        if sys.stdout is None:  # closed by who started us: the first file or socket must not take its number
            sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            exit_with_error(error)
        sys.exit(status if isinstance(status, int) else 0)


def exit_with_error(error: BaseException) -> NoReturn:
    """Print the message of a command's error, and end the process with its status. Raises an unexpected error again."""
    from minibroker.cli.serving import InvalidOptions

    if isinstance(error, InvalidOptions):
        error = click.UsageError(str(error))
    if isinstance(error, click.ClickException):
        from minibroker.cli.mistakes import format_error

        _exit_with_status(error.exit_code, format_error(error))
    if isinstance(error, click.Abort | KeyboardInterrupt):
        exec("")  # where the interrupt cut an exec of text, as of a dataclass, `python -m` would end by the signal
        _exit_with_status(INTERRUPTED)
    if isinstance(error, BrokenPipeError):
        _exit_with_status(1)  # the reader of the output has ended, as `head` does
    if not isinstance(error, OSError):
        raise error
    reason = error.strerror or str(error)
    if error.errno in OUTPUT_ERRORS and error.filename is None:
        _exit_with_status(1, f"cannot write the output: {reason}")
    _exit_with_status(1, reason if error.filename is None else f"{error.filename}: {reason}")


def _exit_with_status(status: int, message: str | None = None) -> NoReturn:
    """Print the message, and exit. Output that cannot be written any more is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
    if message is not None:
        click.echo(f"minibroker: {join_lines(message)}", err=True)
    sys.exit(status)


def add_short_options(command: click.Command) -> click.Command:
    """Give the options of a command their short forms, once, and return it."""
    taken = {name for parameter in command.params for name in parameter.opts}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            shorts = [SHORT_OPTIONS[name] for name in parameter.opts if name in SHORT_OPTIONS]
            parameter.opts += [short for short in shorts if short not in taken]
    return command


def make_operation_error(message: str) -> click.ClickException:
    """Return the error of a failed operation, with status 1."""
    return click.ClickException(join_lines(message))


def make_not_found_error(kind: str, name: str, known_names: Iterable[str]) -> click.ClickException:
    """Return the error that the cluster has no topic, group or the like; `known_names` are those it has."""
    from minibroker.suggestions import format_suggestion_of_similar_name

    advice = f"; {suggest_file_commands(name)}" if "/" in name else format_suggestion_of_similar_name(name, known_names)
    return make_operation_error(f"there is no {kind} {name}{advice}")


def suggest_file_commands(path: str) -> str:
    """Return advice on what reads a file, for the message that a path is no topic and no server."""
    return f"of files, 'minibroker dump {path}' shows the records, without a broker"


def describe_missing_partition(topic: str, index: int, count: int) -> str:
    """Return the sentence that a topic, which has `count` partitions, does not have this one."""
    return f"{topic} has no partition {index}, only {'0' if count == 1 else f'0 to {count - 1}'}"


def make_names_completer(kind_of_names: str) -> CompleteNames:
    """Return a shell completer of such names: one of module `completing`, which is imported when it is called."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        completing = import_module("minibroker.cli.completing")
        found: list[str] = getattr(completing, f"complete_{kind_of_names}")(context, parameter, incomplete)
        return found

    return complete


def parse_assignment(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE to a pair. Raises click.BadParameter."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def parse_duration(text: str) -> int:
    """Parse an ISO 8601 period, or one like `2 hours`, to ms. Raises click.BadParameter."""
    from minibroker.quantities import parse_milliseconds

    try:
        return round(parse_milliseconds(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no period like P1DT12H, PT30M or '30 min'") from None


def make_assignments_option(
    flag: str, argument: str, help: str, complete: CompleteNames | None = None
) -> Callable[[Command], Command]:
    """Return an option NAME=VALUE that can be repeated, as a tuple of pairs. `complete` completes names in a shell."""
    return click.option(
        flag,
        argument,
        metavar="NAME=VALUE",
        type=parse_assignment,
        multiple=True,
        help=f"{help} Can be repeated.",
        shell_complete=complete,
    )


def make_json_option(help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--json`, as argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def print_table(head: Iterable[str | Column], rows: Iterable[Iterable[object]]) -> None:
    """Print a table as wide as the terminal, or without one as wide as needed; None is an empty cell."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(_format_cell(value) for value in row))
    width = None if sys.stdout.isatty() else TABLE_WIDTH
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def print_rows(rows: Sequence[Mapping[str, object]], names: Iterable[str] = ()) -> None:
    """Print a table of rows that have the same names; `names` are those of a table without rows.

    Moments, which are named like `start_ms`, become times that people read.
    """
    head = [_make_column_title(name) for name in (rows[0] if rows else names)]
    print_table(head, [[_format_timestamp_cell(name, value) for name, value in row.items()] for row in rows])


def print_rows_or_json(rows: Sequence[Mapping[str, object]], names: Iterable[str], as_json: bool) -> None:
    """Print rows as `print_rows` does, or as a JSON array."""
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_rows(rows, names)


def _is_timestamp_column(name: str) -> bool:
    return name.endswith("_ms") and name not in SPANS


def _make_column_title(name: str) -> str:
    return f"{name.removesuffix('_ms')} (UTC)" if _is_timestamp_column(name) else name


def _format_timestamp_cell(name: str, value: object) -> object:
    if not _is_timestamp_column(name) or not isinstance(value, int):
        return value
    from minibroker.quantities import format_time

    return format_time(value)


def _format_cell(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else format_readable(str(value).encode("utf-8", "surrogateescape"))


def make_bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return a field for JSON: UTF-8 as text, other bytes as base64 under another name."""
    try:
        return {name: None if data is None else data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {f"{name}_base64": base64.b64encode(data or b"").decode("ascii")}


def is_on_the_command_line(parameter: str) -> bool:
    """Return whether a parameter of the running command was given as an option, and not by a variable."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE
