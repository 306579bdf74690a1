"""`minibroker repair`: repairs a data directory with a damaged metadata log, so that a broker starts on it.

`broker.metadata.metadata_repair` plans and does the repair; this prints it. With `--output`, it repairs logs instead,
by `pipeline.verifying.repairing`.
"""

from __future__ import annotations

import time

import click

from minibroker.cli.shared import make_operation_error


@click.command()
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do it; without this, only print what would be done.")
@click.option("--output", metavar="COPY", help="Repair logs instead, in a copy of one directory, and verify the copy.")
def repair(directories: tuple[str, ...], yes: bool, output: str | None) -> int:
    """Rebuild the metadata log of a stopped broker from its directories; name all of log.dirs.

    Topics are restored with their ids, partitions with their records, groups with their offsets. Lost configs, quotas
    and credentials are not.

    With --output, logs begin behind closed segments that are damaged or missing, without the intact ones before these,
    and what the metadata log does not have is set aside: what `minibroker pipeline verify` finds and a start does not
    rebuild. Needs the extra arrow.

    \b
    Example:
        minibroker repair /tmp/data
        minibroker repair /tmp/data --output /tmp/copy --yes
        minibroker repair /tmp/data --yes
    """
    if output is not None:
        return _repair_logs(directories, output, yes)
    from minibroker.broker.metadata.metadata_repair import MetadataRepair
    from minibroker.protocol.errors import KafkaError
    from minibroker.storage.files import Disk
    from minibroker.storage.recovery.recovery import LogDirectoryError

    try:
        found = MetadataRepair(Disk(), [path.rstrip("/") for path in directories], int(time.time() * 1000))
    except LogDirectoryError as error:
        raise click.UsageError(str(error)) from None
    try:
        if not found.steps:
            click.echo("there is nothing to repair")
            return 0
        if yes:
            found.apply_planned_repair()
        for step in found.steps:
            click.echo(step)
        click.echo("done" if yes else "nothing was changed; add --yes to do this")
        return 0
    except (OSError, LogDirectoryError, KafkaError) as error:
        raise make_operation_error(str(error)) from None
    finally:
        found.close()


def _repair_logs(directories: tuple[str, ...], output: str, yes: bool) -> int:
    """Print what is to be done with logs, or do it in a copy. Return 1 if `verify` still finds errors in it."""
    if len(directories) != 1:
        raise click.UsageError("--output is for one directory")
    try:
        from minibroker.pipeline.log_source import PipelineError
        from minibroker.pipeline.verifying.log_files import is_in_use
        from minibroker.pipeline.verifying.repairing import plan_repair, repair_into
        from minibroker.pipeline.verifying.verify_job import verify_plan
    except ImportError:
        raise make_operation_error("--output needs the extra arrow: python3 -m pip install pyarrow numpy") from None
    try:
        if is_in_use(directories[0]):
            raise make_operation_error(f"{directories[0]} is in use: stop the broker first")
        steps = plan_repair(directories[0])
        for step in steps:
            click.echo(step)
        if not yes or not steps:
            click.echo("there is nothing to repair" if not steps else "nothing was written; add --yes to do this")
            return 0
        left = [each for each in verify_plan(repair_into(directories[0], output, steps)) if each.severity == "error"]
    except (OSError, PipelineError) as error:
        raise make_operation_error(str(error)) from None
    click.echo(f"{output} is complete; verify finds {len(left)} errors in it")
    return int(bool(left))
