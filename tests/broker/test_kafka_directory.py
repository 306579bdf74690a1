"""A data directory that Apache Kafka 4.3 or 4.4 wrote (`data/kafka-4.4.zip`) is served as Kafka itself served it.

Kafka stopped in order: topics of all codecs and a deleted one, transactions, deleted records, credentials and ACLs. Its
metadata log begins behind a snapshot. What clients saw is in `data/kafka-4.4.json`; `conformance/kafka_files/golden.py`
makes both.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from base64 import b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.storage.log import Log
from tests.broker.harness import Harness

READ_COMMITTED = 1
DATA = Path(__file__).parent / "data"
METADATA_VERSIONS = {"4.3": 30, "4.4": 33}  # each release's own, by its level


def digest(records: Iterable[tuple[Any, ...]]) -> str:
    """A digest of records as (offset, leader epoch, timestamp, key, value, headers)."""
    sha = hashlib.sha256()
    for record in records:
        sha.update(repr(record).encode())
    return sha.hexdigest()


@pytest.fixture(params=METADATA_VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    """The release of Kafka that wrote the directory."""
    written_by: str = request.param
    return written_by


@pytest.fixture
def expected(release: str) -> dict[str, Any]:
    """What clients saw of its topics."""
    topics: dict[str, Any] = json.loads((DATA / f"kafka-{release}.json").read_text())
    return topics


@pytest.fixture
def kafka(tmp_path: Path, release: str) -> Iterator[Harness]:
    """The broker on a copy of the directory."""
    with zipfile.ZipFile(DATA / f"kafka-{release}.zip") as archive:
        archive.extractall(tmp_path)
    with Harness(tmp_path) as harness:
        yield harness


def records_in(log: Log) -> Iterator[tuple[Any, ...]]:
    offset = log.log_start_offset
    while (region := log.read(offset, 1 << 20)) is not None:
        data = region.read()
        for position, header in iterate_batches(data):
            if not header.is_control:
                for record in iterate_records_of_batch(data[position : position + header.size_bytes]):
                    if record.offset >= log.log_start_offset:
                        headers = tuple(tuple(header) for header in record.headers)
                        epoch = header.partition_leader_epoch
                        yield (record.offset, epoch, record.timestamp, record.key, record.value, headers)
        offset = region.next_offset


def described(harness: Harness) -> dict[str, Any]:
    """Return what the file beside the directory says, as this broker has it."""
    found = {}
    for name, topic in harness.cluster.image.topics.items():
        partitions = []
        for partition in topic.partitions:
            all_records = list(records_in(partition.log))
            partitions.append(
                {
                    "start_offset": partition.log.log_start_offset,
                    "end_offset": partition.log.log_end_offset,
                    "records": len(all_records),
                    "digest": digest(all_records),
                }
            )
        # librdkafka, which was asked, prints ids in base64 with + and / where Kafka has - and _
        topic_id = b64encode(topic.topic_id).decode().rstrip("=")
        found[name] = {"topic_id": topic_id, "configs": topic.overrides, "partitions": partitions}
    return found


def fetched(harness: Harness, topic_id: bytes, isolation_level: int) -> Any:
    """Return the answer to a fetch of the first partition from its start."""
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    request = FetchRequest(max_bytes=1 << 20, isolation_level=isolation_level, topics=[topic])
    return harness.request(request).responses[0].partitions[0]


def test_all_topics_of_kafka_have_their_ids_configs_offsets_and_records(
    kafka: Harness, expected: dict[str, Any]
) -> None:
    assert described(kafka) == expected


def test_leader_epochs_continue_those_of_kafka(kafka: Harness) -> None:
    assert kafka.cluster.metadata_log.leader_epoch == 2
    for topic in kafka.cluster.image.topics.values():
        for partition in topic.partitions:
            # created in epoch 0, left without a leader by the controlled shutdown, and led by us
            assert (partition.leader_id, partition.leader_epoch, partition.isr) == (1, 2, [1])
            assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_records_that_are_only_in_the_snapshot_are_loaded(kafka: Harness, release: str) -> None:
    log = kafka.cluster.metadata_log.storage
    assert log.log_start_offset > 0
    image = kafka.cluster.image
    assert image.features["metadata.version"] == METADATA_VERSIONS[release]
    assert image.features["transaction.version"] == 2
    assert image.get_configs(4, "") == {"min.insync.replicas": "1"}
    assert image.next_producer_id >= 1000
    assert not image.brokers[1].fenced


def test_credentials_and_acls_of_kafka_stay_in_the_metadata(kafka: Harness) -> None:
    kafka.restart()
    seen: list[Message] = []
    kafka.cluster.metadata_log.replay_all_records(seen.append)
    kinds = {type(record) for record in seen}
    assert {records.UserScramCredentialRecord, records.AccessControlEntryRecord} <= kinds


def test_read_committed_fetches_return_kafkas_aborted_transactions(kafka: Harness) -> None:
    answer = fetched(kafka, kafka.cluster.image.topics["transactional"].topic_id, READ_COMMITTED)
    # Every third of nine transactions was aborted; each has 15 records and a marker in this partition.
    assert [one.first_offset for one in answer.aborted_transactions] == [0, 48, 96]
    assert {one.producer_id for one in answer.aborted_transactions} <= set(
        dict(kafka.partition("transactional").log.producers.iterate_entries())
    )
    assert fetched(kafka, kafka.cluster.image.topics["plain"].topic_id, READ_COMMITTED).aborted_transactions == []


def test_topics_deleted_by_kafka_do_not_exist(kafka: Harness) -> None:
    names = [path.name for path in (kafka.directory / "data").rglob("*")]
    assert not [name for name in names if name.endswith(("-delete", ".deleted", "-stray"))]


@pytest.mark.parametrize("crash", [False, True])
def test_appended_records_follow_those_of_kafka_even_after_a_restart(
    kafka: Harness, expected: dict[str, Any], crash: bool
) -> None:
    end_offset = expected["plain"]["partitions"][0]["end_offset"]
    assert kafka.produce("plain", "a", "b") == end_offset
    kafka.create_topic("new")
    kafka.restart(crash=crash)
    assert kafka.produce("plain", "c") == end_offset + 2
    assert kafka.produce("new", "d") == 0
    *old, a, b, c = records_in(kafka.partition("plain").log)
    assert digest(old) == expected["plain"]["partitions"][0]["digest"]
    assert [value for *_, value, _ in (a, b, c)] == [b"a", b"b", b"c"]
    assert [epoch for _, epoch, *_ in (a, b, c)] == ([2, 2, 3] if crash else [2, 2, 2])


def test_producers_of_kafka_continue_their_sequences(kafka: Harness) -> None:
    producers = dict(kafka.partition("plain").log.producers.iterate_entries())
    assert len(producers) == 5  # one a codec, each with three records here
    assert {entry.batches[-1][1] for entry in producers.values()} == {2}
    assert kafka.cluster.controller.allocate_producer_id() not in producers
