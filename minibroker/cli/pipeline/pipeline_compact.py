"""`minibroker pipeline compact`: what compaction would keep of a log, as a table, and optionally as Parquet.

`minibroker.pipeline.jobs.compact` does the work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from minibroker.cli.pipeline.pipeline_shared import (
    Engine,
    Source,
    engine_option,
    reads_locally,
    source_options,
    spark_options,
    spark_session,
)
from minibroker.cli.shared import json_option, print_table

HEAD: Final = (
    *("topic", "partition", "records", "without key", "keys", "tombstones"),
    *("kept records", "bytes", "kept bytes", "saved"),
)


@click.command()
@source_options
@click.option(
    "--out", metavar="DIR", help="Write the latest records to this directory, as Parquet that can be replayed."
)
@click.option(
    "--tombstones/--no-tombstones", default=True, show_default=True, help="Keep keys whose latest value is null."
)
@click.option("--uncommitted", is_flag=True, help="Include records of open and aborted transactions.")
@json_option("Print a JSON object per partition.")
@engine_option
@spark_options
def compact(
    source: Source,
    out: str | None,
    tombstones: bool,
    uncommitted: bool,
    as_json: bool,
    engine: Engine,
    master: str,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Compute what compaction would keep: the latest record of each key. The log is not changed.

    Bytes are those of keys and values.

    \b
    Example:
        minibroker pipeline compact --path minibroker-data --topic prices
    """
    options = {
        **source.options(),
        "includeHeaders": "true",
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
    }
    if reads_locally(source, options, "records", engine) and (out is None or "://" not in out):
        rows = _computed_here(options, out, tombstones)
    else:
        rows = _computed_by_spark(options, out, tombstones, master, conf)
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        print_table(HEAD, (_cells(row) for row in rows))


def _computed_here(options: Mapping[str, str], out: str | None, tombstones: bool) -> Sequence[Mapping[str, Any]]:
    from minibroker.pipeline.jobs.compact import savings_here, write_compacted_here

    rows = savings_here(options, tombstones=tombstones)
    if out is not None:
        write_compacted_here(options, out, tombstones=tombstones)
    return rows


def _computed_by_spark(
    options: Mapping[str, str], out: str | None, tombstones: bool, master: str, conf: tuple[tuple[str, str], ...]
) -> Sequence[Mapping[str, Any]]:
    with spark_session(master, conf, title="compact") as spark:
        from minibroker.pipeline.jobs import compact as job
        from minibroker.pipeline.jobs.archive import READ

        records = spark.read.format("minibroker").options(**options).schema(READ).load()
        found = job.savings(records.select("topic", "partition", "key", "value", "offset"), tombstones=tombstones)
        rows = [row.asDict() for row in found.orderBy("topic", "partition").collect()]
        if out is not None:
            job.write_compacted(job.compact(records, tombstones=tombstones), out)
    return rows


def _cells(row: Mapping[str, Any]) -> list[Any]:
    *numbers, saved = row.values()
    return [*numbers, None if saved is None else f"{saved:.1%}"]
