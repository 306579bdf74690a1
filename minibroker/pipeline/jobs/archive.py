"""The archive: the records of topics as Parquet, in a directory for each topic and date, each record once.

Here are its columns, how records become rows of it and how it is read again. How batches of a stream get into it so
that a crash neither doubles nor loses any is in `archive_batches`; how a run of it goes, in `archive_run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The columns within the files come first, then those that stand in the names of the directories.
COLUMNS: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>, topic string, date date"
)
DIRECTORIES: Final = ("topic", "date")
# Within a file: the order of the partitions' logs, so that Parquet's statistics tell which file has which offsets.
ORDER: Final = (*DIRECTORIES, "partition", "offset")
DAY_US: Final = 86_400_000_000


def archived(records: DataFrame) -> DataFrame:
    """Rows of the archive from rows of the records table with headers; `date` is the UTC date of the timestamp.

    It is null without one: then Hive, and so Spark and most others, name the directory date=__HIVE_DEFAULT_PARTITION__.
    It does not matter which time zone the session has. Works on batch and streaming DataFrames.
    """
    day = f"(unix_micros(timestamp) - pmod(unix_micros(timestamp), {DAY_US})) div {DAY_US}"
    return records.selectExpr(
        "key",
        "value",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        "topic",
        f"date_from_unix_date(cast({day} as int)) as date",
    )


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """The rows of an archive, with the columns' types as they were written.

    Without the schema Spark guesses from the directories' names, and takes the topic `007` for the number 7.
    """
    return spark.read.schema(COLUMNS).parquet(path)
