"""A task of the replay. It writes archived rows, sorted by partition and offset, in transactions, and commits these.

Each transaction also stores how far the archived partition was replayed: the next offset is the marker of its
transactional id. So a repeated task continues after the last commit. `replay_job` has what is done before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.delivery import connect_client, make_sender, try_to_abort
from minibroker.pipeline.sink.sink_errors import WriteFailed
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import Marker, Transaction
from minibroker.pipeline.sink.task import TaskWriter

# The columns of the archive that a task needs.
COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampMs", "headers")


@dataclass(slots=True)
class Replayed:
    """The part of an archived partition that was written: number of records, first and last offset in the archive."""

    partition: TopicPartition
    target: str
    records: int = 0
    first: int | None = None
    last: int | None = None
    pending: int = 0  # the number of records that are not committed yet


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """How to write archived partitions to their targets. It is pickled.

    `replay_id` names the replay: one with the same name continues it. `targets` has the target of a topic, if it is not
    the topic itself. With `repartition`, rows go to their keys' partitions, otherwise to their old partition.
    `commit_records` records are committed at a time.
    """

    settings: SinkSettings
    replay_id: str
    targets: Mapping[str, str] = field(default_factory=dict)
    repartition: bool = False
    commit_records: int = 100_000

    def transactional_id(self, partition: TopicPartition) -> str:
        """Return the transactional id for an archived partition, which also has its marker."""
        prefix = self.settings.transactional_id_prefix
        return f"{prefix}-replay-{self.replay_id}-{partition}"

    def target(self, topic: str) -> str:
        """Return the target of an archived topic."""
        return self.targets.get(topic, topic)

    def next_offset(self, client: Client, partition: TopicPartition) -> int:
        """Return the first archived offset that was not replayed yet. Raises `WriteFailed`."""
        transaction = Transaction(client, self.settings, self.transactional_id(partition), generation=1)
        marker = transaction.marker(stable=False)
        return 0 if marker is None else marker.value

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Replayed]:
        """Replay rows of `COLUMNS`, sorted by topic, partition and offset. Raises `WriteFailed`."""
        with connect_client(self.settings) as client:
            for partition, pieces in groupby(_cut_by_partition(batches), key=lambda piece: piece[0]):
                yield self._replay_partition(client, partition, (rows for _, rows in pieces))

    def _replay_partition(
        self, client: Client, partition: TopicPartition, batches: Iterator[pa.RecordBatch]
    ) -> Replayed:
        done = Replayed(partition, self.target(partition.topic))
        transaction = Transaction(client, self.settings, self.transactional_id(partition))
        transaction.begin()
        marker = transaction.marker()
        start = 0 if marker is None else marker.value
        sender = make_sender(transaction, client, self.settings)
        writer = TaskWriter(client, self.settings, sender, partition.partition, keep_none=True)
        try:
            for rows in _limit_rows(batches, self.commit_records):
                new = rows.filter(pc.greater_equal(rows.column("offset"), start))
                self._write_rows(transaction, writer, new, done)
            self._commit_rows(transaction, writer, done)
        except BaseException:
            try_to_abort(self.settings, transaction)
            raise
        return done

    def _write_rows(self, transaction: Transaction, writer: TaskWriter, rows: pa.RecordBatch, done: Replayed) -> None:
        if not rows.num_rows:
            return
        offsets = rows.column("offset").to_numpy()
        ordered = np.concatenate([[-1 if done.last is None else done.last], offsets])
        wrong = np.flatnonzero(np.diff(ordered) <= 0)
        if len(wrong):
            before, after = ordered[wrong[0] : wrong[0] + 2]
            raise WriteFailed(f"{'-'.join(map(str, done.partition))}: the archive has offset {after} after {before}")
        writer.write(self._make_outgoing(rows, done.target))
        done.first = int(offsets[0]) if done.first is None else done.first
        done.last = int(offsets[-1])
        done.records += rows.num_rows
        done.pending += rows.num_rows
        if done.pending >= self.commit_records:
            self._commit_rows(transaction, writer, done)

    def _commit_rows(self, transaction: Transaction, writer: TaskWriter, done: Replayed) -> None:
        if not done.pending or done.last is None:
            return
        writer.flush()
        transaction.mark(Marker(done.last + 1, ""))
        transaction.end(commit=True)
        done.pending = 0

    def _make_outgoing(self, rows: pa.RecordBatch, target: str) -> pa.RecordBatch:
        names = ["key", "value", "timestamp", "headers", *(() if self.repartition else ("partition",))]
        columns = [_get_times(rows) if name == "timestamp" else rows.column(name) for name in names]
        topic = pa.repeat(pa.scalar(target, pa.string()), rows.num_rows)
        return pa.RecordBatch.from_arrays([topic, *columns], names=["topic", *names])


def _cut_by_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the rows, cut where the partition changes."""
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column("topic").dictionary_encode()
        places = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32
        places |= batch.column("partition").to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), batch.num_rows]
        for start, end in zip(starts, starts[1:], strict=False):
            partition = TopicPartition(batch.column("topic")[start].as_py(), batch.column("partition")[start].as_py())
            yield partition, batch.slice(start, end - start)


def _get_times(rows: pa.RecordBatch) -> pa.Array:
    """Return the times in ms, null for none."""
    times = pc.divide(rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
    return pc.coalesce(times, rows.column("timestampMs"))


def _limit_rows(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `most`."""
    for batch in batches:
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)
