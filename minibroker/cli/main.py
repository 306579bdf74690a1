"""The command `minibroker`: which commands there are, and how each is loaded only when it is asked for.

What a command does is in its file, or its package where it has parts; what they share is in `shared`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from minibroker import __version__
from minibroker.cli.shared import OneLineGroup, help_if_alone

# The module below this package of each command: it holds a click command of that name.
COMMANDS: Final = {
    "serve": "serve_command",
    "topics": "topics.topics_command",
    "groups": "groups.groups_command",
    "transactions": "transactions.transactions_command",
    "produce": "produce_command",
    "consume": "consume_command",
    "dump": "dump.dump_command",
    "repair": "repair_command",
    "show": "show_command",
    "formats": "formats_command",
    "pipeline": "pipeline.pipeline_command",
}


class Commands(OneLineGroup):
    """Commands that are imported when they are looked up: `serve` would pay 0.1 s for the libraries of the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"minibroker.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="minibroker", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """A broker that speaks the Apache Kafka protocol, and a client for any Kafka.

    \b
    Example:
        minibroker serve
        echo hello | minibroker produce greetings
        minibroker consume greetings
    """
    help_if_alone(context)
