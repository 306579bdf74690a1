"""From options to rows of a real log directory, without Spark: each record that is asked for is given once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.schemas import RECORDS, choose_columns
from minibroker.pipeline.sources import RecordsSource
from minibroker.pipeline.sources.tables import BatchReader, StreamReader
from minibroker.protocol.records.compression import Compression
from tests.pipeline.directory.support import Writer, fill, finish, log_in, written

ORDERS, VISITS = TopicPartition("orders", 0), TopicPartition("visits", 4)
SCHEMA = from_arrow_schema(choose_columns(RECORDS, ["topic", "partition", "offset"]))
Location = tuple[str, int, int]
LOG_END = 120
OFFSETS = st.integers(0, LOG_END)
FINENESS = st.fixed_dictionaries(
    {}, optional={"minPartitions": st.integers(1, 20), "maxRecordsPerPartition": st.integers(1, 60)}
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logs of 120 offsets: of formats 1 and 2, compressed or not, one with transactions."""
    directory = tmp_path_factory.mktemp("logs")
    orders = log_in(directory, ORDERS)
    fill(orders, 20)
    fill(orders, 10, magic=1, codec=Compression.GZIP)
    fill(orders, 10, codec=Compression.ZSTD)
    finish(orders)
    visits = log_in(directory, VISITS)
    writer = Writer(visits, 7)
    for number in range(24):
        writer.write(4)
        writer.end(committed=number % 3 > 0)
    finish(visits)
    return directory


def source(directory: Path, **options: object) -> RecordsSource:
    given = {"path": str(directory), "subscribePattern": ".", **options}
    return RecordsSource({name.lower(): str(value) for name, value in given.items()})


def read(reader: BatchReader | StreamReader, partitions: Iterable[InputPartition]) -> list[Location]:
    copies = [pickle.loads(pickle.dumps((reader, partition))) for partition in partitions]
    rows = [row for copy, partition in copies for batch in copy.read(partition) for row in batch.to_pylist()]
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def expected(directory: Path, ranges: dict[TopicPartition, tuple[int, int]]) -> list[Location]:
    return [
        (*partition, row.offset)
        for partition, (start, end) in sorted(ranges.items())
        for row in written(directory / f"{partition.topic}-{partition.partition}")
        if start <= row.offset < end
    ]


@given(st.lists(OFFSETS, min_size=2, max_size=2), st.lists(OFFSETS, min_size=2, max_size=2), FINENESS)
def test_a_batch_query_returns_the_rows_between_its_offsets(
    directory: Path, orders: list[int], visits: list[int], fineness: dict[str, int]
) -> None:
    ranges = {ORDERS: (min(orders), max(orders)), VISITS: (min(visits), max(visits))}
    starting, ending = (
        json.dumps({each.topic: {each.partition: pair[edge]} for each, pair in ranges.items()}) for edge in (0, 1)
    )
    reader = source(directory, startingOffsets=starting, endingOffsets=ending, **fineness).reader(SCHEMA)
    assert read(reader, reader.partitions()) == expected(directory, ranges)


@given(st.integers(1, 300), FINENESS)
def test_a_stream_with_a_limit_per_batch_returns_all_rows(
    directory: Path, limit: int, fineness: dict[str, int]
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit, **fineness}
    reader = source(directory, **options).streamReader(SCHEMA)
    start, rows = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows += read(reader, reader.partitions(start, end))
        start = end
    assert sorted(rows) == expected(directory, {ORDERS: (0, LOG_END), VISITS: (0, LOG_END)})
    reader.stop()


def test_only_committed_records_of_transactions_are_read(directory: Path) -> None:
    reader = source(directory, **{"isolation.level": "read_committed"}).reader(SCHEMA)
    found = {offset for topic, _, offset in read(reader, reader.partitions()) if topic == "visits"}
    assert found == {number * 5 + each for number in range(24) if number % 3 > 0 for each in range(4)}
