"""Statistics of a log: records, bytes, compression and overhead by dimensions, rates, and the spread of keys.

All but the keys come from the batches table, which reads only headers. Uncompressed sizes, and the bytes of keys and
values, are measured on some batches. These are functions from DataFrame to DataFrame; `stats_report` interprets their
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The dimensions of a table, and their columns in the batches table.
DIMENSIONS: Final = {
    "topic": "topic",
    "partition": "partition",
    "producer": "producerId",
    "codec": "codec",
    "format": "magic",
}
# The columns to read: Spark does not prune the columns of a Python data source by itself.
BATCH_COLUMNS: Final = (
    "topic string, partition int, sizeInBytes int, magic int, codec string, baseOffset bigint, lastOffset bigint, "
    "recordCount int, maxTimestampMs bigint, producerId bigint, isControl boolean, uncompressedSizeInBytes bigint, "
    "keyBytes bigint, valueBytes bigint, nullValues int"
)
# What is summed up for each group: a column of the batches table, or what the batch counts for, of these batches.
SUMS: Final = {
    "records": ("data", "records"),
    "batches": ("data", "one"),
    "bytes": ("data", "sizeInBytes"),
    "control_batches": ("control", "one"),
    "control_bytes": ("control", "sizeInBytes"),
    "measured_batches": ("measured", "one"),
    "measured_records": ("measured", "records"),
    "measured_bytes": ("measured", "sizeInBytes"),
    "measured_uncompressed_bytes": ("measured", "uncompressedSizeInBytes"),
    "measured_key_bytes": ("measured", "keyBytes"),
    "measured_value_bytes": ("measured", "valueBytes"),
    "measured_null_values": ("measured", "nullValues"),
}
KEY_COLUMNS: Final = "topic string, key binary"
SIZE_CLASSES_PER_DOUBLING: Final = 2


def grouped(batches: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return one row for each combination of the dimensions `by`, the largest first.

    Sizes are in bytes as stored. Columns that begin with `measured` are only about the batches that were decompressed.
    Control batches and their bytes are counted separately.
    """
    from pyspark.sql import functions as F

    names = [F.col(DIMENSIONS[name]).alias(name) for name in by]
    rows = batches.groupBy(*names).agg(*(column.alias(name) for name, column in _measures().items()))
    return rows.orderBy(F.desc("bytes"), *by)


def grouped_by_each(batches: DataFrame, sets: Sequence[Sequence[str]], most: int) -> DataFrame:
    """Group as `grouped` does by each of several sets, in one query. Keep the `most` largest rows of each.

    `set` is the set's `set_id`, `rows` its number of rows in all. Without batches there are no rows.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    named = batches.withColumnsRenamed({column: name for name, column in DIMENSIONS.items()})
    grouping = named.groupingSets([[F.col(name) for name in each] for each in sets], *map(F.col, DIMENSIONS))
    rows = grouping.agg(F.grouping_id().alias("set"), *(column.alias(name) for name, column in _measures().items()))
    order = Window.partitionBy("set").orderBy(F.desc("bytes"), *DIMENSIONS)
    ranked = rows.withColumn("rank", F.row_number().over(order))
    counted = ranked.withColumn("rows", F.count("*").over(Window.partitionBy("set")))
    return counted.where(F.col("rank") <= most).orderBy("set", "rank").drop("rank")


def set_id(by: Sequence[str]) -> int:
    """Return the number of a set of dimensions: a bit for each one that is not in it, the first one highest."""
    return sum(1 << place for place, name in enumerate(reversed(DIMENSIONS)) if name not in by)


def _measures() -> dict[str, Column]:
    """Return the columns that are computed for each group."""
    from pyspark.sql import functions as F

    control = F.col("isControl")
    batches = {
        "data": ~control,
        "control": control,
        "measured": F.col("uncompressedSizeInBytes").isNotNull() & ~control,
    }
    counts = {"records": records(), "one": F.lit(1)}
    size, time_ms = F.when(~control, F.col("sizeInBytes")), F.when(~control, times_ms())
    return {
        **{
            name: F.coalesce(F.sum(F.when(batches[those], counts.get(column, F.col(column)))), F.lit(0))
            for name, (those, column) in SUMS.items()
        },
        "median_batch_bytes": F.percentile_approx(size, 0.5),
        "max_batch_bytes": F.max(size),
        "first_ms": F.min(time_ms),
        "last_ms": F.max(time_ms),
    }


def records() -> Column:
    """Return the number of records of a batch. A compressed message of format 0 or 1 has none; then offsets tell."""
    from pyspark.sql import functions as F

    return F.coalesce("recordCount", F.col("lastOffset") - F.col("baseOffset") + 1)


def times_ms() -> Column:
    """Return the time of a batch, null for none: as stored, as a timestamp of Spark's cannot express all."""
    from pyspark.sql import functions as F

    return F.nullif("maxTimestampMs", F.lit(-1))


def quantiles(batches: DataFrame, fractions: Sequence[float]) -> DataFrame:
    """Return a row with the times below which these fractions of the batches are, null without a time."""
    from pyspark.sql import functions as F

    return batches.where("not isControl").agg(F.percentile_approx(times_ms(), list(fractions)).alias("times"))


def rates(batches: DataFrame, bucket_ms: int, window: tuple[int, int]) -> DataFrame:
    """Return records and bytes by topic and time span of `bucket_ms`, from `start_ms` on. The end of a batch counts.

    Those outside of the window, from its first to its last ms, have null for `start_ms`.
    """
    from pyspark.sql import functions as F

    time_ms = times_ms()
    start_ms = F.when(time_ms.between(*window), time_ms - F.pmod(time_ms, F.lit(bucket_ms)))
    rows = batches.where(~F.col("isControl") & time_ms.isNotNull()).groupBy("topic", start_ms.alias("start_ms"))
    return rows.agg(F.sum(records()).alias("records"), F.sum("sizeInBytes").alias("bytes")).orderBy("topic", "start_ms")


def batch_sizes(batches: DataFrame) -> DataFrame:
    """Return how many batches of each codec have which size: `size_class` n begins at 2 ** (n / 2) bytes."""
    from pyspark.sql import functions as F

    size_class = F.floor(F.log2("sizeInBytes") * SIZE_CLASSES_PER_DOUBLING).alias("size_class")
    rows = batches.where("not isControl").groupBy("codec", size_class)
    return rows.agg(F.count("*").alias("batches")).orderBy("codec", "size_class")


def key_counts(records: DataFrame) -> DataFrame:
    """Return how many records each key of a topic has. Records without a key count for the null key."""
    from pyspark.sql import functions as F

    return records.groupBy("topic", "key").agg(F.count("*").alias("records"))


def key_frequencies(counts: DataFrame) -> DataFrame:
    """Return, from `key_counts`, how many keys of a topic have the same number of records, the most records first.

    The null key is left out.
    """
    from pyspark.sql import functions as F

    rows = counts.where("key is not null").groupBy("topic", "records").agg(F.count("*").alias("keys"))
    return rows.orderBy("topic", F.desc("records"))


def top_keys(counts: DataFrame, limit: int) -> DataFrame:
    """Return, from `key_counts`, the `limit` most frequent keys of each topic, and the null key if it occurs."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("topic").orderBy(F.col("key").isNull(), F.desc("records"), "key")
    ranked = counts.withColumn("rank", F.row_number().over(order))
    return ranked.where((F.col("rank") <= limit) | F.col("key").isNull()).drop("rank")
