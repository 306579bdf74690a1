"""Options that several of Kafka's tools have, and the form of values in them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, Final

import click

from minibroker.cli.connecting import Bootstrap, make_bootstrap, merge_client_settings, parse_servers
from minibroker.cli.shared import parse_assignment

_ASSIGNED: Final = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)\s*(?:,|$)")  # a=b, or a=[b,c]


def make_server_options(*other_flags: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds `--bootstrap-server`, `--command-config` and more, as argument `bootstrap`.

    Other names that end with `config` are of files, and those that end with `property` of settings; the rest are of
    servers.
    """
    files = ("--command-config", *(each for each in other_flags if each.endswith("config")))
    properties = ("--command-property", *(each for each in other_flags if each.endswith("property")))
    servers = ("--bootstrap-server", *(each for each in other_flags if each not in (*files, *properties)))

    def add_server_options(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def call_with_bootstrap(
            *args: Any, servers: str, files: tuple[str, ...], client: tuple[tuple[str, str], ...], **kwargs: Any
        ) -> Any:
            bootstrap = make_bootstrap(servers, merge_client_settings(files, client), None, "info")
            return command(*args, bootstrap=bootstrap, **kwargs)

        server = click.option(*servers, "servers", metavar="HOST:PORT", type=parse_servers, required=True)
        file = click.option(*files, "files", type=click.Path(exists=True, dir_okay=False), multiple=True)
        setting = click.option(*properties, "client", metavar="NAME=VALUE", type=parse_assignment, multiple=True)
        return server(file(setting(call_with_bootstrap)))

    return add_server_options


def make_properties_option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options NAME=VALUE, as a tuple of pairs in the argument `properties`."""
    return click.option(*names, "properties", metavar="NAME=VALUE", type=parse_assignment, multiple=True)


def run_command(command: click.Command, arguments: Iterable[str], bootstrap: Bootstrap) -> str:
    """Run a command of minibroker with these servers, and return what it prints."""
    server = ["--bootstrap-server", bootstrap.servers]
    settings = [text for name, value in bootstrap.settings for text in ("--client", f"{name}={value}")]
    printed = StringIO()
    with redirect_stdout(printed):
        command.main([*server, *settings, *arguments], standalone_mode=False)
    return printed.getvalue()


def choose_action(actions: Mapping[str, bool]) -> str:
    """Return the action that is chosen. Raises click.UsageError unless it is one."""
    chosen = [name for name, is_chosen in actions.items() if is_chosen]
    if len(chosen) != 1:
        raise click.UsageError(f"needs one of {', '.join(f'--{name}' for name in actions)}")
    return chosen[0]


def select_matching_names(pattern: str | None, names: Iterable[str]) -> list[str]:
    """Return the names that a regular expression, or one of several with commas, matches whole; all if it is None.

    Raises click.UsageError.
    """
    try:
        wanted = None if pattern is None else re.compile("|".join(pattern.split(",")))
    except re.error as error:
        raise click.UsageError(f"{pattern!r} is no regular expression: {error.msg}") from None
    return sorted(name for name in names if wanted is None or wanted.fullmatch(name))


def parse_configs(text: str) -> dict[str, str]:
    """Parse `a=b,c=[d,e]`. Raises click.BadParameter."""
    found, end = {}, 0
    while end < len(text):
        match = _ASSIGNED.match(text, end)
        if match is None:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, or several with commas; a list is NAME=[A,B]")
        found[match[1]] = match[2].strip().removeprefix("[").removesuffix("]")
        end = match.end()
    return found


def is_true_property(properties: Mapping[str, str], name: str, default: bool = False) -> bool:
    """Return whether a property is true."""
    return properties.get(name, str(default)).strip().lower() == "true"


def check_known_properties(properties: Iterable[str], known_properties: Iterable[str]) -> None:
    """Raise click.UsageError for a property that is not known."""
    for name in properties:
        if name not in known_properties:
            raise click.UsageError(f"the property {name} is not one of {', '.join(known_properties)}")
