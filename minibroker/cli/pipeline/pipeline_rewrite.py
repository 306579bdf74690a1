"""`minibroker pipeline rewrite`: copies a log directory in message format 2, with another codec or batch size.

`minibroker.pipeline.rewriting` does the work.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from minibroker.cli.pipeline import pipeline_shared
from minibroker.cli.shared import make_json_option, print_table

if TYPE_CHECKING:
    from minibroker.pipeline.rewriting.directory import RewriteReport, TopicSpace

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEAD = ("topic", "partitions", "segments", "batches", "records", "bytes before", "bytes after", "left")
LARGEST_BATCH_BYTES = 1 << 20  # accepted and returned by every broker with default settings


@click.command()
@pipeline_shared.make_path_option("The log directory to read; not one that a broker is writing to.", required=True)
@click.option(
    "--output", metavar="DIR", type=click.Path(file_okay=False, resolve_path=True), required=True,
    help="The directory to write: new, empty, or left by a killed run of this command.",
)  # fmt: skip
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="A topic; by default all. Can be repeated.")
@click.option("--compression", type=click.Choice(CODECS), help="The codec.  [default: unchanged]")
@click.option("--level", type=int, metavar="N", help="The codec's level.  [default: the codec's own]")
@click.option(
    "--batch-size", "batch_bytes", type=click.IntRange(1, LARGEST_BATCH_BYTES), metavar="BYTES",
    help="Combine records into batches of this many bytes before compression.  [default: unchanged]",
)  # fmt: skip
@make_json_option("Print a JSON object.")
@pipeline_shared.add_engine_option
@pipeline_shared.add_spark_options
def rewrite(
    path: str,
    output: str,
    topics: tuple[str, ...],
    compression: str | None,
    level: int | None,
    batch_bytes: int | None,
    as_json: bool,
    engine: pipeline_shared.EngineName,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Copy a log directory in message format 2, with another codec or batch size.

    Offsets, timestamps, producers, transactions and leader epochs stay the same, and a broker can serve the new
    directory. Kafka's own topics are copied. After a kill, run it again with the same options to continue; when all is
    done, that does nothing.

    \b
    Example:
        minibroker pipeline rewrite --path old-data --output new-data --compression zstd
    """
    from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
    from minibroker.pipeline.rewriting.directory import DirectoryRewriting, finish_rewriting
    from minibroker.protocol.records.compression import Compression

    codec = None if compression is None else Compression[compression.upper()]
    settings = RewriteSettings(codec, level, batch_bytes)
    with DirectoryRewriting(
        path, output, settings, topics
    ) as rewriting:  # it refuses what cannot be, before Spark starts
        if rewriting.finished is None:
            left_bytes = sum(task.size_bytes for task in rewriting.list_unfinished_segments())
            locally = pipeline_shared.runs_locally(engine, size_bytes=left_bytes)
            with pipeline_shared.start_engine(locally, master, conf) as runs:
                report = finish_rewriting(rewriting, runs)
        else:
            click.echo(f"{output} was complete already: nothing was done", err=True)
            report = rewriting.finished
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        print_report(report)


def print_report(report: RewriteReport) -> None:
    """Print the size of each topic, and remarks."""
    rows = [_make_topic_row(space) for space in report.topics]
    if len(rows) > 1:
        rows.append(_make_topic_row(report.total))
    print_table(HEAD, rows)
    for space in report.topics:
        if space.lost_bytes:
            click.echo(f"{space.topic}: {space.lost_bytes} bytes at the end were torn by a crash, and are gone")
    copied = "1 other log was" if len(report.copied) == 1 else f"{len(report.copied)} other logs were"
    click.echo(f"{report.target} is complete; {copied} copied to it")


def _make_topic_row(space: TopicSpace) -> tuple[object, ...]:
    ratio = "" if space.ratio is None else f"{space.ratio:.1%}"
    sizes = space.bytes_before, space.bytes_after
    return space.topic, space.partitions, space.segments, space.batches, space.records, *sizes, ratio
