"""The archive in Spark: the rows of archives of plain Parquet, made of records of a DataFrame, and their reader.

`archive_rows` makes the same rows without Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# First the columns in the files, then those in the names of the directories.
COLUMNS: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>, timestampMs bigint, topic string, date date"
)
DIRECTORIES: Final = ("topic", "date")
# What to read for it.
READ: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>, timestampMs bigint"
)
DAY_US: Final = 86_400_000_000


def archived(records: DataFrame) -> DataFrame:
    """Return rows of the archive from rows of the records table with headers. `date` is the UTC date of the timestamp.

    `timestampMs` is the time in ms if a timestamp of Spark's cannot express it; otherwise it is null. Without a
    timestamp the date is null; Hive, Spark and most others then name the directory date=__HIVE_DEFAULT_PARTITION__.
    The time zone of the session makes no difference. This works on batch and streaming DataFrames.
    """
    day = f"(unix_micros(timestamp) - pmod(unix_micros(timestamp), {DAY_US})) div {DAY_US}"
    columns = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
    exact = "timestampMs" if "timestampMs" in records.columns else "cast(null as bigint)"
    beyond = f"case when timestamp is null and {exact} != -1 then {exact} end as timestampMs"
    return records.selectExpr(*columns, beyond, "topic", f"date_from_unix_date(cast({day} as int)) as date")


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of an archive, with the columns' types as they were written.

    Without the schema, Spark would guess types from the directories' names, and read the topic `007` as the number 7.
    """
    return spark.read.schema(COLUMNS).parquet(path)
