"""The requests that many tests send, in one line each, and what they look at in the answers.

How bytes go to a broker and back is in `connection.py`; made-up batches are in `batches.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from conformance.wire.batches import Read, read_batches
from conformance.wire.connection import Connection
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest

TIMEOUT_MS = 10_000
PATIENCE_S = 20
GROUP_RESOURCE, SET = 32, 0
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
MAX_FETCH_BYTES = 1 << 24


class Outcome(NamedTuple):
    """The answer of a Produce for a partition; fields that the version lacks have their defaults.

    Without the error's message: Kafka gives none there in most cases, and minibroker says what it found.
    """

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str | None], ...] = ()


def produce_request(topic: str | bytes, *partitions: tuple[int, bytes | None], acks: int = -1) -> ProduceRequest:
    """To a topic by name, or by id for version 13."""
    data = [
        ProduceRequest.TopicProduceData.PartitionProduceData(
            index=index, records=None if records is None else memoryview(records)
        )
        for index, records in partitions
    ]
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    request: ProduceRequest = ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[ProduceRequest.TopicProduceData(**named, partition_data=data)],
    )
    return request


def produce(
    connection: Connection,
    topic: str | bytes,
    records: bytes | None,
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
) -> Outcome:
    """The answer for the one partition that was sent to."""
    response = connection.ask(produce_request(topic, (partition, records), acks=acks), version)
    assert len(response.responses) == 1
    assert (response.responses[0].name or response.responses[0].topic_id) == topic
    (answer,) = response.responses[0].partition_responses
    assert answer.index == partition
    return outcome(answer)


def outcome(answer: Any) -> Outcome:
    errors = tuple((each.batch_index, each.batch_index_error_message) for each in answer.record_errors)
    return Outcome(
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
        errors,
    )


Asked = FetchRequest.FetchTopic.FetchPartition


def asked(partition: int = 0, offset: int = 0, **fields: Any) -> Asked:
    return Asked(partition=partition, fetch_offset=offset, **{"partition_max_bytes": MAX_FETCH_BYTES, **fields})


def fetch_request(topics: Mapping[str | bytes, Sequence[Asked]], **fields: Any) -> FetchRequest:
    """Of topics by name, or by id for version 13; answered at once, without a session, unless fields say otherwise."""
    listed = [
        FetchRequest.FetchTopic(
            **({"topic": topic} if isinstance(topic, str) else {"topic_id": topic}), partitions=list(partitions)
        )
        for topic, partitions in topics.items()
    ]
    request: FetchRequest = FetchRequest(**{"max_bytes": MAX_FETCH_BYTES, **fields}, topics=listed)
    return request


class Fetched(NamedTuple):
    """The answer of a Fetch for a partition: the batches by their first offsets."""

    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    first_offsets: tuple[int, ...] = ()


def fetched(response: FetchResponse) -> dict[tuple[str | bytes, int], Fetched]:
    """By (topic or topic id, partition)."""
    return {
        (topic.topic or topic.topic_id, answer.partition_index): as_fetched(answer)
        for topic in response.responses
        for answer in topic.partitions
    }


def as_fetched(answer: Any) -> Fetched:
    """A partition of a Fetch answer."""
    first_offsets = tuple(each.base_offset for each in whole_batches(answer.records))
    return Fetched(answer.error_code, answer.high_watermark, answer.log_start_offset, first_offsets)


def whole_batches(records: Any) -> list[Read]:
    """Kafka cuts the last batch where the limit falls, and readers pass over it."""
    return read_batches(bytes(records or b""), cut=True)


def stored(connection: Connection, topic: str, partition: int = 0) -> list[Read]:
    """All batches of a partition."""
    response = connection.ask(fetch_request({topic: [asked(partition)]}), 12)
    return whole_batches(response.responses[0].partitions[0].records)


def list_offset(
    connection: Connection, topic: str, timestamp: int, partition: int = 0, *, version: int = 7, **fields: int
) -> Any:
    """Return what ListOffsets answers for one partition; `fields` are those of the asked partition."""
    listed = ListOffsetsRequest.ListOffsetsTopic
    wanted = listed.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **fields)
    request = ListOffsetsRequest(replica_id=-1, topics=[listed(name=topic, partitions=[wanted])])
    (answer,) = connection.ask(request, version).topics[0].partitions
    return answer


def end_offset(connection: Connection, topic: str, partition: int = 0) -> int:
    offset: int = list_offset(connection, topic, LATEST, partition).offset
    return offset


Topic = CreateTopicsRequest.CreatableTopic


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    configs: Mapping[str, str | None] | None = None,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
) -> Topic:
    """A topic to create."""
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[Topic.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        assignments=[
            Topic.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in assignments
        ],
    )


def create_request(*topics: Topic, validate_only: bool = False, timeout_ms: int = TIMEOUT_MS) -> CreateTopicsRequest:
    request: CreateTopicsRequest = CreateTopicsRequest(
        topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
    )
    return request


def metadata_of(connection: Connection, name: str, version: int = 12) -> Any:
    """Return what Metadata says of a topic, without creating it."""
    wanted = MetadataRequest.MetadataRequestTopic(name=name)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    return connection.ask(request, version).topics[0]


def exists(connection: Connection, name: str) -> bool:
    return bool(metadata_of(connection, name).error_code == 0)


def remove(connection: Connection, name: str) -> None:
    """Delete a topic, and wait until it is unknown."""
    answer = connection.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
    assert answer.responses[0].error_code == 0
    repeated(lambda: exists(connection, name), lambda there: not there)
    assert not exists(connection, name)


def configure_group(connection: Connection, group: str, **configs: str) -> None:
    """Set configs of a group, by Kafka's names with underscores for dots."""
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        kind.AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=value)
        for name, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[kind(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)]
    )
    (answer,) = connection.ask(request, 1).responses
    assert answer.error_code == 0, answer


def broker_id(connection: Connection) -> int:
    """The number of the one broker there is."""
    (broker,) = connection.ask(MetadataRequest(topics=[]), 12).brokers
    number: int = broker.node_id
    return number


def repeated(ask: Callable[[], Any], enough: Callable[[Any], bool], patience_s: float = PATIENCE_S) -> Any:
    """The first answer that is enough, or the last: Kafka's brokers learn later what its controller answered."""
    deadline = time.monotonic() + patience_s
    answer = ask()
    while not enough(answer) and time.monotonic() < deadline:
        time.sleep(0.05)
        answer = ask()
    return answer
