"""`minibroker pipeline archive --format iceberg` or `delta`: a run; and the session and report of all formats.

`minibroker.pipeline.jobs.lake_archive` does the work.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from minibroker.cli.pipeline.pipeline_shared import spark_session
from minibroker.cli.shared import INTERRUPTED, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minibroker.pipeline.jobs.archive_totals import Totals
    from minibroker.pipeline.jobs.lake_archive import LakeArchive
    from minibroker.pipeline.jobs.lake_session import LakeFormat
    from minibroker.pipeline.jobs.lake_tables import LakeTable

Command = TypeVar("Command", bound=Callable[..., Any])
Assignments = tuple[tuple[str, str], ...]

FORMATS: Final = ("parquet", "iceberg", "delta")
COMMITS_PER_COMPACTION: Final = 16
HEAD: Final = ("topic", "partition", "records", "bytes", "first offset", "last offset")


class LakeRun(NamedTuple):
    """What a run is asked to do. Without an `interval`, it ends when all is archived."""

    table_format: LakeFormat
    out: str
    interval: str | None
    compact: bool
    json: bool


def format_option(help: str) -> Callable[[Command], Command]:
    """`--format`, as argument `table_format`: that of an archive."""
    choice = click.Choice(FORMATS)
    return click.option("--format", "table_format", type=choice, default=FORMATS[0], show_default=True, help=help)


@contextmanager
def lake_session(table_format: Any, master: str, conf: Assignments, title: str = "") -> Iterator[SparkSession]:
    """Start a Spark session with the library of a format, if it has one, and show its progress if it has a title.

    Raises `LakeLibraryMissing` before Spark starts.
    """
    if table_format != FORMATS[0]:
        from pyspark import __version__

        from minibroker.pipeline.jobs.lake_session import lake_settings

        conf = tuple(lake_settings(table_format, dict(conf), __version__).items())
    with spark_session(master, conf, title=title, progress=bool(title)) as spark:
        yield spark


def table_at(spark: SparkSession, table_format: LakeFormat, path: str) -> LakeTable:
    """Return the table at a path or a URL."""
    from minibroker.pipeline.jobs.lake_tables import lake_table

    return lake_table(spark, table_format, path if "://" in path else str(Path(path).resolve()))


def archive_to_table(spark: SparkSession, run: LakeRun, options: Mapping[str, str], **topics: Any) -> int:
    """Archive until all is archived, or until interrupted. Return the exit status."""
    from minibroker.pipeline.jobs.archive_totals import Totals
    from minibroker.pipeline.jobs.lake_archive import LakeArchive

    archive = LakeArchive(spark, table_at(spark, run.table_format, run.out), options, **topics)
    written = Totals()
    interrupted = False
    try:
        _run(spark, archive, run, written)
    except KeyboardInterrupt:
        interrupted = True  # report what is archived; the next run continues from there
    _print(archive, run, written)
    return INTERRUPTED if interrupted and run.interval is None else 0


def _run(spark: SparkSession, archive: LakeArchive, run: LakeRun, written: Totals) -> None:
    """Run once, or again and again at the interval. Add to `written` what is written."""
    pause_s = _seconds(spark, run.interval) if run.interval else None
    commits = 0
    while True:
        for totals in archive.run():
            written.add(totals)
            commits += 1
        if run.compact and archive.table.exists() and (pause_s is None or commits >= COMMITS_PER_COMPACTION):
            archive.compact()
            commits = 0
        if pause_s is None:
            return
        time.sleep(pause_s)


def _seconds(spark: SparkSession, interval: str) -> float:
    """Return the length of an interval as Spark writes them, such as `1 minute`, in seconds."""
    jvm: Any = spark.sparkContext._jvm
    milliseconds: int = jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(interval).intervalMs()
    return milliseconds / 1000


def _print(archive: LakeArchive, run: LakeRun, written: Totals) -> None:
    in_all = archive.table.read().count() if archive.table.exists() else 0
    if run.json:
        added = {"partitions": written.as_json()["partitions"]}
        click.echo(json.dumps({"archive": archive.table.target, "written": added, "in_all": {"records": in_all}}))
    else:
        print_written(written, run.out, in_all)


def print_written(written: Totals, where: str, in_all: int) -> None:
    """Print what a run has written of each partition, and how many records the archive has."""
    if written.partitions:
        print_table(HEAD, [(*partition, *counts) for partition, counts in sorted(written.partitions.items())])
        click.echo()
    click.echo(f"{written.records:,} records written to {where}; {in_all:,} records in all")
