"""What the tests of Fetch share: asking for partitions in one line, and reading the records in an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(FetchRequest)
LAST_BY_NAME = 12
PLENTY = 1 << 20

Topic = FetchRequest.FetchTopic
Partition = Topic.FetchPartition
Forgotten = FetchRequest.ForgottenTopic
Where = tuple[str, int]  # a topic's name and the partition's number


def id_of(harness: Harness, name: str) -> bytes:
    """The topic's id; the same bytes 16 times for a topic that is not there."""
    topics = harness.cluster.image.topics
    return topics[name].topic_id if name in topics else b"\x11" * 16


def fetch_of(
    harness: Harness,
    offsets: Mapping[Where, int],
    *,
    partition_max_bytes: int = PLENTY,
    epoch: int = -1,
    last_epoch: int = -1,
    forget: tuple[Where, ...] = (),
    **fields: Any,
) -> FetchRequest:
    """A request for partitions from offsets on. It waits for nothing unless `fields` say so."""
    topics: dict[str, Topic] = {}
    for (name, index), offset in offsets.items():
        topic = topics.setdefault(name, Topic(topic=name, topic_id=id_of(harness, name), partitions=[]))
        topic.partitions.append(
            Partition(
                partition=index,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
            )
        )
    forgotten = [Forgotten(topic=name, topic_id=id_of(harness, name), partitions=[index]) for name, index in forget]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": PLENTY, **fields}
    return FetchRequest(topics=list(topics.values()), forgotten_topics_data=forgotten, **fields)


def answers_in(harness: Harness, response: Any) -> dict[Where, Any]:
    """The partitions' answers, in their order, by topic name (as it is now) and number."""
    names = {id_of(harness, name): name for name in harness.cluster.image.topics}
    return {
        (topic.topic or names.get(topic.topic_id, "?"), partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


def fetch(
    harness: Harness, offsets: Mapping[Where, int], *, version: int = VERSIONS[-1], node: int = 1, **more: Any
) -> dict[Where, Any]:
    """Each partition's answer."""
    response = harness.request(fetch_of(harness, offsets, **more), version, node=node)
    assert response.error_code == 0
    return answers_in(harness, response)


def values_in(answer: Any) -> list[str]:
    """The values of all records in a partition's answer, as text."""
    data = bytes(answer.records)
    return [
        (record.value or b"").decode()
        for position, _ in iterate_batches_in_any_format(data)
        for record in iterate_records_in_any_format(data, position)
    ]
