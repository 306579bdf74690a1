"""How far a stream is, read from a checkpoint as Spark writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minibroker.pipeline.jobs.stream_progress import Done, Reached, StreamProgress, distance, reached
from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.options import parse_options
from tests.pipeline.jobs.logs import records, write_log

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)


class Checkpoint:
    """A checkpoint's files, as `HadoopFiles` gives them: batches by their end offsets, and how many are done."""

    def __init__(self, batches: list[str], done: int) -> None:
        self.batches = batches
        self.done = done

    def names(self, path: str) -> list[str]:
        count = len(self.batches) if path == "offsets" else self.done
        return [".0.crc", *(str(number) for number in range(count))]

    def read(self, path: str) -> str:
        return f'v1\n{{"batchWatermarkMs":0}}\n{self.batches[int(path.removeprefix("offsets/"))]}\n'


def test_a_range_without_a_start_or_before_it_has_no_progress() -> None:
    assert distance({FIRST: 3}, {FIRST: 10, SECOND: 5}) == 7
    assert distance({FIRST: 3}, {FIRST: 1}) == 0


def test_a_stream_before_its_first_batch_is_at_its_start() -> None:
    checkpoint: Any = Checkpoint([], 0)
    assert reached(checkpoint, {FIRST: 2}) == Reached({FIRST: 2}, None)


def test_a_planned_unfinished_batch_is_in_progress() -> None:
    checkpoint: Any = Checkpoint(['{"t":{"0":5}}', '{"t":{"0":9,"1":4}}'], 1)
    assert reached(checkpoint, {FIRST: 2, SECOND: 1}) == Reached({FIRST: 5, SECOND: 1}, {FIRST: 9, SECOND: 4})


def test_nothing_is_in_progress_after_the_last_batch() -> None:
    checkpoint: Any = Checkpoint(['{"t":{"0":5}}'], 1)
    assert reached(checkpoint, {}) == Reached({FIRST: 5}, None)


def test_a_runs_progress_starts_where_it_began(tmp_path: Path) -> None:
    write_log(tmp_path, "t", 0, records(9))
    options = {"path": str(tmp_path), "subscribe": "t", "startingOffsets": "earliest"}
    progress = StreamProgress(parse_options(options, "records", "stream"))
    assert (progress.begin, progress.end) == ({FIRST: 0}, {FIRST: 9})
    checkpoint: Any = Checkpoint(['{"t":{"0":4}}'], 1)
    assert progress.now(checkpoint, 0.0) == Done(0, 5)
    checkpoint = Checkpoint(['{"t":{"0":4}}', '{"t":{"0":8}}'], 1)
    assert progress.now(checkpoint, 0.5) == Done(2, 5)
    checkpoint = Checkpoint(['{"t":{"0":4}}', '{"t":{"0":8}}', '{"t":{"0":14}}'], 2)
    assert progress.now(checkpoint, 0.5) == Done(7, 10)  # more has come meanwhile
