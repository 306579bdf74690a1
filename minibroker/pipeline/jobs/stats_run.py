"""Gathers the statistics of a log: runs the queries of `stats`, and decides how many batches are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs import stats
from minibroker.pipeline.jobs.stats_report import KeySkew, Rate, SizeClass, Statistics, Traffic, span_for
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.pipeline.sources.tables import open_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALWAYS: Final = (("topic", "partition"), ("codec", "format"), ("producer",))
MEASURED_RECORDS: Final = 1_000_000  # about so many records of a larger log are measured, which takes seconds
ROWS_MAX: Final = 1000  # of a table


def gather(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    name: str,
    by: Sequence[str] = (),
    exact: bool = False,
    top_keys: int | None = None,
    span_ms: int | None = None,
) -> Statistics:
    """Return the statistics of the log that `spark.read` reads with these options. `name` is the log's name in them.

    `by` adds one more table. `exact` measures all batches. With `top_keys`, all keys are read and counted, and so many
    of each topic returned. `span_ms` is the span of the rates. Raise `OptionError`, `OSError`, `ClientError`, and
    Spark's errors.
    """
    one_in = 1 if exact else sample_of(offsets_to_read(parse_options(options, "batches", "batch")))
    reader = spark.read.format("minibroker-batches").options(**{**options, "measure": str(one_in)})
    batches = reader.schema(stats.BATCH_COLUMNS).load().persist()
    try:
        found = _from_batches(batches, name, one_in, [*ALWAYS, *([tuple(by)] if by else [])], span_ms)
    finally:
        batches.unpersist()
    if top_keys is not None:
        records = spark.read.format("minibroker").options(**options).schema(stats.KEY_COLUMNS).load()
        found.keys = _skews(records, top_keys)
    return found


def offsets_to_read(options: ReadOptions) -> int:
    """Return the approximate number of records. Raise what the log's source raises."""
    source = open_source(options)
    try:
        return sum(latest - earliest for earliest, latest in source.bounds(source.partitions()).values())
    finally:
        source.close()


def sample_of(records: int) -> int:
    """Return n, so that one in n batches is measured."""
    return max(1, round(records / MEASURED_RECORDS))


def _from_batches(
    batches: DataFrame, name: str, one_in: int, tables: Sequence[tuple[str, ...]], span_ms: int | None
) -> Statistics:
    sets = {stats.set_id(by): by for by in ((), *tables)}
    by_set: dict[int, list[dict[str, Any]]] = {number: [] for number in sets}
    for row in stats.grouped_by_each(batches, list(sets.values()), ROWS_MAX).collect():
        by_set[row.set].append(row.asDict())
    everything = (by_set[stats.set_id(())] or [stats.grouped(batches, ()).collect()[0].asDict()])[0]
    found = Statistics(name, one_in, Traffic.of(everything, (), everything["bytes"]))
    for by in tables:
        rows = by_set[stats.set_id(by)]
        found.tables[", ".join(by)] = [Traffic.of(row, by, everything["bytes"]) for row in rows]
        found.left_out[", ".join(by)] = rows[0]["rows"] - len(rows) if rows else 0
    found.span_ms = span_ms or span_for(found.all.first_ms, found.all.last_ms)
    found.rates = [Rate(*row) for row in stats.rates(batches, found.span_ms).collect()]
    found.sizes = [
        SizeClass(codec, round(2 ** (size_class / stats.SIZE_CLASSES_PER_DOUBLING)), count)
        for codec, size_class, count in stats.batch_sizes(batches).collect()
    ]
    return found


def _skews(records: DataFrame, top: int) -> list[KeySkew]:
    counts = stats.key_counts(records).persist()
    try:
        frequencies = stats.key_frequencies(counts).collect()
        most_frequent = stats.top_keys(counts, top).collect()
    finally:
        counts.unpersist()
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for topic, records_of_key, count in frequencies:
        by_topic.setdefault(topic, []).append((records_of_key, count))
    keys: dict[str, list[tuple[bytes | None, int]]] = {}
    for row in most_frequent:
        keys.setdefault(row.topic, []).append((None if row.key is None else bytes(row.key), row.records))
    return [KeySkew.of(topic, by_topic.get(topic, []), keys[topic]) for topic in sorted(keys)]
