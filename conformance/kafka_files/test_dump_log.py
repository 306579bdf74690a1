"""Apache Kafka's DumpLogSegments reads every file that a broker process of ours has written, and finds the same in it.

The broker was written to by real clients, killed, and started again; the tool is asked in each of its ways.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_files.conftest import METADATA, STARTS, Written
from conformance.kafka_files.dumping import Dump, dump, fields
from conformance.kafka_files.scenario import TOPICS

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
ALSO_MADE = ("transactional", "shortened", "__transaction_state", "__consumer_offsets")
RECORD = re.compile(r"\| offset: .* payload: (.*)")


def partition_files(directory: Path, *suffixes: str) -> list[Path]:
    """The files of all partitions but that of the metadata, as far as there is something in them."""
    return [
        path
        for suffix in suffixes
        for path in directory.glob(f"*/*{suffix}")
        if path.parent.name != METADATA and path.stat().st_size
    ]


@pytest.fixture(scope="module")
def stopped(our_written: dict[str, Written]) -> Path:
    return our_written["stopped"].path


@pytest.fixture(scope="module")
def whole(stopped: Path) -> Dump:
    """All that the tool says of the partitions of the broker that was stopped."""
    return dump(partition_files(stopped, *SUFFIXES), "--print-data-log")


@pytest.fixture(scope="module")
def lines_of(whole: Dump) -> Callable[[str, str], list[str]]:
    """The lines about all files of a partition with a suffix."""

    def lines(partition: str, suffix: str) -> list[str]:
        files = sorted(file for file in whole.lines if file.parent.name == partition and file.suffix == suffix)
        return [line for file in files for line in whole.lines[file]]

    return lines


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_every_dumped_batch_is_valid_and_every_record_present(how: str, our_written: dict[str, Written]) -> None:
    path, seen = our_written[how]
    dumped = dump(partition_files(path, *SUFFIXES), "--deep-iteration")
    assert dumped.complaints == ""
    offsets = {f"{name}-{index}": [] for name, topic in seen.items() for index in range(len(topic.partitions))}
    for file in sorted(file for file in dumped.lines if file.suffix == ".log"):
        lines = dumped.lines[file]
        assert all(fields(line)["isvalid"] == "true" for line in lines if line.startswith("baseOffset"))
        records = [line for line in lines if line.startswith("| offset") and "endTxnMarker" not in line]
        offsets[file.parent.name] += [int(fields(line)["offset"]) for line in records]
    for name, topic in seen.items():
        for index, partition in enumerate(topic.partitions):
            kept = [offset for offset in offsets[f"{name}-{index}"] if offset >= partition.start_offset]
            assert kept == [record.offset for record in partition.records]


def test_the_dumped_batches_have_every_codec_and_both_idempotent_and_other_producers(whole: Dump) -> None:
    batches = [fields(line) for lines in whole.lines.values() for line in lines if line.startswith("baseOffset")]
    codecs = Counter(batch["compresscodec"] for batch in batches)
    assert set(codecs) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {batch["producerId"] == "-1" for batch in batches} == {True, False}


@pytest.mark.parametrize("name", ["keyed", "stamped"])  # whose keys and values are text
def test_dumped_keys_and_values_are_those_consumed(
    name: str, our_written: dict[str, Written], lines_of: Callable[[str, str], list[str]]
) -> None:
    (partition,) = our_written["stopped"].contents[name].partitions
    lines = (line for line in lines_of(f"{name}-0", ".log") if line.startswith("| offset"))
    assert [line.split(" headerKeys: [] ", 1)[1] for line in lines] == [
        " ".join(
            f"{what}: {data.decode()}"
            for what, data in (("key", record.key), ("payload", record.value))
            if data is not None
        )
        for record in partition.records
    ]


def test_dumped_indexes_are_valid_and_agree_with_the_log(
    stopped: Path, whole: Dump, lines_of: Callable[[str, str], list[str]]
) -> None:
    files = partition_files(stopped, ".index", ".timeindex")
    checked = dump(files, "--index-sanity-check")
    assert {len(lines) for lines in checked.lines.values()} == {1}
    assert all("passed sanity check" in line for lines in checked.lines.values() for line in lines)
    verified = dump(files, "--verify-index-only")
    assert [line for lines in verified.lines.values() for line in lines] == []
    assert (whole.complaints, checked.complaints, verified.complaints) == ("", "", "")
    assert len(lines_of("segments-0", ".index")) > 20
    assert len(lines_of("segments-0", ".timeindex")) > 20


def test_dumped_snapshots_contain_the_idempotent_producers(whole: Dump) -> None:
    newest = max(file for file in whole.lines if file.parent.name == "plain-0" and file.suffix == ".snapshot")
    producers = [fields(line) for line in whole.lines[newest]]
    assert len({producer["producerId"] for producer in producers}) == 5  # one a codec
    assert all(int(producer["lastSequence"]) > 0 for producer in producers)


def test_dumped_transaction_indexes_equal_those_of_kafka(
    our_written: dict[str, Written], kafka_written: dict[str, Written]
) -> None:
    def aborted(written: Written) -> list[list[tuple[str, ...]]]:
        dumped = dump(partition_files(written.path, ".txnindex"))
        assert dumped.complaints == ""
        entries = [[fields(line) for line in lines if line.startswith("version")] for lines in dumped.lines.values()]
        names = ("version", "firstOffset", "lastOffset", "lastStableOffset")
        return [[tuple(entry[name] for name in names) for entry in file] for file in entries]

    ours = aborted(our_written["stopped"])
    assert [len(file) for file in ours] == [3, 3]  # one a partition
    assert ours == aborted(our_written["killed"]) == aborted(kafka_written["stopped"])


def test_dumped_metadata_contains_all_changes(stopped: Path) -> None:
    dumped = dump((stopped / METADATA).glob("*.log"), "--cluster-metadata-decoder")
    assert dumped.complaints == ""
    (lines,) = dumped.lines.values()
    records: list[dict[str, Any]] = [json.loads(match[1]) for match in map(RECORD.match, lines) if match]
    kinds = Counter(record["type"] for record in records)
    topics = Counter(record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD")
    assert topics == Counter([*(topic.topic for topic in TOPICS), "gone", *ALSO_MADE])  # which was made twice
    assert kinds["REMOVE_TOPIC_RECORD"] == 1
    assert kinds["REGISTER_BROKER_RECORD"] == len([line for line in lines if "LeaderChange" in line]) == STARTS
    assert not [line for line in lines if "isvalid: false" in line or "could not be decoded" in line.lower()]
    configs = {record["data"]["name"] for record in records if record["type"] == "CONFIG_RECORD"}
    assert {"internal.segment.bytes", "cleanup.policy", "max.message.bytes"} <= configs


def test_metadata_of_a_killed_broker_is_dumped(our_written: dict[str, Written]) -> None:
    dumped = dump((our_written["killed"].path / METADATA).glob("*.log"), "--cluster-metadata-decoder")
    assert dumped.complaints == ""
