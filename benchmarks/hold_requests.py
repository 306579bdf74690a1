"""The requests of the rows in `hold_rows.py`, and the set-ups that they need, by ordinary requests in bulk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import wire
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import ListGroupsRequest
from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from minibroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from programs import Failed
from servers import Server

TIMEOUT_MS = 600_000
TOPIC, BROKER = 2, 4  # types of resources
READ_COMMITTED = 1
MANY = 500  # topics or partitions in one request of a set-up
CHECKPOINT_S = 30.0
INIT_PRODUCER_VERSION = 4
ADD_PARTITIONS_VERSION = 3
TRANSACTION_PRODUCE_VERSION = 9
OPEN_ID = "open"  # a transactional id whose transaction stays open


# --- requests ---


def create_topics(names: Sequence[str], partitions: int = 1, *, validate_only: bool = False) -> bytes:
    """A frame that creates topics of one replica."""
    topic = CreateTopicsRequest.CreatableTopic
    topics = [topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return wire.frame(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only), 7)


def delete_topics(names: Sequence[str]) -> bytes:
    """A frame that deletes topics by name."""
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    return wire.frame(DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 6)


def metadata(names: Sequence[str]) -> bytes:
    """A frame that asks for topics, and has them created."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return wire.frame(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)


def delete_records(topic: str, partitions: int) -> bytes:
    """A frame that deletes all records of the first partitions."""
    asked = DeleteRecordsRequest.DeleteRecordsTopic
    each = [asked.DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(partitions)]
    return wire.frame(DeleteRecordsRequest(topics=[asked(name=topic, partitions=each)], timeout_ms=TIMEOUT_MS), 2)


def write_markers(topic: str, partitions: int, producer: int) -> bytes:
    """A frame that commits, as a coordinator does, for a producer in the first partitions."""
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name=topic, partition_indexes=list(range(partitions)))]
    made = marker(producer_id=producer, producer_epoch=0, transaction_result=True, topics=topics)
    return wire.frame(WriteTxnMarkersRequest(markers=[made]), 1)


def describe_configs(kind: int, names: Sequence[str], *, documentation: bool = False) -> bytes:
    """A frame that asks for all configs of resources."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    return wire.frame(DescribeConfigsRequest(resources=asked, include_documentation=documentation), 4)


def fetch_offsets(group: str, times: int) -> bytes:
    """A frame that names one group again and again, and asks for all that it has."""
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
    return wire.frame(OffsetFetchRequest(groups=[asked] * times), 8)


def list_groups() -> bytes:
    """A frame that asks for all groups."""
    return wire.frame(ListGroupsRequest(), 5)


def list_transactions() -> bytes:
    """A frame that asks for all transactional ids."""
    return wire.frame(ListTransactionsRequest(), 2)


def describe_producers(topic: str) -> bytes:
    """A frame that asks for the producers of partition 0."""
    return wire.frame(
        DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]), 0
    )


def produce(topic: str, batches: Sequence[bytes], *, client_id: str = wire.CLIENT_ID) -> bytes:
    """A frame that appends a batch to each of the first partitions."""
    data = ProduceRequest.TopicProduceData
    written = [data.PartitionProduceData(index=index, records=memoryview(batch)) for index, batch in enumerate(batches)]
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data(name=topic, partition_data=written)])
    return wire.frame(request, wire.PRODUCE_VERSION, client_id=client_id)


def fetch_committed(topic: str, entries: int, offset: int) -> bytes:
    """A frame that names partition 0 again and again, for readers of what is committed, and waits."""
    asked = FetchRequest.FetchTopic
    partition = asked.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        isolation_level=READ_COMMITTED,
        topics=[asked(topic=topic, partitions=[partition] * entries)],
    )
    return wire.frame(request, wire.FETCH_VERSION)


def session_of_unknown(partitions: int) -> bytes:
    """A frame that begins a fetch session of partitions that there are not."""
    asked = FetchRequest.FetchTopic
    each = [asked.FetchPartition(partition=index, partition_max_bytes=1) for index in range(partitions)]
    request = FetchRequest(session_epoch=0, topics=[asked(topic="unknown", partitions=each)])
    return wire.frame(request, wire.FETCH_VERSION)


# --- set-ups ---


def names(prefix: str, count: int) -> list[str]:
    """`count` names that begin alike."""
    return [f"{prefix}{number}" for number in range(count)]


def make_topics(server: Server, prefix: str, count: int) -> None:
    """Create topics of one partition."""
    wanted = names(prefix, count)
    with wire.Client(server, TIMEOUT_MS) as client:
        client.exchange([create_topics(some) for some in _some(wanted)], None, at_once=1)


def make_topic(server: Server, name: str, partitions: int, records: bool = False) -> None:
    """Create a topic, with a record in each partition if that is wanted."""
    with wire.Client(server, TIMEOUT_MS) as client:
        client.exchange([create_topics([name], partitions)], None)
        client.wait_for_leader(name)
        if records:
            batch = wire.batch([b"value"])
            client.exchange([wire.produce_request(name, batch, index) for index in range(partitions)], None)


def await_checkpoints(server: Server) -> None:
    """Wait until the broker has noted where its logs are on the disk, and where they begin. Raises Failed."""
    folder = Path(_log_directory(server))
    give_up_at = time.monotonic() + CHECKPOINT_S
    wanted = [folder / "recovery-point-offset-checkpoint", folder / "replication-offset-checkpoint"]
    while not all(_entries(file) for file in wanted):
        if time.monotonic() > give_up_at:
            raise Failed("no checkpoint was written")
        time.sleep(0.1)


def _entries(file: Path) -> int:
    try:
        return int(file.read_text().splitlines()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _log_directory(server: Server) -> str:
    words = Path(f"/proc/{server.pid}/cmdline").read_bytes().decode().split("\0")
    (found,) = (word.removeprefix("log.dirs=") for word in words if word.startswith("log.dirs="))
    return os.fspath(found)


def commit_by_groups(server: Server, topic: str, groups: int) -> None:
    """Commit an offset of partition 0 for each of `groups` groups."""
    with wire.Client(server) as client:
        client.wait_for_coordinator("group")
        client.exchange([wire.commit_request(f"group{number}", topic, 1) for number in range(groups)], None)


def commit_offsets(server: Server, group: str, topic: str, partitions: int) -> None:
    """Commit an offset of each of the first `partitions` partitions for one group."""
    with wire.Client(server) as client:
        client.wait_for_coordinator(group)
        client.exchange([wire.commit_request(group, topic, partitions)], None)


def make_transactional_ids(server: Server, count: int) -> None:
    """Make `count` transactional ids, by an InitProducerId for each."""
    with wire.Client(server) as client:
        client.wait_for_coordinator("id", transactions=True)
        client.exchange([_init_producer(f"id{number}") for number in range(count)], None)


def make_producers(server: Server, topic: str, count: int) -> None:
    """Write a record to partition 0 for each of `count` idempotent producers."""
    with wire.Client(server) as client:
        client.exchange(list(_produced_by(topic, count)), None)


def _produced_by(topic: str, count: int) -> Iterator[bytes]:
    records = [Record(timestamp=wire.now_ms(), value=b"value")]
    for producer in range(1000, 1000 + count):
        batch = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0)
        yield wire.produce_request(topic, bytes(batch))


def open_transaction(server: Server, topic: str) -> None:
    """Leave a transaction open in partition 0."""
    with wire.Client(server) as client:
        client.wait_for_coordinator(OPEN_ID, transactions=True)
        request = InitProducerIdRequest(transactional_id=OPEN_ID, transaction_timeout_ms=600_000)
        begun = client.ask(request)
        added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        owner = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=OPEN_ID,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[added],
        )
        client.exchange([wire.frame(adding, ADD_PARTITIONS_VERSION)], None)
        records = [Record(timestamp=wire.now_ms(), value=b"open")]
        batch = bytes(build_batch(records, base_sequence=0, transactional=True, **owner))
        data = ProduceRequest.TopicProduceData
        written = data(name=topic, partition_data=[data.PartitionProduceData(index=0, records=memoryview(batch))])
        asked = ProduceRequest(transactional_id=OPEN_ID, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[written])
        client.exchange([wire.frame(asked, TRANSACTION_PRODUCE_VERSION)], wire.produce_error_at(topic))


def _init_producer(name: str) -> bytes:
    return wire.frame(
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), INIT_PRODUCER_VERSION
    )


def _some(items: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), MANY):
        yield items[start : start + MANY]
