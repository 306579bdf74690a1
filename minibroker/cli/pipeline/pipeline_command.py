"""`minibroker pipeline`: jobs on logs with Spark, each imported only when it is used.

A job's options and output are in `pipeline_<job>`, its work in `minibroker.pipeline.jobs`, and common parts in
`pipeline_shared`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from minibroker.cli.pipeline.pipeline_shared import explained
from minibroker.cli.shared import OneLineGroup, help_if_alone

# Each job's module is `pipeline_<job>`, which holds a click command of the job's name.
JOBS: Final = ("archive", "replay", "verify", "stats", "rewrite", "compact")


class Jobs(OneLineGroup):
    """Commands that are imported when they are looked up, and whose errors are one line, including Spark's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(JOBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        if cmd_name not in JOBS:
            return None
        command = getattr(import_module(f"minibroker.cli.pipeline.pipeline_{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a job; errors have status 2, as status 1 is for the findings of a job."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise explained(error) from error


@click.group(cls=Jobs, invoke_without_command=True)
@click.pass_context
def pipeline(context: click.Context) -> None:
    """Read logs in parallel, with Spark: a log directory, or any running Kafka.

    Needs the extra `minibroker[spark]` and Java 17 or newer.

    \b
    Example:
        minibroker pipeline verify --path minibroker-data
    """
    help_if_alone(context)
