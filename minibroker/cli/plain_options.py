"""The options of `serve`, read without click, which takes 10 ms to import, a sixth of a start.

Only what is beyond doubt is read here. With anything else, a mistake among them, click reads the options as it does for
all commands, and says what is wrong. `serve_command` declares them; a test compares both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

from minibroker.cli import variables
from minibroker.cli.log_format import FORMATS
from minibroker.cli.serving import LEVELS, NODES_MAX, PROTOCOLS, serve

# By the options' names: what they may be, None for any text.
ONE: Final[Mapping[str, Collection[Any] | None]] = {
    **dict.fromkeys(("--control", "--control-token", "--registry", "--faults", "--emulate")),
    **dict.fromkeys(("--cluster-id", "--ready-file")),
    "--nodes": range(1, NODES_MAX + 1),
    "--metrics-port": range(65_536),
    "--security": PROTOCOLS,
    "--log-level": LEVELS,
    "--log-format": FORMATS,
}
MANY: Final = {"--set": "assignments", "--user": "logins", "--add-scram": "scram"}
FLAGS: Final = ("--metrics-tls", "--explorer", "--until-stdin-closes", "--temporary", "--container")
DEFAULTS: Final = {"nodes": 1, "log_level": "info", "log_format": "text"}


def parse_plain_options(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Return the arguments of `serve` from the words of a command line, or None if only click can parse them."""
    if os.name != "posix" or sys.stdout is None or "_MINIBROKER_COMPLETE" in environment:
        return None
    options: dict[str, Any] = {"properties": None} | {_get_argument_name(name): None for name in ONE} | DEFAULTS
    options |= dict.fromkeys(MANY.values(), ()) | {_get_argument_name(name): False for name in FLAGS}
    rest = iter(arguments)
    for word in rest:
        name, equals, text = word.partition("=")
        if name in FLAGS and not equals:
            options[_get_argument_name(name)] = True
            continue
        if not name.startswith("-") and options["properties"] is None:
            options["properties"] = word
            continue
        value = text if equals else next(rest, None)
        if value is None:
            return None
        if name in MANY:
            options[MANY[name]] += (value,)
        elif name not in ONE or not _try_set_option(options, name, value):
            return None
    if options["control_token"] is None:
        options["control_token"] = environment.get(variables.TOKEN) or None
    elif options["control"] is None and not options["explorer"]:
        return None
    return options


def _try_set_option(options: dict[str, Any], name: str, text: str) -> bool:
    """Set an option if its value is valid. Return False to leave the command line to click."""
    known = ONE[name]
    if not isinstance(known, range):
        options[_get_argument_name(name)] = text
        return known is None or text in known
    if not (text.isascii() and text.isdecimal()):
        return False
    options[_get_argument_name(name)] = int(text)
    return int(text) in known


def _get_argument_name(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def serve_without_click(options: Mapping[str, Any]) -> NoReturn:
    """Serve, and end the process as the command does."""
    try:
        sys.exit(serve(**options))
    except (Exception, KeyboardInterrupt) as error:
        from minibroker.cli.shared import exit_with_error

        exit_with_error(error)
