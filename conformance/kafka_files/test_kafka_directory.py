"""minibroker serves a directory that Apache Kafka 4.4 wrote, appends to it, and what both wrote is there afterwards.

Each byte of Kafka's files is explained, down to the fields of its own topics' records.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.kafka_files.conftest import METADATA, Brokers, Written, complaints, copied
from conformance.kafka_files.contents import Record, Topic, contents
from conformance.kafka_files.dumping import dump
from conformance.kafka_files.scenario import COMMITTED, append, committed_offsets
from conformance.spec import CODECS
from minibroker.protocol.explaining.parts import MOST_PARTS, ExplainedPart
from minibroker.storage.inspection.explained_files import explain_file
from minibroker.storage.inspection.inspected_files import identify_file

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
TOO_MANY = f"there are more than {MOST_PARTS:,} parts"
OWN_TOPICS = ("__consumer_offsets-", "__transaction_state-", METADATA)


@pytest.fixture(params=["stopped", "killed"])
def written(request: pytest.FixtureRequest, kafka_written: dict[str, Written], tmp_path: Path) -> Written:
    """A copy of what Kafka has written, and has been left in one of two ways."""
    found = kafka_written[request.param]
    return Written(copied(found.path, tmp_path / "logs"), found.contents)


def all_records(found: dict[str, Topic]) -> dict[tuple[str, int], tuple[Record, ...]]:
    return {
        (name, index): partition.records
        for name, topic in found.items()
        for index, partition in enumerate(topic.partitions)
    }


def test_the_directory_of_kafka_contains_what_the_other_tests_rely_on(kafka_written: dict[str, Written]) -> None:
    path, found = kafka_written["stopped"]
    assert {"__consumer_offsets", "__transaction_state", "transactional", "gone"} <= set(found)
    assert found["shortened"].partitions[0].start_offset == 255
    assert found["gone"].partitions[0].end_offset == 0
    assert len(list((path / "segments-0").glob("*.log"))) > 2
    assert len(list((path / METADATA).glob("*.log"))) > 1
    assert len(list((path / METADATA).glob("*.checkpoint"))) > 1
    assert len(list((path / "transactional-0").glob("*.txnindex"))) == 1
    assert all(len(partition.records) > len(partition.committed) > 0 for partition in found["transactional"].partitions)


def test_a_directory_of_kafka_is_served_completely(written: Written, brokers: Brokers) -> None:
    with brokers.minibroker(written.path) as broker:
        assert contents(broker.bootstrap_servers) == written.contents
        assert committed_offsets(broker.bootstrap_servers) == COMMITTED
        assert broker.stop() == 0
        assert complaints(broker) == []


def test_records_appended_to_a_directory_of_kafka_follow_the_existing_ones(written: Written, brokers: Brokers) -> None:
    with brokers.minibroker(written.path) as broker:
        for codec in CODECS:
            append(broker.bootstrap_servers, codec, idempotent=True)
        longer = contents(broker.bootstrap_servers)
        broker.restart()
        assert contents(broker.bootstrap_servers) == longer
        broker.kill()
        broker.start()
        assert contents(broker.bootstrap_servers) == longer
    before, after = all_records(written.contents), all_records(longer)
    grown = {key: records for key, records in after.items() if records != before[key]}
    assert {topic for topic, _ in grown} == {"plain", "segments", "keyed", "stamped", "gone"}
    for key, records in grown.items():
        count = len(before[key])
        assert records[:count] == before[key]
        old_epoch = max((record.leader_epoch for record in before[key]), default=-1)
        assert {record.leader_epoch > old_epoch for record in records[count:]} == {True}


def test_kafkas_tool_finds_no_fault_in_files_that_both_brokers_wrote(written: Written, brokers: Brokers) -> None:
    with brokers.minibroker(written.path) as broker:
        append(broker.bootstrap_servers, "zstd", idempotent=True)
        assert broker.stop() == 0
    files = [path for path in written.path.glob("*/*") if path.suffix in SUFFIXES]
    metadata = [path for path in files if path.parent.name == METADATA]
    partitions = [path for path in files if path.parent.name != METADATA]
    for dumped in (dump(partitions, "--deep-iteration"), dump(metadata, "--cluster-metadata-decoder")):
        assert dumped.complaints == ""
        assert not [line for lines in dumped.lines.values() for line in lines if "isvalid: false" in line]


@pytest.fixture(scope="module")
def explained(kafka_written: dict[str, Written]) -> dict[Path, ExplainedPart]:
    """The files of a Kafka that was stopped, by their paths in its directory."""
    directory = kafka_written["stopped"].path
    found: dict[Path, ExplainedPart] = {}
    for path in sorted(each for each in directory.glob("**/*") if each.is_file() and each.stat().st_size):
        inspected = identify_file(str(path))
        if inspected is not None:
            found[path.relative_to(directory)] = explain_file(path.read_bytes(), inspected)
    return found


def values_of_own_topics(explained: dict[Path, ExplainedPart]) -> Iterator[ExplainedPart]:
    """Yield the values of all records in the segments and snapshots of Kafka's own topics."""
    for path, whole in explained.items():
        if path.parts[0].startswith(OWN_TOPICS) and path.suffix in (".log", ".checkpoint"):
            records = (part for _, part in whole.iterate_parts() if part.type == "Record")
            yield from (part for record in records for part in record.parts if part.name == "value")


def test_all_files_of_kafka_are_readable(explained: dict[Path, ExplainedPart]) -> None:
    suffixes = {path.suffix for path in explained}
    assert suffixes >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
    problems = [
        (path, part.name, part.problem) for path, whole in explained.items() for part in whole.iterate_problems()
    ]
    assert [each for each in problems if each[2] != TOO_MANY] == []


def test_all_records_of_kafkas_internal_topics_are_explained(explained: dict[Path, ExplainedPart]) -> None:
    found = list(values_of_own_topics(explained))
    assert [each for each in found if each.value is not None] == []  # none stays bytes
    kinds = {each.meaning.split(" version ")[0] for each in found}
    assert kinds >= {"OffsetCommitValue", "TransactionLogValue", "SnapshotHeaderRecord", "LeaderChangeMessage"}
    assert kinds >= {"TopicRecord", "PartitionRecord", "ConfigRecord", "UserScramCredentialRecord"}
