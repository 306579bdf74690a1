"""`minibroker pipeline compact`: what compaction would keep of a log, as a table, and optionally as Parquet.

`minibroker.pipeline.jobs.compact` does the work.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.pipeline.pipeline_shared import (
    Source,
    source_options,
    spark_options,
    spark_session,
)
from minibroker.cli.shared import json_option, print_table

if TYPE_CHECKING:
    from pyspark.sql import Row

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
@spark_options
def compact(
    source: Source,
    out: str | None,
    tombstones: bool,
    uncommitted: bool,
    as_json: bool,
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
    with spark_session(master, conf, title="compact") as spark:
        from minibroker.pipeline.jobs import compact as job

        records = spark.read.format("minibroker").options(**options).load()
        found = job.savings(records.select("topic", "partition", "key", "value", "offset"), tombstones=tombstones)
        rows = found.orderBy("topic", "partition").collect()
        if out is not None:
            job.write_compacted(job.compact(records, tombstones=tombstones), out)
    if as_json:
        for row in rows:
            print(json.dumps(row.asDict()))
    else:
        print_table(HEAD, (_cells(row) for row in rows))


def _cells(row: Row) -> list[Any]:
    *numbers, saved = row
    return [*numbers, None if saved is None else f"{saved:.1%}"]
