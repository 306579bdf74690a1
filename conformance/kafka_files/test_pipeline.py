"""The pipeline reads directories that Apache Kafka, and minibroker, have left as the brokers' own readers saw them.

Records are held against what consumers got, batches against what Kafka's DumpLogSegments prints. No broker is running.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from conformance.kafka_files.conftest import METADATA, Written
from conformance.kafka_files.contents import Partition
from conformance.kafka_files.dumping import dump, fields
from minibroker.pipeline.directory.directory_source import DirectorySource
from minibroker.pipeline.directory.segment_files import OpenSegment, list_segments
from minibroker.pipeline.log_source import Bounds, OffsetRange, ReadRequest, TopicPartition, TopicSelection

RECORDS = ReadRequest("records", ("offset", "key", "value", "timestamp", "timestampType", "headers"), verify_crc=True)
DIRECTORIES = [(by, how) for by in ("kafka", "minibroker") for how in ("stopped", "killed")]
# The batches table's column for each of the tool's names.
COLUMNS = {
    "baseOffset": "baseOffset",
    "lastOffset": "lastOffset",
    "count": "recordCount",
    "baseSequence": "baseSequence",
    "producerId": "producerId",
    "producerEpoch": "producerEpoch",
    "partitionLeaderEpoch": "partitionLeaderEpoch",
    "isTransactional": "isTransactional",
    "isControl": "isControl",
    "position": "position",
    "size": "sizeInBytes",
    "magic": "magic",
    "compresscodec": "codec",
    "crc": "crc",
    "isvalid": "crcValid",
}


@pytest.fixture(params=DIRECTORIES, ids=" ".join)
def directory(request: pytest.FixtureRequest) -> Written:
    """A directory that a broker was stopped in, or killed."""
    by, how = request.param
    return request.getfixturevalue("kafka_written" if by == "kafka" else "our_written")[how]  # type: ignore[no-any-return]


def partitions_of(written: Written) -> dict[TopicPartition, Partition]:
    """Return what consumers saw."""
    return {
        TopicPartition(name, index): partition
        for name, topic in written.contents.items()
        for index, partition in enumerate(topic.partitions)
    }


def rows(source: DirectorySource, partition: TopicPartition, request: ReadRequest, splits: int) -> list[dict[str, Any]]:
    """All of a partition."""
    offsets = OffsetRange(partition, *source.find_bounds([partition])[partition])
    found = source.make_splits([offsets], splits)
    return [row for split in found for table in source.read_split(split, request) for row in table.to_pylist()]


def source_of(written: Written, topic: str, **options: Any) -> DirectorySource:
    return DirectorySource(str(written.path), TopicSelection(topics=(topic,)), **options)


def test_the_pipeline_lists_all_partitions_of_kafka_but_internal_ones(directory: Written) -> None:
    found = DirectorySource(str(directory.path)).list_partitions()
    assert set(found) == {each for each in partitions_of(directory) if not each.topic.startswith("__")}
    assert DirectorySource(str(directory.path / METADATA)).list_partitions() == [("__cluster_metadata", 0)]


@pytest.mark.parametrize("splits", [0, 15])
def test_the_pipeline_reads_each_record_as_a_consumer_received_it(directory: Written, splits: int) -> None:
    for partition, seen in partitions_of(directory).items():
        source = source_of(directory, partition.topic)
        assert source.find_bounds([partition])[partition] == Bounds(seen.start_offset, seen.end_offset), partition
        found = [
            (
                row["offset"],
                (row["timestampType"] + 1, round(row["timestamp"].timestamp() * 1000)),  # librdkafka counts from 1
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            )
            for row in rows(source, partition, RECORDS, splits)
        ]
        expected = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in seen.records]
        assert found == expected, partition


def test_the_pipeline_reads_the_committed_records_of_a_read_committed_consumer(directory: Written) -> None:
    for partition, seen in partitions_of(directory).items():
        source = source_of(directory, partition.topic, isolation_level="read_committed")
        found = rows(source, partition, RECORDS, 5)
        assert [row["offset"] for row in found] == list(seen.committed), partition


def test_the_pipeline_reads_each_batch_as_kafkas_tool_prints_it(directory: Written) -> None:
    logs = [path for path in directory.path.glob("*/*.log") if path.parent.name != METADATA and path.stat().st_size]
    printed = dump(logs).lines
    request = ReadRequest("batches", ("segment", *COLUMNS.values()), verify_crc=True)
    for partition, seen in partitions_of(directory).items():
        path = directory.path / f"{partition.topic}-{partition.partition}"
        lines = {
            file.name: [fields(line) for line in text if line.startswith("baseOffset")]
            for file, text in printed.items()
            if file.parent == path
        }
        expected = [
            (name, *(each[printed_name] for printed_name in COLUMNS))
            for name in sorted(lines)
            for each in lines[name]
            if int(each["lastOffset"]) >= seen.start_offset
        ]
        found = rows(source_of(directory, partition.topic), partition, request, 7)
        assert [tuple(map(as_printed, row.values())) for row in found] == expected, partition
    assert sum(map(len, printed.values())) > 100


def as_printed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_pipeline_finds_the_first_offset_at_or_after_a_timestamp(directory: Written) -> None:
    for partition, seen in partitions_of(directory).items():
        source = source_of(directory, partition.topic)
        times = sorted({record.timestamp[1] for record in seen.records})
        for timestamp_ms in (0, *times[::23], *(time + 1 for time in times[-2:])):
            expected = next((each.offset for each in seen.records if each.timestamp[1] >= timestamp_ms), None)
            found = source.find_offsets_at({partition: timestamp_ms})[partition]
            if partition.topic == "transactional" and found != expected:  # a marker, which has a time, too
                assert found is not None
                assert found not in {each.offset for each in seen.records}
                assert expected is None or found < expected
            else:
                assert found == expected, partition


def test_the_pipeline_finds_a_batch_at_every_index_entry_of_kafka(directory: Written) -> None:
    counts = {}
    for segment in list_segments(str(directory.path / "segments-0")):
        with closing(OpenSegment(segment)) as opened:
            entries = list(zip(*opened._indexed_offsets_and_positions, strict=True))
            marks = [opened._find_indexed_boundary(number + 1, opened.start) for number in range(len(entries))]
            assert [(mark.next_offset - 1, mark.last_position) for mark in marks] == entries
            counts[segment.base_offset] = len(entries)
    assert sum(counts.values()) > 30
    assert all(counts.values())
