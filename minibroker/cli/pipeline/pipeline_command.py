"""`minibroker pipeline`: jobs on logs, each imported only when it is used.

A job's options and output are in `pipeline_<job>`, its work in `minibroker.pipeline`, and common parts in
`pipeline_shared`.
"""

from __future__ import annotations

from typing import Any, Final

import click

from minibroker.cli.pipeline.pipeline_shared import make_error_to_raise
from minibroker.cli.shared import OneLineGroup

# Each job's module is `pipeline_<job>`, which holds a click command of the job's name.
JOBS: Final = ("archive", "replay", "verify", "rewrite")


class JobGroup(OneLineGroup):
    """Commands whose errors are one line, including Spark's."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a job; errors have status 2, as status 1 is for the findings of a job."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise make_error_to_raise(error) from error


@click.group(
    cls=JobGroup,
    modules={name: f"minibroker.cli.pipeline.pipeline_{name}" for name in JOBS},
)
def pipeline() -> None:
    """Work on whole logs: a log directory, or any running Kafka.

    Needs the extra `minibroker[arrow]`; for large logs, and on a cluster, `minibroker[spark]` and Java 17 or newer.

    \b
    Example:
        minibroker pipeline verify --path minibroker-data
    """
