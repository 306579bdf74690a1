"""Where partitions begin and end, and what offset a timestamp has, as the leaders of the partitions tell.

Nothing is read here but offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import TopicPartition
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest

LATEST: Final = -1
EARLIEST: Final = -2


def list_offsets(
    client: Client, timestamps_ms: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, int]:
    """For each partition the first offset not before its timestamp, -1 if there is none; or `EARLIEST` or `LATEST`.

    The latest offset is the high watermark, of committed records the last stable offset. Raises `ClientError`.
    """
    found: dict[TopicPartition, int] = {}

    def ask_for_the_rest() -> dict[TopicPartition, int]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in timestamps_ms.keys() - found.keys():
            by_leader[client.leader(partition).node_id].append(partition)
        for node_id, partitions in by_leader.items():
            _ask(client, node_id, {each: timestamps_ms[each] for each in partitions}, read_committed, found)
        return found

    return client.retry(ask_for_the_rest)


def _ask(
    client: Client,
    node_id: int,
    timestamps_ms: Mapping[TopicPartition, int],
    read_committed: bool,
    found: dict[TopicPartition, int],
) -> None:
    """Ask one leader, and note what it finds; of its refusals the first is raised when all answers are noted."""
    refused = []
    lowest = 2 if read_committed else 1  # version 0 has neither one offset nor timestamps of records
    answer = client.request(_request(timestamps_ms, read_committed), node_id, lowest=lowest)
    for topic in answer.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                refused.append((each.error_code, partition))
            else:
                found[partition] = each.offset
    for code, partition in refused[:1]:
        client.check(code, f"offsets of {partition}", node_id)


def _request(timestamps_ms: Mapping[TopicPartition, int], read_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition, timestamp in timestamps_ms.items():
        topics[partition.topic].append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition.partition, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(
        isolation_level=int(read_committed),
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
    )
