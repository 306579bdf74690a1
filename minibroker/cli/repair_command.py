"""`minibroker repair`: repairs a data directory with a damaged metadata log, so that a broker starts on it.

`broker.metadata.metadata_repair` plans and does the repair; this prints it.
"""

from __future__ import annotations

import time

import click

from minibroker.cli.shared import make_failure


@click.command()
@click.argument("directories", metavar="DIRECTORY...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do it; without this, only print what would be done.")
def repair(directories: tuple[str, ...], yes: bool) -> None:
    """Rebuild the metadata log of a stopped broker from its directories; name all of log.dirs.

    Topics are restored with their ids, partitions with their records, groups with their offsets. Lost configs, quotas
    and credentials are not.

    \b
    Example:
        minibroker repair /tmp/data
        minibroker repair /tmp/data --yes
    """
    from minibroker.broker.metadata.metadata_repair import Repair
    from minibroker.protocol.errors import KafkaError
    from minibroker.storage.files import Disk
    from minibroker.storage.recovery.recovery import LogDirectoryError

    try:
        found = Repair(Disk(), [path.rstrip("/") for path in directories], int(time.time() * 1000))
    except LogDirectoryError as error:
        raise click.UsageError(str(error)) from None
    try:
        if not found.steps:
            click.echo("there is nothing to repair")
            return
        if yes:
            found.apply()
        for step in found.steps:
            click.echo(step)
        click.echo("done" if yes else "nothing was changed; add --yes to do this")
    except (OSError, LogDirectoryError, KafkaError) as error:
        raise make_failure(str(error)) from None
    finally:
        found.close()
