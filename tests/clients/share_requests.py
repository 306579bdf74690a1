"""The requests of members of share groups that speak by hand (KIP-932): fetches, with acknowledgements or without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Range = tuple[int, int, int]  # first and last offset, and the delivery count
Said = tuple[int, int, Sequence[int]]  # first and last offset, and the types


def fetch_request(topic_id: bytes, said: Sequence[Said], more: Sequence[int] = (), **fields: Any) -> ShareFetchRequest:
    """A fetch of partition 0 and `more`, that does not wait; acknowledgements are of partition 0."""
    Topic = ShareFetchRequest.FetchTopic
    Batch = Topic.FetchPartition.AcknowledgementBatch
    batches = [Batch(first_offset=first, last_offset=last, acknowledge_types=[*types]) for first, last, types in said]
    partition = Topic.FetchPartition(partition_index=0, partition_max_bytes=1 << 20, acknowledgement_batches=batches)
    others = [Topic.FetchPartition(partition_index=index) for index in more]
    default = {
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": [Topic(topic_id=topic_id, partitions=[partition, *others])],
    }
    return ShareFetchRequest(**{**default, **fields})


def acknowledge_request(topic_id: bytes, said: Sequence[Said], **fields: Any) -> ShareAcknowledgeRequest:
    """Acknowledgements of partition 0; without any, the request names no topic."""
    Topic = ShareAcknowledgeRequest.AcknowledgeTopic
    Batch = Topic.AcknowledgePartition.AcknowledgementBatch
    batches = [Batch(first_offset=first, last_offset=last, acknowledge_types=[*types]) for first, last, types in said]
    partition = Topic.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    topics = [Topic(topic_id=topic_id, partitions=[partition])] if said else []
    return ShareAcknowledgeRequest(**{"topics": topics, **fields})


def acquired(answer: Any) -> list[Range]:
    """The ranges that a fetch acquires."""
    assert answer is not None and (answer.error_code, answer.error_message) == (0, None), answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
