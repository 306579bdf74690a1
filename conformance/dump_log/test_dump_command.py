"""`minibroker dump` and Kafka's DumpLogSegments say the same of a directory that Apache Kafka wrote, and find no fault.

What the words of `minibroker dump` are is tested with the command itself; here it is what it reads.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.kafka_reference import running_kafka
from conformance.kafka_tools import run_tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"
TOPIC = "orders"
CONFIGS = {"segment.bytes": "1048576", "index.interval.bytes": "500"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of Kafka's: all codecs, transactions, committed and aborted, offsets, several segments."""
    path = tmp_path_factory.mktemp("kafka")
    with running_kafka(path) as kafka:
        client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        admin = AdminClient(client)
        admin.create_topics([NewTopic(TOPIC, 2, 1, config=CONFIGS)])[TOPIC].result()
        for codec in CODECS:
            write(Producer({**client, "compression.type": codec, "enable.idempotence": True}), 12_000)
        transact(Producer({**client, "transactional.id": "teller"}))
        commit(Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"}))
        kafka.stop()
    return path / "logs"


def write(producer: Producer, count: int) -> None:
    for number in range(count):
        producer.produce(TOPIC, b"value %d %s" % (number, b"x" * 150), b"key %d" % (number % 5), headers=[("h", b"1")])
        producer.poll(0)
    producer.flush()


def transact(producer: Producer) -> None:
    producer.init_transactions(PATIENCE_S)
    for number in range(6):
        producer.begin_transaction()
        write(producer, 50)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def commit(consumer: Consumer) -> None:
    consumer.subscribe([TOPIC])
    assert consumer.poll(PATIENCE_S) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def ours(*paths: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "minibroker", "dump", "--json", "--verify", *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, [line for line in run.stdout.splitlines() if '"type": "damage"' in line]
    return map(json.loads, run.stdout.splitlines())


def theirs(path: Path) -> list[dict[str, str]]:
    """The `name: value` pairs of each line that Kafka's tool prints."""
    output = run_tool(TOOL, "--files", str(path), "--deep-iteration").out
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in output.splitlines()]


def files(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob(f"{TOPIC}-*/*{suffix}"))
    assert found
    return found


def test_dump_reports_no_damage_in_files_of_kafka(directory: Path) -> None:
    found = list(ours(directory))
    kinds = {each["kind"] for each in found if each["type"] == "file"}
    assert {"log", "offset_index", "time_index", "transaction_index", "producer_snapshot", "offsets"} <= kinds
    notes = [each for each in found if each["type"] == "note"]
    assert not [each for each in found if each["type"] == "damage"]
    assert all(
        "__cluster_metadata" in each["path"] for each in notes
    )  # Kafka 4.4 does not cut their indexes at the end
    said = {each["value_says"]["name"] for each in found if "value_says" in each}
    assert {"ABORT", "COMMIT", "LEADER_CHANGE", "TopicRecord", "PartitionRecord"} <= said
    assert {"OffsetCommitValue", "GroupMetadataValue", "TransactionLogValue"} <= said


def test_dumped_batches_and_records_equal_those_of_kafkas_tool(directory: Path) -> None:
    logs = files(directory, ".log")
    assert len(logs) > 2
    for path in logs:
        expected = [
            (
                int(line["position"]),
                int(line["size"]),
                int(line["crc"]),
                line["compresscodec"],
                int(line["baseSequence"]),
            )
            for line in theirs(path)
            if "baseOffset" in line
        ]
        found = list(ours(path))
        batches = [each for each in found if each["type"] == "batch"]
        assert [
            (each["position"], each["size_bytes"], each["crc"], each["codec"], each["base_sequence"])
            for each in batches
        ] == expected
        offsets = [int(line["offset"]) for line in theirs(path) if "keySize" in line]
        assert [each["offset"] for each in found if each["type"] == "record"] == offsets


@pytest.mark.parametrize(
    ("suffix", "names"),
    [
        (".index", {"offset": "offset", "log_position": "position"}),
        (".timeindex", {"timestamp": "timestamp", "offset": "offset"}),
        (".txnindex", {"producer_id": "producerId", "first_offset": "firstOffset", "last_offset": "lastOffset"}),
        (".snapshot", {"producer_id": "producerId", "last_sequence": "lastSequence", "last_offset": "lastOffset"}),
    ],
)
def test_dumped_index_entries_equal_those_of_kafkas_tool(directory: Path, suffix: str, names: dict[str, str]) -> None:
    for path in files(directory, suffix):
        expected = [
            {name: int(line[kafkas]) for name, kafkas in names.items()}
            for line in theirs(path)
            if set(names.values()) <= set(line)
        ]
        found = [each for each in ours(path) if each["type"] == "entry"]
        assert [{name: each[name] for name in names} for each in found] == expected, path
