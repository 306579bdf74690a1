"""Topics as tables of SQL: temporary views of a session. Spark keeps no table of a source that is written in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from minibroker.pipeline.foreign_options import drop_ignored
from minibroker.pipeline.log_opening import open_source
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import RECORDS_ONLY, WHICH, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS: Final = "topic string, partition int, earliest long, latest long"


def register_views(spark: SparkSession, options: Mapping[str, str], *, prefix: str = "") -> list[str]:
    """Register three views for each topic that these options of a reader select, and return their names.

    `orders` has its records, `orders_batches` its batches, `orders_offsets` where its partitions begin and end now. All
    but letters, digits and underscores of a topic's name become underscores. Raises `OptionError` if two topics get one
    name, and what the log's source raises.
    """
    parsed = parse_options(options, "records", "batch")
    with closing(open_source(parsed)) as source:
        bounds = source.bounds(source.partitions())
    topics: dict[str, str] = {}
    for topic in sorted({partition.topic for partition in bounds}):
        view = prefix + re.sub(r"\W", "_", topic, flags=re.ASCII)
        if topics.setdefault(view, topic) != topic:
            raise OptionError(f"the topics {topics[view]} and {topic} would both be the view {view}")
    for view, topic in topics.items():
        of_topic = {**drop_ignored(options, WHICH), "subscribe": topic}
        of_batches = drop_ignored(of_topic, RECORDS_ONLY)
        spark.read.format("minibroker").options(**of_topic).load().createOrReplaceTempView(view)
        spark.read.format("minibroker-batches").options(**of_batches).load().createOrReplaceTempView(f"{view}_batches")
        rows = [(*partition, *edges) for partition, edges in bounds.items() if partition.topic == topic]
        spark.createDataFrame(rows, OFFSETS).createOrReplaceTempView(f"{view}_offsets")
    return [f"{view}{suffix}" for view in topics for suffix in ("", "_batches", "_offsets")]
