"""`minibroker pipeline archive`: archives topics as Parquet, from the end of the last run, with progress and a report.

`minibroker.pipeline.jobs.archive_run` does the work; `pipeline_lake` archives to tables of Iceberg and Delta.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.pipeline.pipeline_lake import (
    FORMATS,
    LakeRun,
    archive_to_table,
    format_option,
    lake_session,
    print_written,
)
from minibroker.cli.pipeline.pipeline_shared import Source, cannot, source_options, spark_options, spark_session
from minibroker.cli.shared import INTERRUPTED, assignments_option, json_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minibroker.pipeline.jobs.archive_run import ArchiveRun
    from minibroker.pipeline.jobs.stream_progress import StreamProgress

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
BATCH_OFFSETS: Final = 5_000_000
INTERVAL: Final = "1 minute"
POLL_S: Final = 0.3
ISOLATION: Final = ("isolation.level", "kafka.isolation.level")
UNCOMMITTED: Final = (
    "isolation.level=read_uncommitted: records of aborted and open transactions are archived, and cannot be told from"
    " others; a replay would make them real"
)


@click.command()
@source_options
@click.option(
    "--out", metavar="DIR", required=True, help="The archive: a directory, or any URL to which Spark can write."
)
@format_option("Plain Parquet files, or a table; Spark fetches the library of iceberg and delta from Maven Central.")
@click.option("--compact", is_flag=True, help="Merge small files of a table after the run, or after each 16 batches.")
@click.option("--checkpoint", metavar="DIR", help="Where to store the progress, if not in the archive itself.")
@click.option("--continuous", is_flag=True, help="Run until interrupted, instead of ending once all is archived.")
@click.option("--trigger", metavar="TIME", help="How often --continuous looks for new records.  [default: 1 minute]")
@click.option(
    "--batch-offsets",
    type=click.IntRange(1),
    default=BATCH_OFFSETS,
    show_default=True,
    help="How many offsets to archive at a time; after a kill, at most this many are repeated.",
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="zstd",
    show_default=True,
    help="The codec of the Parquet files.",
)
@assignments_option("--option", "options", "An option of the reader, such as failOnDataLoss=false.")
@spark_options
@json_option("Print a JSON object of what was written.")
def archive(
    source: Source,
    out: str,
    table_format: Any,
    compact: bool,
    checkpoint: str | None,
    continuous: bool,
    trigger: str | None,
    batch_offsets: int,
    compression: str,
    options: tuple[tuple[str, str], ...],
    master: str,
    conf: tuple[tuple[str, str], ...],
    as_json: bool,
) -> int:
    """Archive topics as Parquet, by topic and date (UTC); run again, it adds what is new.

    With --format, the archive is a table of Iceberg or Delta, with the same columns. Each record is archived once, even
    if a run is killed. Records of aborted and open transactions are left out. Bytes are those of keys and values.

    \b
    Example:
        minibroker pipeline archive --path minibroker-data --topic orders --out archive
    """
    if trigger is not None and not continuous:
        raise click.UsageError("--trigger needs --continuous")
    _require_fitting(table_format, checkpoint, compact)
    reading = {
        **source.options(),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        **_committed_only(dict(options)),
    }
    interval = (trigger or INTERVAL) if continuous else None
    progress, settings = _topics(reading)
    settings["compression"] = compression
    if table_format != FORMATS[0]:
        lake = LakeRun(table_format, out, interval, compact, as_json)
        with lake_session(table_format, master, conf, "archive") as spark:
            return archive_to_table(spark, lake, reading, batch_offsets=batch_offsets, **settings)
    from minibroker.pipeline.jobs.archive import READ
    from minibroker.pipeline.jobs.archive_run import ArchiveRun

    reading = {"maxOffsetsPerTrigger": str(batch_offsets), **reading}
    with spark_session(master, conf, title="archive", progress=False) as spark:
        records = spark.readStream.format("minibroker").options(**reading).schema(READ).load()
        run = ArchiveRun(records, out, checkpoint=checkpoint, interval=interval, **settings)
        try:
            is_over = _show_until_over(spark, run, progress)
        finally:
            run.stop()
        _print(run, out, as_json)
    return 0 if is_over or continuous else INTERRUPTED


def _require_fitting(table_format: str, checkpoint: str | None, compact: bool) -> None:
    """Raise click.UsageError if an option has no meaning for this format."""
    if checkpoint is not None and table_format != FORMATS[0]:
        raise click.UsageError(f"--checkpoint is for parquet: the commits of {table_format} have the progress")
    if compact and table_format == FORMATS[0]:
        raise click.UsageError("--compact needs --format iceberg or delta; of parquet, small files are always merged")


def _committed_only(options: dict[str, str]) -> dict[str, str]:
    """Return the options with `read_committed`. If they say otherwise, keep that, and warn on stderr."""
    given = [value for name, value in options.items() if name.lower() in ISOLATION]
    if not given:
        return {**options, ISOLATION[0]: "read_committed"}
    if given[0].strip().lower() == "read_uncommitted":
        click.echo(UNCOMMITTED, err=True)
    return options


def _topics(reading: Mapping[str, str]) -> tuple[StreamProgress, dict[str, Any]]:
    """Find where the stream begins and the log ends, and identities and configs of the topics, before Spark starts.

    Raises click.ClickException if there is no topic, and the source's errors.
    """
    from minibroker.pipeline.jobs.archived_topics import topic_configs, topic_ids
    from minibroker.pipeline.jobs.stream_progress import StreamProgress
    from minibroker.pipeline.options import parse_options

    parsed = parse_options(reading, "records", "stream")
    progress = StreamProgress(parsed)
    names = {partition.topic for partition in progress.begin}
    if not names:
        raise cannot("there is no topic to archive")
    return progress, {"topic_ids": topic_ids(parsed, names), "topic_configs": topic_configs(parsed, names)}


def _show_until_over(spark: SparkSession, run: ArchiveRun, progress: StreamProgress) -> bool:
    """Wait until the stream ends; return False if it is interrupted. Show the progress on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("archive", total=None, state="")
        try:
            while run.query.isActive:
                if console.is_terminal:
                    bars.update(bar, **_run_with_progress(spark, run, progress))
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            return False  # report what is archived; the next run continues from there
    error = run.query.exception()
    if error is not None:
        raise error
    return True


def _run_with_progress(spark: SparkSession, run: ArchiveRun, progress: StreamProgress) -> dict[str, Any]:
    from minibroker.cli.pipeline.pipeline_progress import running

    tasks = running(spark.sparkContext.statusTracker())
    done, total = progress.now(run.checkpoint, tasks.done / tasks.tasks if tasks.tasks else 0.0)
    state = f"{run.batches.written.records:,} records, {total - done:,} offsets left"
    return {"completed": done, "total": total, "state": state}


def _print(run: ArchiveRun, out: str, as_json: bool) -> None:
    written, totals = run.batches.written, run.batches.totals
    if as_json:
        answer = {"archive": run.batches.files.root, "written": written.as_json(), "in_all": totals.as_json()}
        click.echo(json.dumps(answer))
    else:
        files = f"{written.files:,} file{'' if written.files == 1 else 's'}"
        print_written(written, f"{out} in {files}", totals.records)
