"""The command `minibroker`: the table of subcommands, each of which is imported only when it is used.

Each command has a file or a package; common parts are in `shared`.
"""

from __future__ import annotations

import gc
from typing import Final

import click

from minibroker import __version__
from minibroker.cli.shared import OneLineGroup

# The module below this package of each command: it holds a click command of that name.
COMMANDS: Final = {
    "serve": "serve_command",
    "topics": "topics.topics_command",
    "brokers": "brokers_command",
    "groups": "groups.groups_command",
    "transactions": "transactions.transactions_command",
    "users": "security.users_command",
    "acls": "security.acls_command",
    "quotas": "security.quotas_command",
    "tokens": "security.tokens_command",
    "produce": "produce.produce_command",
    "consume": "consume.consume_command",
    "records": "records_command",
    "schemas": "schemas.schemas_command",
    "dump": "dump.dump_command",
    "repair": "repair_command",
    "doctor": "doctor.doctor_command",
    "proxy": "proxy.proxy_command",
    "replay": "proxy.replay_command",
    "explain": "explain.explain_command",
    "explore": "explore_command",
    "lab": "lab_command",
    "show": "show_command",
    "formats": "formats_command",
    "completion": "completion_command",
    "handover": "handover.handover_command",
    "pipeline": "pipeline.pipeline_command",
}


class MainGroup(OneLineGroup):
    """The commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run. Then turn on garbage collection, except for the modules imported until now."""
        found = super().resolve_command(ctx, args)
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        return found


VERSION_HELP = "Show the version and exit."


def print_version(context: click.Context, _: click.Parameter, is_requested: bool) -> None:
    """Print the version, and whether the hot path is compiled, and exit."""
    if is_requested and not context.resilient_parsing:
        from minibroker.protocol.records.strides import IS_COMPILED  # for this only

        click.echo(f"minibroker {__version__}" + " (compiled)" * IS_COMPILED)
        context.exit()


@click.group(
    "minibroker",
    cls=MainGroup,
    modules={name: f"minibroker.cli.{module}" for name, module in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help=VERSION_HELP)
def main() -> None:
    """A broker that speaks the Apache Kafka protocol, and a client for any Kafka.

    \b
    Example:
        minibroker serve
        echo hello | minibroker produce greetings
        minibroker consume greetings
    """
