"""The job `compact`: the latest record of each key, computed by Spark, and how much of a log would remain.

It changes no log. Tests compare the broker's cleaner with it. Keys are compared within a partition, as by the cleaner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY: Final = ("topic", "partition", "key")
PARTITION: Final = KEY[:2]


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
    from minibroker.pipeline.jobs.archive import DIRECTORIES, archived

    archived(compacted).write.partitionBy(*DIRECTORIES).parquet(path)
