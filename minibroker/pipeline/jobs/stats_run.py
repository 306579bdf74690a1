"""Gathers the statistics of a log: runs the queries of `stats`, and decides how many batches are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from minibroker.pipeline.jobs import stats
from minibroker.pipeline.jobs.stats_local import LocalQueries
from minibroker.pipeline.jobs.stats_report import (
    FRACTIONS,
    KeySkew,
    Rate,
    SizeClass,
    Statistics,
    Traffic,
    span_for,
    window_of,
)
from minibroker.pipeline.log_opening import offsets_to_read
from minibroker.pipeline.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS: Final = (("topic", "partition"), ("codec", "format"), ("producer",))
MEASURED_RECORDS: Final = 1_000_000  # about so many records of a larger log are measured, which takes seconds
ROWS_MAX: Final = 1000  # of a table


def gather(
    spark: SparkSession | None,
    options: Mapping[str, str],
    *,
    name: str,
    by: Sequence[str] = (),
    exact: bool = False,
    top_keys: int | None = None,
    span_ms: int | None = None,
) -> Statistics:
    """Return the statistics of the log that `spark.read` reads with these options. `name` is the log's name in them.

    Without Spark (None), this process reads it. `by` adds one more table. `exact` measures all batches. With
    `top_keys`, all keys are read and counted, and so many of each topic returned. `span_ms` is the span of the rates.
    Raises `OptionError`, `OSError`, `ClientError`, and Spark's errors.
    """
    one_in = 1 if exact else sample_of(offsets_to_read(parse_options(options, "batches", "batch")))
    queries: Queries = LocalQueries(options, one_in) if spark is None else SparkQueries(spark, options, one_in)
    with closing(queries):
        found = _from_batches(queries, name, one_in, [*ALWAYS, *([tuple(by)] if by else [])], span_ms)
        if top_keys is not None:
            found.keys = _skews(*queries.keys(top_keys))
    return found


class SparkQueries:
    """The queries by Spark."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], one_in: int) -> None:
        self._spark, self._options = spark, options
        reader = spark.read.format("minibroker-batches").options(**{**options, "measure": str(one_in)})
        self._batches = reader.schema(stats.BATCH_COLUMNS).load().persist()

    def grouped(self, sets: Sequence[Sequence[str]], most: int) -> list[dict[str, Any]]:
        """Return the rows of `stats.grouped_by_each`; for the empty set there is always one."""
        rows = [row.asDict() for row in stats.grouped_by_each(self._batches, sets, most).collect()]
        if rows:
            return rows
        return [{**stats.grouped(self._batches, ()).collect()[0].asDict(), "set": stats.set_id(()), "rows": 1}]

    def quantiles(self, fractions: Sequence[float]) -> list[int]:
        """Return the times below which these fractions of the batches are; none without times."""
        return list(stats.quantiles(self._batches, fractions).collect()[0].times or ())

    def rates(self, span_ms: int, window: tuple[int, int]) -> list[dict[str, Any]]:
        """Return records and bytes by topic and span of time, and those outside of the window."""
        return [row.asDict() for row in stats.rates(self._batches, span_ms, window).collect()]

    def sizes(self) -> list[tuple[str, int, int]]:
        """Return (codec, size class, number of batches)."""
        return [tuple(row) for row in stats.batch_sizes(self._batches).collect()]

    def keys(self, top: int) -> tuple[list[tuple[str, int, int]], list[tuple[str, bytes | None, int]]]:
        """Return (topic, records of a key, number of such keys), and (topic, key, records) of frequent keys."""
        records = self._spark.read.format("minibroker").options(**self._options).schema(stats.KEY_COLUMNS).load()
        counts = stats.key_counts(records).persist()
        try:
            frequencies = [tuple(row) for row in stats.key_frequencies(counts).collect()]
            most = stats.top_keys(counts, top).collect()
        finally:
            counts.unpersist()
        return frequencies, [(row.topic, None if row.key is None else bytes(row.key), row.records) for row in most]

    def close(self) -> None:
        """Free the memory."""
        self._batches.unpersist()


Queries = LocalQueries | SparkQueries


def sample_of(records: int) -> int:
    """Return n, so that one in n batches is measured."""
    return max(1, round(records / MEASURED_RECORDS))


def _from_batches(
    queries: Queries, name: str, one_in: int, tables: Sequence[tuple[str, ...]], span_ms: int | None
) -> Statistics:
    sets = {stats.set_id(by): by for by in ((), *tables)}
    by_set: dict[int, list[dict[str, Any]]] = {number: [] for number in sets}
    for row in queries.grouped(list(sets.values()), ROWS_MAX):
        by_set[row["set"]].append(row)
    (everything,) = by_set[stats.set_id(())]
    found = Statistics(name, one_in, Traffic.of(everything, (), everything["bytes"]))
    for by in tables:
        rows = by_set[stats.set_id(by)]
        found.tables[", ".join(by)] = [Traffic.of(row, by, everything["bytes"]) for row in rows]
        found.left_out[", ".join(by)] = rows[0]["rows"] - len(rows) if rows else 0
    window = window_of(found.all.first_ms or 0, found.all.last_ms or 0, queries.quantiles(FRACTIONS))
    found.span_ms = span_ms or span_for(*window)
    rates = queries.rates(found.span_ms, window)
    found.rates = [Rate(**row) for row in rates if row["start_ms"] is not None]
    found.records_outside = sum(row["records"] for row in rates if row["start_ms"] is None)
    found.sizes = [
        SizeClass(codec, round(2 ** (size_class / stats.SIZE_CLASSES_PER_DOUBLING)), count)
        for codec, size_class, count in queries.sizes()
    ]
    return found


def _skews(frequencies: Sequence[tuple[str, int, int]], most: Sequence[tuple[str, bytes | None, int]]) -> list[KeySkew]:
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for topic, records_of_key, count in frequencies:
        by_topic.setdefault(topic, []).append((records_of_key, count))
    keys: dict[str, list[tuple[bytes | None, int]]] = {}
    for topic, key, records in most:
        keys.setdefault(topic, []).append((key, records))
    return [KeySkew.of(topic, by_topic.get(topic, []), keys[topic]) for topic in sorted(keys)]
