"""A task of the replay: it writes the rows of an archived partition, sorted by offset, in transactions.

Each transaction also stores how far the archived partition was replayed: the next offset is the marker of its
transactional id. So a repeated task continues after the last commit. `replay_job` has what is done before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.delivery import connect_client, make_sender, try_to_abort_transaction
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import PositionMarker, SinkTransaction, WriteFailed
from minibroker.pipeline.sink.task import TaskWriter

# The columns of the archive that a task needs.
COLUMNS: Final = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampMs", "headers")

# Yields the rows of a partition from an offset on, in pieces that are sorted and committed by themselves.
ReadPieces = Callable[[int], Iterable[pa.Table]]


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
        """Return the transactional id for an archived partition, which also has its marker."""
        prefix = self.settings.transactional_id_prefix
        return f"{prefix}-replay-{self.replay_id}-{partition}"

    def get_target(self, topic: str) -> str:
        """Return the target of an archived topic."""
        return self.targets.get(topic, topic)

    def replay_partition(self, partition: TopicPartition, read_pieces: ReadPieces) -> ReplayedPartition:
        """Replay an archived partition from where an earlier run ended, one transaction for each piece.

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
                for piece in read_pieces(0 if marker is None else marker.value):
                    if piece.num_rows:
                        last = self._write_piece(writer, piece, done)
                        transaction.add_marker(PositionMarker(last + 1, ""))
                        transaction.end_transaction(commit=True)
            except BaseException:
                try_to_abort_transaction(self.settings, transaction)
                raise
        return done

    def _write_piece(self, writer: TaskWriter, piece: pa.Table, replayed: ReplayedPartition) -> int:
        """Write the rows, and return the offset of the last one."""
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
        names = ["key", "value", "timestamp", "headers", *(() if self.repartition else ("partition",))]
        columns = [_get_timestamps(rows) if name == "timestamp" else rows.column(name) for name in names]
        topic = pa.repeat(pa.scalar(target, pa.string()), rows.num_rows)
        return pa.RecordBatch.from_arrays([topic, *columns], names=["topic", *names])


def _get_timestamps(rows: pa.RecordBatch) -> pa.Array:
    """Return the times in ms, null for none."""
    times = pc.divide(rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
    return pc.coalesce(times, rows.column("timestampMs"))
