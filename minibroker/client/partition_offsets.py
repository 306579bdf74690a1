"""First and last offsets of partitions, and offsets by timestamp (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, TypeVar

from minibroker.client.blocking import Client
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest

LATEST: Final = -1
EARLIEST: Final = -2
_CONSUMER: Final = -1  # in place of a replica's id

Partition = TypeVar("Partition", bound=tuple[str, int])


def list_offsets(
    client: Client, timestamps_ms: Mapping[Partition, int], read_committed: bool = False
) -> dict[Partition, int]:
    """Return each partition's first offset at or after its timestamp (-1: none), or that for `EARLIEST` or `LATEST`.

    The latest offset is the high watermark, or the last stable offset if `read_committed`. Raises `ClientError`.
    """
    offsets: dict[Partition, int] = {}

    def request_remaining_offsets() -> dict[Partition, int]:
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for partition in timestamps_ms.keys() - offsets.keys():
            by_leader[client.find_leader(partition).node_id].append(partition)
        for node_id, partitions in by_leader.items():
            _list_offsets_at_leader(
                client, node_id, {each: timestamps_ms[each] for each in partitions}, read_committed, offsets
            )
        return offsets

    return client.retry(request_remaining_offsets)


def _list_offsets_at_leader(
    client: Client,
    node_id: int,
    timestamps_ms: Mapping[Partition, int],
    read_committed: bool,
    found_offsets: dict[Partition, int],
) -> None:
    """Ask one leader for offsets, and add them to `found_offsets`. Raise `ClientError` for the first error."""
    partitions = {tuple(partition): partition for partition in timestamps_ms}
    refused = []
    request = _make_list_offsets_request(timestamps_ms, read_committed, client.settings.request_timeout_ms)
    # Version 0 knows the beginnings of segments only, which are no answers for times; version 1 has no isolation level.
    lowest = 2 if read_committed else int(any(timestamp >= 0 for timestamp in timestamps_ms.values()))
    for topic in client.request(request, node_id, lowest=lowest).topics:
        for each in topic.partitions:
            if each.error_code:
                refused.append((each.error_code, f"offsets of {topic.name}-{each.partition_index}"))
            else:
                offsets = each.old_style_offsets or [each.offset]
                found_offsets[partitions[topic.name, each.partition_index]] = offsets[0]
    for code, what in refused[:1]:
        client.check(code, what, node_id)


def _make_list_offsets_request(
    timestamps_ms: Mapping[Partition, int], read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (name, index), timestamp in timestamps_ms.items():
        topic = topics.setdefault(name, of_topic(name=name, partitions=[]))
        topic.partitions.append(of_topic.ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=_CONSUMER, isolation_level=int(read_committed), topics=list(topics.values()), timeout_ms=timeout_ms
    )
