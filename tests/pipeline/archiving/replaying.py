"""Archived rows; and as a program, a replay of some that takes long enough to be killed.

python -m tests.pipeline.archiving.replaying SERVERS REPLAY_ID TARGET
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from minibroker.pipeline.archiving.replay_job import ReplayTask, replay_settings
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.schemas import HEADERS, TIMESTAMP

T = datetime(2026, 11, 1, tzinfo=UTC)
T_MS = int(T.timestamp() * 1000)
COUNT = 50_000  # that the program replays, few at a time


def rows(start: int, end: int, partition: int = 0, topic: str = "old", step: int = 1) -> pa.RecordBatch:
    """Archived rows whose values are their offsets."""
    offsets = range(start, end, step)
    columns = {
        "topic": pa.array([topic for _ in offsets], pa.string()),
        "partition": pa.array([partition for _ in offsets], pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "key": pa.array([b"%d" % (offset % 7) for offset in offsets], pa.binary()),
        "value": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
        "timestamp": pa.array([T for _ in offsets], TIMESTAMP),
        "timestampMs": pa.nulls(len(offsets), pa.int64()),
        "headers": pa.array([[{"key": "h", "value": b"%d" % offset}] for offset in offsets], HEADERS),
    }
    return pa.record_batch(columns)


def reading(whole: pa.Table, size: int) -> Callable[[int], Iterator[pa.Table]]:
    """What reads these rows from an offset on, in pieces."""

    def read(offset: int) -> Iterator[pa.Table]:
        rest = whole.filter(pc.field("offset") >= offset)
        yield from (rest.slice(start, size) for start in range(0, rest.num_rows, size))

    return read


def main(servers: str, replay_id: str, target: str) -> None:
    task = ReplayTask(replay_settings(servers), replay_id, {"old": target}, commit_records=20)
    task.replay_partition(
        TopicPartition("old", 0), reading(pa.Table.from_batches([rows(0, COUNT)]), task.commit_records)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
