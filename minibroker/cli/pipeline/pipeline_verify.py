"""`minibroker pipeline verify`: findings in a log directory, as a table or as JSON, and as the exit status.

`minibroker.pipeline.jobs.verify` does the work.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minibroker.cli.pipeline.pipeline_shared import (
    cannot,
    path_option,
    spark_options,
    spark_session,
)
from minibroker.cli.shared import json_option, print_table

if TYPE_CHECKING:
    from minibroker.pipeline.jobs.verify.findings import Finding

HEAD = ("file", "offset", "position", "kind", "severity", "what is wrong")


@click.command()
@path_option("The log directory, or one partition's directory in it. No broker should be writing to it.", required=True)
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic. Can be repeated.")
@click.option("--checks", metavar="CHECK,...", help="Only these checks; --list-checks lists them.")
@click.option("--skip", metavar="CHECK,...", help="Skip these checks. records and compaction are the most expensive.")
@click.option(
    "--compacted", metavar="NAME", multiple=True, help="A compacted topic that the directory does not mark as such."
)
@click.option("--strict", is_flag=True, help="Count notes, such as open transactions, for the exit status.")
@click.option(
    "--list-checks",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _list(context, wanted),
    help="List the checks and exit.",
)
@json_option("Print a JSON object per line.")
@spark_options
def verify(
    path: str,
    topics: tuple[str, ...],
    checks: str | None,
    skip: str | None,
    compacted: tuple[str, ...],
    strict: bool,
    as_json: bool,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> int:
    """Look for damage and contradictions in a log directory: minibroker's, or Apache Kafka's own.

    It is a second opinion, which uses none of the broker's start-up checks. The exit status is 1 if something is wrong,
    0 if nothing is, and 2 if the directory cannot be read.

    \b
    Example:
        minibroker pipeline verify --path minibroker-data
    """
    wanted = _wanted(checks, skip)
    if _is_in_use(path):
        click.echo(f"{path} is in use: concurrent writes may look like damage", err=True)
    with spark_session(master, conf, title=f"verifying {path}") as spark:
        from minibroker.pipeline.jobs.verify import verify_job

        findings = verify_job.verify(spark, path, topics=topics, checks=wanted, compacted=compacted)
        found = verify_job.findings_of(findings.toArrow())
    found.sort(key=lambda each: (each.topic, each.partition, each.file, each.position, each.offset, each.kind))
    if as_json:
        for each in found:
            print(json.dumps(verify_job.row_of(each)))
    else:
        _print(found)
    return int(any(strict or each.severity != "note" for each in found))


def _wanted(checks: str | None, skip: str | None) -> list[str]:
    """The checks to make. Raises click.ClickException, status 2."""
    from minibroker.pipeline.jobs.verify.findings import CHECKS

    chosen = CHECKS if checks is None else _names(checks)
    left_out = _names(skip or "")
    unknown = [name for name in (*chosen, *left_out) if name not in CHECKS]
    if unknown:
        raise cannot(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    return [name for name in chosen if name not in left_out]


def _is_in_use(path: str) -> bool:
    """Return whether a broker holds the lock of this log directory, or of this partition's log directory."""
    from minibroker.storage.files import Disk

    lock = next((file for file in (Path(path, ".lock"), Path(path).parent / ".lock") if file.is_file()), None)
    if lock is None or not os.access(lock, os.W_OK):
        return False
    held = Disk().lock(str(lock))
    if held is not None:
        held.close()
    return held is None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _list(context: click.Context, wanted: bool) -> None:
    """Handle `--list-checks`: print the checks and exit."""
    if not wanted:
        return
    from minibroker.pipeline.jobs.verify.findings import CHECKS

    print_table(("check", "looks at"), CHECKS.items())
    context.exit()


def _print(found: Sequence[Finding]) -> None:
    if found:
        print_table(HEAD, (_cells(each) for each in found))
    counts = Counter(each.kind for each in found)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    click.echo(f"{len(found)} {'finding' if len(found) == 1 else 'findings'}{': ' if said else ''}{said}", err=True)


def _cells(finding: Finding) -> tuple[object, ...]:
    offset, position = (None if number < 0 else number for number in (finding.offset, finding.position))
    return finding.file, offset, position, finding.kind, finding.severity, finding.detail
