"""The replay: writes archived records back to topics, each once, with order and timestamps kept in each partition.

This file has Spark's part: it finds how far an earlier run came, and sorts the rows of a partition. `replay_task`
writes them, `replay_targets` prepares the topics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.jobs.replay_targets import Needed
from minibroker.pipeline.jobs.replay_task import COLUMNS, REPORT, ReplayTask, report_of
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.sink.delivery import connected
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Transactions of a replay are short, and one that a killed run has left open must not block readers for long.
TRANSACTION_TIMEOUT_MS: Final = 120_000
NEXT_OFFSETS: Final = "topic string, partition int, next bigint"


class Archived(NamedTuple):
    """A partition in an archive: records, first and last offset, and the time of the oldest record in ms."""

    partition: TopicPartition
    records: int
    first: int
    last: int
    oldest_ms: int | None


def replay_settings(servers: str, client: Mapping[str, str] | None = None) -> SinkSettings:
    """Return the settings of a replay. `client` are Kafka's settings of producer and connection.

    Raises `OptionError`.
    """
    kafka = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **(client or {})}
    options = {f"kafka.{name}": value for name, value in kafka.items()}
    return parse_settings({"kafka.bootstrap.servers": servers, "delivery": "exactly-once", **options})


def replay_id_of(path: str, targets: Mapping[str, str], repartition: bool = False) -> str:
    """Return the name of this replay of this archive.

    It is always the same, so that a second run continues the first.
    """
    what = json.dumps([path, sorted(targets.items()), repartition])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def archived_partitions(archive: DataFrame) -> list[Archived]:
    """Return the archive's partitions, sorted, by a query that reads no keys and values."""
    from pyspark.sql.functions import expr

    found = archive.groupBy("topic", "partition").agg(
        expr("count(*) AS records"),
        expr("min(offset) AS first"),
        expr("max(offset) AS last"),
        expr("min(unix_millis(timestamp)) AS oldest_ms"),
    )
    return sorted(
        Archived(TopicPartition(row.topic, row.partition), row.records, row.first, row.last, row.oldest_ms)
        for row in found.collect()
    )


def needed_topics(partitions: list[Archived], task: ReplayTask) -> dict[str, Needed]:
    """Return what the target topics must have. Raises `OptionError` if two partitions have the same target."""
    needed: dict[str, Needed] = {}
    origins: dict[tuple[str, int], str] = {}
    for each in partitions:
        topic, partition = each.partition
        target = task.target(topic)
        origin = origins.setdefault((target, partition), topic)
        if origin != topic and not task.repartition:
            raise OptionError(f"{origin} and {topic} both go to {target}, and both have a partition {partition}")
        before = needed.get(target, Needed(0, None))
        times = [time for time in (before.oldest_ms, each.oldest_ms) if time is not None]
        needed[target] = Needed(max(before.partitions, partition + 1), min(times, default=None))
    return needed


def next_offsets(client: Client, task: ReplayTask, partitions: list[Archived]) -> dict[TopicPartition, int]:
    """Return the next archived offset to replay in each partition. Raises `WriteFailed`."""
    return {each.partition: task.next_offset(client, each.partition) for each in partitions}


def replay_archive(archive: DataFrame, task: ReplayTask, partitions: list[Archived] | None = None) -> DataFrame:
    """Replay an archive's rows when an action runs. The result has a row for each written partition (`REPORT`).

    `partitions` are those of the archive to replay; None means all. A repeated call continues where the last one ended;
    it does not even sort what is committed. The topics must exist. Tasks raise `WriteFailed`.
    """
    from minibroker.pipeline.sources.arrival import ship

    partitions = archived_partitions(archive) if partitions is None else partitions
    with connected(task.settings) as client:
        offsets = next_offsets(client, task, partitions)
    todo = archive.sparkSession.createDataFrame([(*each, offset) for each, offset in offsets.items()], NEXT_OFFSETS)
    rows = archive.join(todo.hint("broadcast"), ["topic", "partition"]).where("offset >= next").select(*COLUMNS)
    ordered = rows.repartition(max(len(partitions), 1), "topic", "partition")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (report_of(done) for done in task.run(batches))

    return ordered.sortWithinPartitions("topic", "partition", "offset").mapInArrow(ship(run), REPORT)
