"""The queries of `stats` in this process, without Spark: the same rows, from Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.jobs import stats
from minibroker.pipeline.log_opening import read_here
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.schemas import BATCHES, RECORDS, chosen

MERGED_ROWS: Final = 1 << 20  # of keys, before they are counted together
EVERYTHING: Final = "everything"


class LocalQueries:
    """The batches of a log in memory, one row for each, and queries of them. See `stats_run.SparkQueries`."""

    def __init__(self, options: Mapping[str, str], one_in: int) -> None:
        self._options = options
        names = [column.split()[0] for column in stats.BATCH_COLUMNS.split(", ")]
        parsed = parse_options({**options, "measure": str(one_in)}, "batches", "batch")
        self._batches = _measure_batches(pa.Table.from_batches(read_here(parsed, names), chosen(BATCHES, names)))
        self._data = self._batches.filter(pc.field("batches") > 0)

    def grouped(self, sets: Sequence[Sequence[str]], most: int) -> list[dict[str, Any]]:
        """Return the rows of each set of dimensions, at most `most` of each, the largest first."""
        found = []
        for by in sets:
            rows = self._group_rows(by)
            found += [{**row, "set": stats.set_id(by), "rows": len(rows)} for row in rows[:most]]
        return found

    def _group_rows(self, by: Sequence[str]) -> list[dict[str, Any]]:
        names = list(by) or [EVERYTHING]
        extremes = [("size", "max"), ("size", "list"), ("time_ms", "min"), ("time_ms", "max")]
        groups = self._batches.group_by(names).aggregate([*((name, "sum") for name in stats.SUMS), *extremes])
        rows = [_row(row, by) for row in groups.to_pylist()]
        if not rows and not by:
            rows = [_row({}, by)]
        return sorted(rows, key=lambda row: (-row["bytes"], *(row[name] for name in stats.DIMENSIONS if name in by)))

    def quantiles(self, fractions: Sequence[float]) -> list[int]:
        """Return the times below which these fractions of the batches are; none without times."""
        times = self._data["time_ms"].drop_null()
        return pc.quantile(times, list(fractions), interpolation="lower").to_pylist() if len(times) else []

    def rates(self, span_ms: int, window: tuple[int, int]) -> list[dict[str, Any]]:
        """Return records and bytes by topic and span of time, and those outside of the window."""
        timed = self._data.filter(pc.is_valid(pc.field("time_ms")))
        times = timed["time_ms"].to_numpy()
        outside = (times < window[0]) | (times > window[1])
        spans = timed.append_column("start_ms", pa.array(times - times % span_ms, pa.int64(), mask=outside))
        rows = spans.group_by(["topic", "start_ms"]).aggregate([("records", "sum"), ("bytes", "sum")])
        named = rows.select(["topic", "start_ms", "records_sum", "bytes_sum"])
        ordered = named.rename_columns(["topic", "start_ms", "records", "bytes"])
        found: list[dict[str, Any]] = ordered.sort_by([("topic", "ascending"), ("start_ms", "ascending")]).to_pylist()
        return found

    def sizes(self) -> list[tuple[str, int, int]]:
        """Return (codec, size class, number of batches)."""
        logs = np.log2(self._data["size"].to_numpy()) * stats.SIZE_CLASSES_PER_DOUBLING
        classes = self._data.append_column("size_class", pa.array(np.floor(logs).astype(np.int64)))
        rows = classes.group_by(["codec", "size_class"]).aggregate([("batches", "sum")])
        ordered = rows.sort_by([("codec", "ascending"), ("size_class", "ascending")]).to_pylist()
        return [(row["codec"], row["size_class"], row["batches_sum"]) for row in ordered]

    def keys(self, top: int) -> tuple[list[tuple[str, int, int]], list[tuple[str, bytes | None, int]]]:
        """Return (topic, records of a key, number of such keys), and (topic, key, records) of frequent keys."""
        counts = self._key_counts()
        rows = counts.filter(pc.is_valid(pc.field("key"))).group_by(["topic", "records"]).aggregate([("key", "count")])
        frequencies = rows.sort_by([("topic", "ascending"), ("records", "descending")]).to_pylist()
        ordered = counts.sort_by([("topic", "ascending"), ("records", "descending"), ("key", "ascending")])
        most: list[tuple[str, bytes | None, int]] = []
        for topic in pc.unique(ordered["topic"]).sort().to_pylist():
            of_topic = ordered.filter(pc.field("topic") == topic)
            named = of_topic.filter(pc.is_valid(pc.field("key"))).slice(0, top)
            for row in pa.concat_tables([named, of_topic.filter(pc.is_null(pc.field("key")))]).to_pylist():
                most.append((topic, row["key"], row["records"]))
        return [(row["topic"], row["records"], row["key_count"]) for row in frequencies], most

    def _key_counts(self) -> pa.Table:
        columns = ("topic", "key")
        read = read_here(parse_options(self._options, "records", "batch"), columns)
        found = [_count_rows([], chosen(RECORDS, columns))]
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in read:
            waiting.append(batch)
            rows += len(batch)
            if rows >= MERGED_ROWS:
                found.append(_count_rows(waiting, chosen(RECORDS, columns)))
                waiting, rows = [], 0
        found.append(_count_rows(waiting, chosen(RECORDS, columns)))
        together = pa.concat_tables(found).group_by(list(columns)).aggregate([("records", "sum")])
        return together.rename_columns([*columns, "records"])

    def close(self) -> None:
        """Forget the batches."""
        del self._batches, self._data


def _count_rows(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    rows = pa.Table.from_batches(batches, schema)
    counts = rows.group_by(schema.names).aggregate([([], "count_all")])
    return counts.rename_columns([*schema.names, "records"])


def _measure_batches(batches: pa.Table) -> pa.Table:
    """Return the dimensions of each batch, and what is summed up: 0 where a measure is not about the batch."""
    data = pc.invert(batches["isControl"])
    conditions = {
        "data": data,
        "control": batches["isControl"],
        "measured": pc.and_(data, pc.is_valid(batches["uncompressedSizeInBytes"])),
    }
    span = pc.add(pc.subtract(batches["lastOffset"], batches["baseOffset"]), 1)
    one = pa.chunked_array([pa.array(np.ones(len(batches), np.int64))])
    counts = {"records": pc.coalesce(batches["recordCount"].cast(pa.int64()), span), "one": one}
    time_ms = pc.if_else(pc.equal(batches["maxTimestampMs"], -1), None, batches["maxTimestampMs"])

    def total(those: str, column: str) -> pa.ChunkedArray:
        values = counts[column] if column in counts else batches[column].cast(pa.int64())
        return pc.if_else(conditions[those], pc.fill_null(values, 0), 0)

    return pa.table(
        {
            **{name: batches[column] for name, column in stats.DIMENSIONS.items()},
            EVERYTHING: one,
            "size": pc.if_else(data, batches["sizeInBytes"].cast(pa.int64()), None),
            "time_ms": pc.if_else(data, time_ms, None),
            **{name: total(*which) for name, which in stats.SUMS.items()},
        }
    )


def _row(row: Mapping[str, Any], by: Sequence[str]) -> dict[str, Any]:
    """Return a row as `stats.grouped` names its columns."""
    sizes = sorted(size for size in row.get("size_list", ()) if size is not None)
    return {
        **{name: row[name] for name in by},
        **{name: row.get(f"{name}_sum") or 0 for name in stats.SUMS},
        "median_batch_bytes": sizes[(len(sizes) - 1) // 2] if sizes else None,
        "max_batch_bytes": row.get("size_max"),
        "first_ms": row.get("time_ms_min"),
        "last_ms": row.get("time_ms_max"),
    }
