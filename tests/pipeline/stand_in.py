"""A log in memory, as planning and Spark's classes see logs: its records are offsets and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from minibroker.pipeline.log_source import Bounds, OffsetRange, ReadRequest, Split, TopicPartition, TopicSelection
from minibroker.pipeline.planning import divide_large_ranges
from minibroker.pipeline.schemas import RECORDS, choose_columns


class StandIn:
    """Partitions with an earliest and a latest offset; a record's time in ms is its offset times 10."""

    def __init__(self, logs: Mapping[str, tuple[int, int]], named: tuple[str, ...] = ()) -> None:
        self.selection = TopicSelection(named, None if named else ".")
        self.logs = {partition(name): Bounds(*bounds) for name, bounds in logs.items()}
        self.closed = 0

    def list_partitions(self, *, missing_ok: bool = False) -> list[TopicPartition]:
        return self.selection.choose_partitions(self.logs, missing_ok=missing_ok)

    def find_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {each: self.logs[each] for each in partitions}

    def find_offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = {}
        for each, time_ms in timestamps_ms.items():
            earliest, latest = self.logs[each]
            offset = max(earliest, -(-time_ms // 10))
            found[each] = offset if offset < latest else None
        return found

    def make_splits(self, ranges: Sequence[OffsetRange], min_splits: int = 0) -> list[Split]:
        return [Split(each) for each in divide_large_ranges(ranges, min_splits)]

    def read_split(self, split: Split, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        (topic, number), start, end = split.offsets
        offsets = range(start, end)
        columns = {
            "topic": [topic] * len(offsets),
            "partition": [number] * len(offsets),
            "offset": offsets,
            "timestamp": [offset * 10_000 for offset in offsets],
        }
        schema = choose_columns(RECORDS, request.columns)
        empty = [None] * len(offsets)
        yield pa.record_batch(
            [pa.array(columns.get(name, empty), schema.field(name).type) for name in schema.names], schema
        )

    def close(self) -> None:
        self.closed += 1


def partition(name: str) -> TopicPartition:
    """`orders-0` as a partition."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def span(name: str, start: int, end: int) -> OffsetRange:
    """A range of offsets of `orders-0`."""
    return OffsetRange(partition(name), start, end)
