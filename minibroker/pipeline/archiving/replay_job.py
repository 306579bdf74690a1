"""The replay: writes archived records back to topics, each once, with order and timestamps kept in each partition.

A task writes the rows of an archived partition, sorted by offset, in transactions. Each of these also stores how far
the partition was replayed: the next offset is the marker of its transactional id. So a repeated task continues after
the last commit. `archived_topics` prepares the topics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.archiving.archive_tables import (
    ArchivedPartition,
    ArchiveTable,
    OffsetWindow,
    list_archived_partitions,
)
from minibroker.pipeline.archiving.archived_topics import NeededTopic
from minibroker.pipeline.engines import Engine, LocalEngine
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.sink.delivery import connect_client, make_sender, try_to_abort_transaction
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from minibroker.pipeline.sink.sink_transaction import PositionMarker, SinkTransaction, WriteFailed
from minibroker.pipeline.sink.task import TaskWriter

# The columns of the archive that a task needs.
COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampMs", "headers")

# Yields the rows of a partition from an offset on, in pieces that are sorted and committed by themselves.
ReadRowsByTransaction = Callable[[int], Iterable[pa.Table]]


@dataclass(slots=True)
class ReplayedPartition:
    """The part of an archived partition that was written: number of records, first and last offset in the archive."""

    partition: TopicPartition
    target: str
    records: int = 0
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """How to write archived partitions to their targets. It is pickled.

    `replay_id` names the replay: one with the same name continues it. `targets` has the target of a topic, if it is not
    the topic itself. With `repartition`, rows go to their keys' partitions, otherwise to their old partition.
    At most `commit_records` records are committed at a time.
    """

    settings: SinkSettings
    replay_id: str
    targets: Mapping[str, str] = field(default_factory=dict)
    repartition: bool = False
    commit_records: int = 100_000

    def make_transactional_id(self, partition: TopicPartition) -> str:
        """Return the transactional id for an archived partition; the marker of its progress is committed under it."""
        prefix = self.settings.transactional_id_prefix
        return f"{prefix}-replay-{self.replay_id}-{partition}"

    def get_target(self, topic: str) -> str:
        """Return the target of an archived topic."""
        return self.targets.get(topic, topic)

    def replay_partition(
        self, partition: TopicPartition, read_rows_by_transaction: ReadRowsByTransaction
    ) -> ReplayedPartition:
        """Replay an archived partition from where an earlier run ended, one transaction for each table of rows.

        Raises `WriteFailed`, and what reading raises.
        """
        done = ReplayedPartition(partition, self.get_target(partition.topic))
        with connect_client(self.settings) as client:
            transaction = SinkTransaction(client, self.settings, self.make_transactional_id(partition))
            transaction.init_producer_id()
            marker = transaction.fetch_marker()
            sender = make_sender(transaction, client, self.settings)
            writer = TaskWriter(client, self.settings, sender, partition.partition, keep_none=True)
            try:
                for piece in read_rows_by_transaction(0 if marker is None else marker.value):
                    if piece.num_rows:
                        last = self._write_transaction_rows(writer, piece, done)
                        transaction.add_marker(PositionMarker(last + 1, ""))
                        transaction.end_transaction(commit=True)
            except BaseException:
                try_to_abort_transaction(self.settings, transaction)
                raise
        return done

    def _write_transaction_rows(self, writer: TaskWriter, piece: pa.Table, replayed: ReplayedPartition) -> int:
        """Write the rows of one transaction into it, and return the offset of the last one. Raises `WriteFailed`."""
        offsets = piece.column("offset").to_numpy()
        wrong = np.flatnonzero(np.diff(offsets) <= 0)
        if len(wrong):
            before, after = offsets[wrong[0] : wrong[0] + 2]
            raise WriteFailed(f"{replayed.partition}: the archive has offset {after} after {before}")
        for rows in piece.to_batches():
            writer.write_rows(self._make_rows_for_target(rows, replayed.target))
        writer.flush_rows()
        first, last = int(offsets[0]), int(offsets[-1])
        replayed.first = first if replayed.first is None else replayed.first
        replayed.last = last
        replayed.records += piece.num_rows
        return last

    def _make_rows_for_target(self, rows: pa.RecordBatch, target: str) -> pa.RecordBatch:
        """Return the rows with the columns that Spark's Kafka sink takes: topic, key, value, timestamp and so on."""
        names = ["key", "value", "timestamp", "headers", *(() if self.repartition else ("partition",))]
        columns = [_get_timestamps(rows) if name == "timestamp" else rows.column(name) for name in names]
        topic = pa.repeat(pa.scalar(target, pa.string()), rows.num_rows)
        return pa.RecordBatch.from_arrays([topic, *columns], names=["topic", *names])


def _get_timestamps(rows: pa.RecordBatch) -> pa.Array:
    """Return the times in ms since 1970, null if a record has none."""
    times = pc.divide(rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
    return pc.coalesce(times, rows.column("timestampMs"))


Edge = int | datetime | None

# Transactions of a replay are short, and one that a killed run has left open must not block readers for long.
TRANSACTION_TIMEOUT_MS: Final = 120_000
SCANNED_RECORDS: Final = 100_000  # at least, as each scan reads whole groups of rows


def replay_settings(servers: str, client: Mapping[str, str] | None = None) -> SinkSettings:
    """Return the settings of a replay. `client` are Kafka's settings of producer and connection.

    Raises `OptionError`.
    """
    kafka = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **(client or {})}
    options = {f"kafka.{name}": value for name, value in kafka.items()}
    return parse_settings({"kafka.bootstrap.servers": servers, "delivery": "exactly-once", **options})


def make_replay_id(
    path: str, targets: Mapping[str, str], repartition: bool = False, part: ReplayRange | None = None
) -> str:
    """Return the name of this replay of this archive.

    It is always the same, so that a second run continues the first.
    """
    what = json.dumps([path, sorted(targets.items()), repartition, str(part or ReplayRange())])
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def find_needed_topics(partitions: list[ArchivedPartition], task: ReplayTask) -> dict[str, NeededTopic]:
    """Return what each target topic needs for these partitions.

    Raises `OptionError` if two of them would be written to the same partition.
    """
    needed: dict[str, NeededTopic] = {}
    origins: dict[tuple[str, int], str] = {}
    for each in partitions:
        topic, partition = each.partition
        target = task.get_target(topic)
        origin = origins.setdefault((target, partition), topic)
        if origin != topic and not task.repartition:
            raise OptionError(f"{origin} and {topic} would both be written to partition {partition} of {target}")
        before = needed.get(target, NeededTopic(0, None))
        times = [time for time in (before.oldest_ms, each.oldest_ms) if time is not None]
        needed[target] = NeededTopic(max(before.partitions, partition + 1), min(times, default=None))
    return needed


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The part of an archive to replay: offsets and times from `start` to before `end`, or all."""

    start: Edge = None
    end: Edge = None

    def find_offsets_to_replay(self, archived: ArchivedPartition, next_offset: int) -> OffsetWindow:
        """Return which offsets of a partition are still to be read."""
        start = max(archived.first, next_offset, self.start if isinstance(self.start, int) else 0)
        end = min(archived.last + 1, self.end if isinstance(self.end, int) else archived.last + 1)
        return OffsetWindow(archived.partition, start, end)

    def filter_by_time(self, rows: pa.Table) -> pa.Table:
        """Return the rows whose timestamps are within the range."""
        times = rows.column("timestamp")
        if isinstance(self.start, datetime):
            rows = rows.filter(pc.greater_equal(times, pa.scalar(self.start, times.type)))
        if isinstance(self.end, datetime):
            rows = rows.filter(pc.less(rows.column("timestamp"), pa.scalar(self.end, times.type)))
        return rows


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """Replays one partition of an archive. It is pickled. A repeated call continues where the last one ended."""

    table: ArchiveTable
    task: ReplayTask
    part: ReplayRange = ReplayRange()

    def __call__(self, archived: ArchivedPartition) -> ReplayedPartition:
        """Write the rows that were not written yet. Raises `WriteFailed` and what reading raises."""
        return self.task.replay_partition(
            archived.partition, lambda offset: self.iterate_rows_by_transaction(archived, offset)
        )

    def iterate_rows_by_transaction(self, archived: ArchivedPartition, next_offset: int) -> Iterator[pa.Table]:
        """Yield the rows of each transaction, from an offset on, sorted by it."""
        window, scan = self.part.find_offsets_to_replay(archived, next_offset), self.table.open_scan()
        at_once, size = max(self.task.commit_records, SCANNED_RECORDS), self.task.commit_records
        for start in range(window.start, window.end, at_once):
            batches = list(scan(COLUMNS, window._replace(start=start, end=min(start + at_once, window.end))))
            if batches:
                rows = self.part.filter_by_time(pa.Table.from_batches(batches)).sort_by("offset")
                yield from (rows.slice(first, size) for first in range(0, rows.num_rows, size))


def replay_archive(
    table: ArchiveTable,
    task: ReplayTask,
    partitions: list[ArchivedPartition] | None = None,
    *,
    part: ReplayRange = ReplayRange(),  # noqa: B008 - it is frozen
    engine: Engine | None = None,
) -> list[ReplayedPartition]:
    """Replay the partitions of an archive, by default all; return what was written of each.

    The topics must exist. Raises `WriteFailed`, `ArchiveError`, and what reading raises.
    """
    found = list_archived_partitions(table) if partitions is None else partitions
    return list((engine or LocalEngine()).run_on_items(PartitionReplay(table, task, part), found))
