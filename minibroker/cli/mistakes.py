"""The wording of mistakes on the command line: a sentence for each kind, with what was meant if that can be guessed.

Click's own messages differ from version to version, so those that users meet often are written here, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from minibroker.protocol.legible import join_lines
from minibroker.suggestions import format_suggestion_of_similar_name

SERVER: Final = "--bootstrap-server HOST:PORT"
LISTENERS: Final = "--set listeners=PLAINTEXT://127.0.0.1:PORT"
DIRECTORY: Final = "--set log.dirs=DIR"

# What people of other tools try, and what they mean here: the first one that the command has.
INSTEAD: Final = {
    "--port": (SERVER, LISTENERS),
    "--host": (SERVER, LISTENERS),
    "--listen": (LISTENERS,),
    "--data": (DIRECTORY,),
    "--data-dir": (DIRECTORY,),
    "--log-dir": (DIRECTORY,),
    "--broker": (SERVER,),
    "--brokers": (SERVER,),
    "--broker-list": (SERVER,),
    "--server": (SERVER,),
    "--zookeeper": (SERVER,),
    "--property": ("--client NAME=VALUE",),
    "--consumer-property": ("--client NAME=VALUE",),
    "--producer-property": ("--client NAME=VALUE",),
    "--command-property": ("--client NAME=VALUE",),
    "--security-protocol": ("--client security.protocol=PROTOCOL", "--security"),
    "--isolation-level": ("--client isolation.level=LEVEL",),
    "--consumer.config": ("--command-config FILE",),
    "--producer.config": ("--command-config FILE",),
    "--timeout-ms": ("--timeout SECONDS",),
    "--from-beginning": ("--from earliest",),
    "--offset": ("--from OFFSET", "--to-offset OFFSET"),
    "--max-messages": ("--count N",),
    "--dry-run": ("no --execute",),
}
TOO_MANY: Final = "Got unexpected extra argument"  # click's beginning
# What click says of numbers, and what people say.
NUMBERS: Final = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}
COMMANDS: Final = {
    "broker": "serve",
    "run": "serve",
    "server": "serve",
    "start": "serve",
    "up": "serve",
    "cat": "consume",
    "consumer": "consume",
    "read": "consume",
    "producer": "produce",
    "send": "produce",
    "write": "produce",
    "check": "doctor",
    "ping": "doctor",
    "help": "--help",
    "version": "--version",
    "offsets": "groups",
    "ls": "list",
    "show": "describe",
    "get": "describe",
    "new": "create",
    "rm": "delete",
    "reset": "reset-offsets",
}


def make_no_command_error(context: click.Context, name: str, known_commands: list[str]) -> click.UsageError:
    """Return the error that a group of commands has no command of this name."""
    usual = COMMANDS.get(name)
    options = [option for each in context.command.get_params(context) for option in each.opts]
    guess = (
        f"; did you mean {usual}?"
        if usual in (*known_commands, *options)
        else format_suggestion_of_similar_name(name, known_commands)
    )
    return click.UsageError(
        f"there is no command {_get_command_path(context)} {name}{guess or _get_help_hint(context)}"
    )


def format_error(error: click.ClickException) -> str:
    """Return the message of an error."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        return f"there is no option {error.option_name}{_suggest_option(error.option_name, context)}"
    if isinstance(error, click.MissingParameter) and error.param is not None and context is not None:
        return f"{_get_parameter_name(error.param)} is missing; {_get_usage_line(context)}"
    if isinstance(error, click.BadParameter) and (error.param is not None or error.param_hint is not None):
        text = _remove_full_stop(error.message)
        ours = next((text.removesuffix(each) + NUMBERS[each] for each in NUMBERS if text.endswith(each)), text)
        return f"{error.param_hint if error.param is None else _get_parameter_name(error.param)}: {ours}"
    message = _remove_full_stop(error.format_message())
    if isinstance(error, click.BadOptionUsage) and message.endswith("requires an argument"):
        return f"{error.option_name} needs a value"
    if message.startswith(TOO_MANY) and context is not None:
        return f"too many arguments: {message.partition('(')[2].removesuffix(')')}; {_get_usage_line(context)}"
    return message


def _remove_full_stop(text: str) -> str:
    return text if text.endswith("..") else text.removesuffix(".")


def _get_usage_line(context: click.Context) -> str:
    return join_lines(context.get_usage()).replace("Usage", "usage", 1)


def _get_parameter_name(parameter: click.Parameter) -> str:
    """Return `--topic`, or the name of an argument as the usage shows it."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.human_readable_name.strip("[]")


def _suggest_option(option: str, context: click.Context | None) -> str:
    """Return the end of a message about an unknown option: what was probably meant, or where the help is."""
    if context is None:
        return ""
    command = context.command
    options = [name for each in command.get_params(context) for name in each.opts if isinstance(each, click.Option)]
    for meant in (*INSTEAD.get(option, ()), *_suggest_setting(option, command)):
        if meant.split()[0] in (*options, "no"):
            return f"; did you mean {meant}?"
    if isinstance(command, click.Group):
        name = option.lstrip("-")
        is_command = name in command.list_commands(context)
        return (
            f"; did you mean {_get_command_path(context)} {name}?"
            if is_command
            else "; options follow the command's name"
        )
    return format_suggestion_of_similar_name(option, options) or _get_help_hint(context)


def _suggest_setting(option: str, command: click.Command) -> Iterator[str]:
    """Yield the setting of a broker that an option looks like, as in `--log-dirs`."""
    if command.name == "serve":
        from minibroker.broker.configs.settings_table import BROKER_SETTINGS

        name = option.lstrip("-").replace("-", ".")
        if name in BROKER_SETTINGS:
            yield f"--set {name}=VALUE"


def _get_command_path(context: click.Context) -> str:
    return context.command_path


def _get_help_hint(context: click.Context) -> str:
    return f"; see {_get_command_path(context)} --help"
