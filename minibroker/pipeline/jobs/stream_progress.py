"""The progress of a stream of records: the offsets in its checkpoint.

Spark itself reports a batch when it is over, which may take hours for the first one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from minibroker.pipeline.log_opening import open_source
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.stream_planning import from_json, initial_offsets, latest_offsets

if TYPE_CHECKING:
    from minibroker.pipeline.jobs.hadoop_files import HadoopFiles

Offsets = Mapping[TopicPartition, int]


class Reached(NamedTuple):
    """A stream's position: everything up to `committed` is done.

    A batch up to `running` is running; None means no batch.
    """

    committed: Offsets
    running: Offsets | None


class Done(NamedTuple):
    """How many offsets a run has done, and how many there are in all, as far as is known."""

    done: int
    total: int


class StreamProgress:
    """The progress of one run. `begin` is where a stream with these options starts, `end` the present end.

    Raises `OptionError`, `OSError` and `ClientError`.
    """

    def __init__(self, options: ReadOptions) -> None:
        with closing(open_source(options)) as source:
            self.begin: Offsets = initial_offsets(options, source)
            self.end: Offsets = latest_offsets(source)
        self._start: Offsets | None = None

    def now(self, checkpoint: HadoopFiles, share: float) -> Done:
        """Return what the run has done since the first call; `share` (0 to 1) of the running batch counts."""
        committed, running = reached(checkpoint, self.begin)
        self._start = self._start or committed
        if running:
            self.end = {**self.end, **{each: max(end, self.end.get(each, end)) for each, end in running.items()}}
        done = distance(self._start, committed) + (int(share * distance(committed, running)) if running else 0)
        return Done(done, max(done, distance(self._start, self.end)))


def distance(start: Offsets, end: Offsets) -> int:
    """Return how many offsets are between. A partition without a start, or beyond its end, counts as 0."""
    return sum(max(0, last - start.get(partition, last)) for partition, last in end.items())


def reached(checkpoint: HadoopFiles, beginning: Offsets) -> Reached:
    """Read a stream's position from its checkpoint. `beginning` is where it started. Only Spark's files are read."""
    planned = [int(name) for name in checkpoint.names("offsets") if name.isdecimal()]
    committed = [int(name) for name in checkpoint.names("commits") if name.isdecimal()]
    newest, done = max(planned, default=-1), max(committed, default=-1)
    return Reached(
        {**beginning, **_batch_end(checkpoint, done)} if done >= 0 else dict(beginning),
        {**beginning, **_batch_end(checkpoint, newest)} if newest > done else None,
    )


def _batch_end(checkpoint: HadoopFiles, batch: int) -> Offsets:
    """Return the end offsets of a batch. Its file has a version, the stream's settings and a line for each source."""
    return from_json(json.loads(checkpoint.read(f"offsets/{batch}").splitlines()[2]))
