"""Commits the offsets of a stream to a consumer group, for tools that show the lag of groups.

Spark itself goes on from its checkpoint, and never reads these offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from minibroker.client.client_errors import ClientError, check_error_code
from minibroker.client.coordinator_requests import ask_coordinator
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import TopicPartition
from minibroker.protocol.messages.offsets import OffsetCommitRequest

log: Final = logging.getLogger(__name__)

NEWEST_WITH_NAMES: Final = 9  # later versions have topic ids


def commit_offsets(client: Client, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit the next offsets to read. Log a warning if it fails: the query goes on without."""
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    of_partition = of_topic.OffsetCommitRequestPartition
    by_topic: dict[str, list[OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        row = of_partition(partition_index=partition, committed_offset=offset, committed_metadata="")
        by_topic.setdefault(topic, []).append(row)
    topics = [of_topic(name=topic, partitions=rows) for topic, rows in by_topic.items()]
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    try:
        answer = ask_coordinator(client, "group", group, request, highest=NEWEST_WITH_NAMES)
        for topic in answer.topics:
            for each in topic.partitions:
                check_error_code(each.error_code, f"{topic.name}-{each.partition_index}")
    except ClientError as error:
        log.warning("offsets are not committed to group %s: %s", group, error)
