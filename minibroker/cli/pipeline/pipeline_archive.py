"""`minibroker pipeline archive`: archives topics, from the end of the last run, with a report.

`minibroker.pipeline.archiving` does the work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.pipeline import pipeline_shared
from minibroker.cli.shared import INTERRUPTED, make_assignments_option, make_json_option, print_table

if TYPE_CHECKING:
    from minibroker.pipeline.archiving.archive_job import LogArchive
    from minibroker.pipeline.archiving.archive_tables import WrittenTotals
    from minibroker.pipeline.options import ReadOptions

CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
BATCH_OFFSETS: Final = 1_000_000
INTERVAL: Final = "1m"
HEAD: Final = ("topic", "partition", "records", "bytes", "first offset", "last offset")
ISOLATION: Final = ("isolation.level", "kafka.isolation.level")
UNCOMMITTED: Final = (
    "isolation.level=read_uncommitted: records of aborted and open transactions are archived, and cannot be told from"
    " others; a replay would make them real"
)


@click.command()
@pipeline_shared.add_source_options
@click.option("--out", metavar="PLACE", required=True, help="A directory, or a URL; of iceberg, NAMESPACE.TABLE.")
@pipeline_shared.add_archive_options("Plain Parquet files, or a table, which needs the extra lake.")
@click.option("--decode", metavar="REGISTRY", help="Add decoded values, by the schemas at this URL, or `log`: its own.")
@click.option("--continuous", is_flag=True, help="Run until interrupted, instead of ending once all is archived.")
@click.option("--trigger", metavar="TIME", help="How often --continuous looks for new records.  [default: 1m]")
@click.option(
    "--batch-offsets",
    type=click.IntRange(1),
    default=BATCH_OFFSETS,
    show_default=True,
    help="How many offsets to archive by one commit.",
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="zstd",
    show_default=True,
    help="The codec of the Parquet files.",
)
@make_assignments_option("--option", "options", "An option of the reader, such as failOnDataLoss=false.")
@pipeline_shared.add_engine_option
@pipeline_shared.add_spark_options
@make_json_option("Print a JSON object of what was written.")
def archive(
    source: pipeline_shared.LogToRead,
    out: str,
    table_format: pipeline_shared.TableFormat,
    catalog: tuple[tuple[str, str], ...],
    decode: str | None,
    continuous: bool,
    trigger: str | None,
    batch_offsets: int,
    compression: str,
    options: tuple[tuple[str, str], ...],
    engine: pipeline_shared.EngineName,
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
    from minibroker.pipeline.archiving.archive_job import LogArchive
    from minibroker.pipeline.archiving.archived_topics import find_topic_configs, find_topic_ids
    from minibroker.pipeline.options import parse_duration_ms, parse_options

    if trigger is not None and not continuous:
        raise click.UsageError("--trigger needs --continuous")
    if table_format != "parquet" and engine == "spark":
        raise click.UsageError(f"tables of {table_format} are written by one process: --engine local")
    pause_s = parse_duration_ms("--trigger", trigger or INTERVAL) / 1000 if continuous else None
    table = pipeline_shared.locate_archive(table_format, out, catalog, compression)
    reading = {**source.make_read_options(), **_choose_isolation(dict(options))}
    parsed = parse_options(reading, "records", "stream")
    names = _select_topics(parsed)
    settings: dict[str, Any] = {
        "topic_ids": find_topic_ids(parsed, names),
        "topic_configs": find_topic_configs(parsed, names),
    }
    locally = table_format != "parquet" or pipeline_shared.reads_locally(source, parsed, engine)
    with pipeline_shared.start_engine(locally, master, conf) as runs:
        run = LogArchive(
            table, reading, batch_offsets=batch_offsets, decoder=_make_decoder(source, decode), engine=runs, **settings
        )
        written, is_over = _archive_once_or_repeatedly(run, pause_s)
    _print_totals(run, written, as_json)
    return 0 if is_over or continuous else INTERRUPTED


def _choose_isolation(options: dict[str, str]) -> dict[str, str]:
    """Return the options with `read_committed`. If they say otherwise, keep that, and warn on stderr."""
    given = [value for name, value in options.items() if name.lower() in ISOLATION]
    if not given:
        return {**options, ISOLATION[0]: "read_committed"}
    if given[0].strip().lower() == "read_uncommitted":
        click.echo(UNCOMMITTED, err=True)
    return options


def _select_topics(options: ReadOptions) -> set[str]:
    """Return the topics to archive. Raises click.ClickException if there is none, and the source's errors."""
    from minibroker.pipeline.log_opening import select_partitions

    names = {partition.topic for partition in select_partitions(options)}
    if not names:
        raise pipeline_shared.make_job_error("there is no topic to archive")
    return names


def _make_decoder(source: pipeline_shared.LogToRead, registry: str | None) -> Any:
    """Return a decoder of values, with the schemas of a registry, or of the log's own topic `_schemas`."""
    if registry is None:
        return None
    from minibroker.pipeline.archiving.archive_decoding import ValueDecoder

    if registry != "log":
        return ValueDecoder(registry)
    return ValueDecoder(tuple(sorted(source.make_location_options().items())))


def _archive_once_or_repeatedly(log_archive: LogArchive, pause_s: float | None) -> tuple[WrittenTotals, bool]:
    """Run once, or with a pause until Ctrl-C. Return what was written, and False if Ctrl-C ended it."""
    from minibroker.pipeline.archiving.archive_tables import WrittenTotals

    written = WrittenTotals()
    try:
        while True:
            for totals in log_archive.run():
                written.add_totals(totals)
                if sys.stderr.isatty():
                    click.echo(f"{written.records:,} records", err=True)
            if pause_s is None:
                return written, True
            time.sleep(pause_s)
    except KeyboardInterrupt:
        return written, False  # report what is archived; the next run continues from there


def _print_totals(run: LogArchive, written: WrittenTotals, as_json: bool) -> None:
    in_all = run.table.count_records() if run.table.exists() else 0
    if as_json:
        answer: Mapping[str, Any] = {"archive": run.table.location, "written": written.as_json(), "in_all": in_all}
        click.echo(json.dumps(answer))
        return
    if written.partitions:
        print_table(HEAD, [(*partition, *counts) for partition, counts in sorted(written.partitions.items())])
        click.echo()
    click.echo(f"{written.records:,} records written to {run.table.location}; {in_all:,} records in all")
