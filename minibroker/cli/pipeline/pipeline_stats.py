"""`minibroker pipeline stats`: statistics of a log, as tables, as JSON, and as plots.

`minibroker.pipeline.jobs.stats_run` counts, and `stats_plots` draws.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from minibroker.cli.pipeline.pipeline_shared import (
    Engine,
    Source,
    cannot,
    engine_option,
    reads_locally,
    source_options,
    spark_options,
    spark_session,
)
from minibroker.cli.shared import assignments_option, json_option, print_table
from minibroker.pipeline.jobs.stats import DIMENSIONS

if TYPE_CHECKING:
    from minibroker.pipeline.jobs.stats_report import Statistics

TOP_KEYS: Final = 10


def dimensions_of(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of dimensions, each once. Raises click.BadParameter."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown:
        raise click.BadParameter(f"{', '.join(map(repr, unknown))}: it can be {', '.join(DIMENSIONS)}")
    return names


def span_of(text: str) -> int:
    """Parse a time such as 30s, 15m, 1h or 1d to ms. Raises click.BadParameter."""
    from minibroker.pipeline.log_source import OptionError
    from minibroker.pipeline.option_values import duration_ms

    try:
        span_ms = duration_ms("", text)
    except OptionError:
        span_ms = 0
    if span_ms <= 0:
        raise click.BadParameter(f"{text!r} is not a time like 30s, 15m, 1h or 1d")
    return span_ms


@click.command()
@source_options
@click.option(
    "--by", metavar="NAME,...", type=dimensions_of, help=f"One table by these instead: {', '.join(DIMENSIONS)}."
)
@click.option("--exact", is_flag=True, help="Decompress all batches; by default a large log is sampled.")
@click.option("--keys", is_flag=True, help="Read all keys too, and report the distribution of records over them.")
@click.option(
    "--top", type=click.IntRange(1, 1000), default=20, show_default=True, help="The largest number of rows of a table."
)
@click.option("--span", metavar="TIME", type=span_of, help="The step of the rates; by default chosen automatically.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw plots, a .png.")
@assignments_option("--option", "options", "An option of the reader, such as startingTimestamp=1700000000000.")
@engine_option
@spark_options
@json_option("Print a JSON object of everything.")
def stats(
    source: Source,
    by: tuple[str, ...] | None,
    exact: bool,
    keys: bool,
    top: int,
    span: int | None,
    plot: Path | None,
    options: tuple[tuple[str, str], ...],
    engine: Engine,
    master: str,
    conf: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Print statistics of a log: records, bytes, compression, overhead and rates.

    It reads only the headers of batches, and decompresses a sample (about a million records). Compression is the ratio
    of uncompressed to stored bytes; overhead is the uncompressed bytes that are neither key nor value.

    \b
    Example:
        minibroker pipeline stats --path minibroker-data --keys --plot plots.png
    """
    _check_plot(plot)
    reading = {**source.options(), **dict(options)}
    is_local = reads_locally(source, reading, "batches", engine)
    with nullcontext() if is_local else spark_session(master, conf, title="stats") as spark:
        from minibroker.pipeline.jobs.stats_run import gather

        found = gather(
            spark,
            reading,
            name=source.path or source.servers or "",
            by=by or (),
            exact=exact,
            top_keys=min(top, TOP_KEYS) if keys else None,
            span_ms=span,
        )
    if plot is not None:
        from minibroker.pipeline.jobs.stats_plots import write_picture

        write_picture(found, plot)
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        _print(found, by, top)


def _check_plot(path: Path | None) -> None:
    """Reject a picture that cannot be written, before doing the work."""
    if path is None:
        return
    if path.suffix.lower() != ".png":
        raise click.BadParameter(f"{str(path)!r} does not end with .png", param_hint="--plot")
    if not path.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.absolute().parent}", param_hint="--plot")
    if find_spec("matplotlib") is None:
        raise cannot("--plot needs the extra plot: python3 -m pip install matplotlib")


def _print(found: Statistics, by: tuple[str, ...] | None, top: int) -> None:
    from rich.table import Column

    from minibroker.pipeline.jobs.stats_tables import summary, tables

    for line in summary(found):
        click.echo(line)
    for table in tables(found, top, ", ".join(by) if by else None):
        click.echo(f"\n{table.title}")
        print_table(
            [Column(each.name, justify="right" if each.is_number else "left") for each in table.columns], table.rows
        )
        if table.note:
            click.echo(table.note)
