"""The command `minibroker`: the table of subcommands, each of which is imported only when it is used.

Each command has a file or a package; common parts are in `shared`.
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
    "users": "security.users_command",
    "acls": "security.acls_command",
    "quotas": "security.quotas_command",
    "tokens": "security.tokens_command",
    "produce": "produce_command",
    "consume": "consume_command",
    "dump": "dump.dump_command",
    "repair": "repair_command",
    "show": "show_command",
    "formats": "formats_command",
    "pipeline": "pipeline.pipeline_command",
}


class Commands(OneLineGroup):
    """Commands that are imported when they are looked up, as the libraries of the others would cost `serve` 0.1 s."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
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
