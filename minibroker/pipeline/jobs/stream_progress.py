"""How far a stream of records is: the offsets that it has reached, by what stands in its checkpoint.

Spark itself reports a batch when it is over, which for a first batch of hours is late. Nothing is shown here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from minibroker.pipeline.log_source import TopicPartition

if TYPE_CHECKING:
    from minibroker.pipeline.jobs.hadoop_files import HadoopFiles

Offsets = Mapping[TopicPartition, int]


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Offsets of a stream from their JSON, `{"topic": {"0": 123}}`."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }


def distance(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between; a partition without a start, or beyond its end, counts nothing."""
    return sum(max(0, last - start.get(partition, last)) for partition, last in end.items())


class Reached(NamedTuple):
    """Where a stream is: all up to `committed` is done, up to `running` (None: nothing) batch `batch` is at work."""

    committed: Offsets
    running: Offsets | None
    batch: int


def reached(checkpoint: HadoopFiles, beginning: Offsets) -> Reached:
    """Read from a checkpoint how far its stream is; `beginning` is where it started. Only Spark's files are read."""
    planned = [int(name) for name in checkpoint.names("offsets") if name.isdecimal()]
    committed = [int(name) for name in checkpoint.names("commits") if name.isdecimal()]
    newest, done = max(planned, default=-1), max(committed, default=-1)
    committed_offsets = {**beginning, **_batch_end(checkpoint, done)} if done >= 0 else dict(beginning)
    running = {**beginning, **_batch_end(checkpoint, newest)} if newest > done else None
    return Reached(committed_offsets, running, max(newest, 0))


def _batch_end(checkpoint: HadoopFiles, batch: int) -> dict[TopicPartition, int]:
    """The end offsets of a batch: a version, the stream's settings and then a line for each source."""
    return parse_offsets(checkpoint.read(f"offsets/{batch}").splitlines()[2])
