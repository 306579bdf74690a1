"""`minibroker pipeline verify`: findings in a log directory, as a table or as JSON, and as the exit status.

`minibroker.pipeline.verifying` does the work.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from minibroker.cli.pipeline import pipeline_shared
from minibroker.cli.shared import make_json_option, print_table

if TYPE_CHECKING:
    from minibroker.pipeline.verifying.findings import Finding
    from minibroker.pipeline.verifying.log_files import DirectoryPlan

HEAD: Final = ("file", "offset", "position", "kind", "severity", "what is wrong")


@click.command()
@pipeline_shared.make_path_option(
    "The log directory, or one partition's directory in it. No broker should be writing to it.",
    required=True,
    urls=True,
)
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic. Can be repeated.")
@click.option("--checks", metavar="CHECK,...", help="Only these checks.")
@click.option("--skip", metavar="CHECK,...", help="Skip these checks. records and compaction are the most expensive.")
@click.option(
    "--compacted", metavar="NAME", multiple=True, help="A compacted topic that the directory does not mark as such."
)
@click.option("--strict", is_flag=True, help="Count notes, such as open transactions, for the exit status.")
@make_json_option("Print a JSON object per line.")
@pipeline_shared.add_engine_option
@pipeline_shared.add_spark_options
def verify(
    path: str,
    topics: tuple[str, ...],
    checks: str | None,
    skip: str | None,
    compacted: tuple[str, ...],
    strict: bool,
    as_json: bool,
    engine: pipeline_shared.EngineName,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> int:
    """Look for damage and contradictions in a log directory: minibroker's, or Apache Kafka's own.

    It is a second opinion, which uses none of the broker's start-up checks. Of each partition, likely causes are
    printed first, and what may follow from them last; --json prints each finding of a kind in a file. The exit status
    is 1 if something is wrong, 0 if nothing is, and 2 if the directory cannot be read.

    \b
    Example:
        minibroker pipeline verify --path minibroker-data
    """
    from minibroker.pipeline.verifying import log_files

    in_use, wanted = log_files.is_in_use(path), _select_checks(checks, skip)
    plan = log_files.plan_verification_of_directory(
        path, topics=topics, checks=wanted, compacted=compacted, in_use=in_use
    )
    if in_use:
        click.echo(f"{path} is in use: concurrent writes may look like damage", err=True)
    found = _collect_findings(plan, engine, master, conf)
    if as_json:
        from minibroker.pipeline.verifying.verify_job import make_finding_row

        for finding in found:
            print(json.dumps(make_finding_row(finding)))
    else:
        _print_findings(found)
    return int(any(strict or finding.severity != "note" for finding in found))


def _collect_findings(
    plan: DirectoryPlan, engine: pipeline_shared.EngineName, master: str, conf: tuple[tuple[str, str], ...]
) -> list[Finding]:
    """Return the findings in the order in which they are printed."""
    from minibroker.pipeline.verifying.findings import sort_findings
    from minibroker.pipeline.verifying.verify_job import verify_plan

    locally = pipeline_shared.runs_locally(engine, size_bytes=sum(segment.size_bytes for segment in plan.segments))
    with pipeline_shared.start_engine(locally, master, conf) as runs:
        return sort_findings(verify_plan(plan, runs))


def _select_checks(checks: str | None, skip: str | None) -> list[str]:
    """Return the checks to make. Raises `OptionError`."""
    from minibroker.pipeline.verifying.findings import CHECKS
    from minibroker.pipeline.verifying.log_files import require_known_checks

    chosen = require_known_checks(CHECKS if checks is None else _split_names(checks))
    left_out = require_known_checks(_split_names(skip or ""))
    return [name for name in CHECKS if name in chosen - left_out]


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _print_findings(findings: Sequence[Finding]) -> None:
    if findings:
        print_table(HEAD, _group_findings(findings))
    counts = Counter(finding.kind for finding in findings)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    click.echo(
        f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}{': ' if said else ''}{said}", err=True
    )


def _group_findings(findings: Sequence[Finding]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each file and kind: its first finding, and how many more there are."""
    for _, group in groupby(findings, lambda finding: (finding.file, finding.kind)):
        first, *more = group
        *cells, detail = _make_finding_cells(first)
        yield *cells, f"{detail} (and {len(more)} more of this kind)" if more else detail


def _make_finding_cells(finding: Finding) -> tuple[object, ...]:
    offset, position = (None if number < 0 else number for number in (finding.offset, finding.position))
    return finding.file, offset, position, finding.kind, finding.severity, finding.detail
