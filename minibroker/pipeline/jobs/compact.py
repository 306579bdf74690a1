"""The job `compact`: the latest record of each key, and how much of a log would remain; by Spark, or in this process.

It changes no log. Tests compare the broker's cleaner with it. Keys are compared within a partition, as by the cleaner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from minibroker.pipeline.jobs.archive import DAY_US, DIRECTORIES, ORDER, archived
from minibroker.pipeline.log_opening import read_here
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.schemas import RECORDS, chosen
from minibroker.storage.files import Disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("topic", "partition", "key")
PARTITION: Final = KEY[:2]
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
    "timestampMs",
)


def compact(records: DataFrame, *, tombstones: bool = True) -> DataFrame:
    """Return the latest record of each key of each partition, with the columns of `records`.

    Records without a key are dropped, as by the cleaner. `tombstones` is whether keys with a null value stay: the
    cleaner keeps them for `delete.retention.ms`. `records` must not have aborted records
    (`isolation.level=read_committed`).
    """
    from pyspark.sql import functions as F

    others = [name for name in records.columns if name not in KEY]
    latest = F.max_by(F.struct(*(F.col(name) for name in others)), "offset")
    found = records.where("key is not null").groupBy(*KEY).agg(latest.alias("latest")).select(*KEY, "latest.*")
    return (found if tombstones else found.where("value is not null")).select(*records.columns)


def savings(records: DataFrame, *, tombstones: bool = True) -> DataFrame:
    """Return how much `compact` would leave of each partition, one row for each, by one pass over the records.

    Columns: topic, partition, records, keyless, keys, tombstones (keys whose latest value is null), keptRecords, bytes
    (of keys and values), keptBytes, savedShare (of the bytes, 0 to 1; null if there are none).
    """
    from pyspark.sql import functions as F

    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    sized = records.select(*KEY, "offset", F.col("value").isNull().alias("isNull"), size.cast("long").alias("size"))
    by_key = sized.groupBy(*KEY).agg(
        F.count("*").alias("records"),
        F.sum("size").alias("bytes"),
        F.max_by(F.struct("isNull", "size"), "offset").alias("latest"),
    )
    has_key = F.col("key").isNotNull()
    stays = has_key if tombstones else has_key & ~F.col("latest.isNull")
    found = by_key.groupBy(*PARTITION).agg(
        F.sum("records").alias("records"),
        F.sum(F.when(~has_key, F.col("records")).otherwise(0)).alias("keyless"),
        F.count("key").alias("keys"),
        F.count_if(has_key & F.col("latest.isNull")).alias("tombstones"),
        F.count_if(stays).alias("keptRecords"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(stays, F.col("latest.size")).otherwise(0)).alias("keptBytes"),
    )
    return found.withColumn("savedShare", F.expr("1 - try_divide(keptBytes, bytes)"))


def write_compacted(compacted: DataFrame, path: str) -> None:
    """Write the rows in the form of an archive, so that they can be replayed. `path` must not exist."""
    archived(compacted).write.partitionBy(*DIRECTORIES).parquet(path)


def savings_here(options: Mapping[str, str], *, tombstones: bool = True) -> list[dict[str, Any]]:
    """Return the rows of `savings` of the log that these options name, sorted by partition."""
    sized = [_measure_records(batch) for batch in _read(options, (*KEY, "value"))]
    if not sized:
        return []
    # In the order of the log, so that the last row of a key is its latest record.
    by_key = (
        pa.concat_tables(sized)
        .group_by(list(KEY), use_threads=False)
        .aggregate([("size", "count"), ("size", "sum"), ("size", "last"), ("is_null", "last")])
    )
    has_key, is_null = pc.is_valid(by_key["key"]), by_key["is_null_last"]
    stays = has_key if tombstones else pc.and_(has_key, pc.invert(is_null))
    counted = pa.table(
        {
            "topic": by_key["topic"],
            "partition": by_key["partition"],
            "records": by_key["size_count"],
            "keyless": pc.if_else(has_key, 0, by_key["size_count"]),
            "keys": has_key.cast(pa.int64()),
            "tombstones": pc.and_(has_key, is_null).cast(pa.int64()),
            "keptRecords": stays.cast(pa.int64()),
            "bytes": by_key["size_sum"],
            "keptBytes": pc.if_else(stays, by_key["size_last"], 0),
        }
    )
    names = counted.column_names[len(PARTITION) :]
    rows = counted.group_by(list(PARTITION)).aggregate([(name, "sum") for name in names])
    ordered = rows.sort_by([(name, "ascending") for name in PARTITION])
    return [_with_share(row) for row in ordered.rename_columns(counted.column_names).to_pylist()]


def write_compacted_here(options: Mapping[str, str], path: str, *, tombstones: bool = True) -> None:
    """Write the latest record of each key in the form of an archive. Raises `OptionError` if `path` exists."""
    if Disk().exists(path):
        raise OptionError(f"{path} exists already")
    records = pa.Table.from_batches(_read(options, COLUMNS), chosen(RECORDS, COLUMNS))
    numbered = records.select(KEY).append_column("row", pa.array(range(len(records)), pa.int64()))
    latest = numbered.group_by(list(KEY), use_threads=False).aggregate([("row", "last")])
    kept = records.take(latest.filter(pc.is_valid(pc.field("key")))["row_last"])
    if not tombstones:
        kept = kept.filter(pc.is_valid(pc.field("value")))
    exact = pc.if_else(
        pc.and_(pc.is_null(kept["timestamp"]), pc.not_equal(kept["timestampMs"], -1)), kept["timestampMs"], None
    )
    kept = kept.set_column(COLUMNS.index("timestampMs"), "timestampMs", exact)
    micros = kept["timestamp"].cast(pa.int64())
    days = pc.floor(pc.divide(micros.cast(pa.float64()), DAY_US)).cast(pa.int32()).cast(pa.date32())
    rows = kept.append_column("date", days).sort_by([(name, "ascending") for name in ORDER])
    schema = pa.schema([rows.schema.field(name) for name in DIRECTORIES])
    ds.write_dataset(rows, path, format="parquet", partitioning=ds.partitioning(schema, flavor="hive"))


def _read(options: Mapping[str, str], columns: tuple[str, ...]) -> Any:
    return read_here(parse_options(options, "records", "batch"), columns)


def _measure_records(batch: pa.RecordBatch) -> pa.Table:
    """Return the keys of records, their sizes in bytes, and whether their values are null."""
    sizes = [pc.fill_null(pc.binary_length(batch[name]), 0).cast(pa.int64()) for name in ("key", "value")]
    columns = {name: batch[name] for name in KEY}
    return pa.table({**columns, "size": pc.add(*sizes), "is_null": pc.is_null(batch["value"])})


def _with_share(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "savedShare": 1 - row["keptBytes"] / row["bytes"] if row["bytes"] else None}
