"""What the commands about groups ask a Kafka for: the group itself, what it has committed, and where the logs end.

How it is shown, and what is done with it, is each command's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from minibroker.cli.administration import TopicPartition, all_topics, log_offsets, result
from minibroker.cli.shared import REQUEST_TIMEOUT_S, failure, reason

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, OffsetSpec

STATE_NAMES: Final = {  # Kafka's, by those of confluent-kafka
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "DEAD": "Dead",
}
NO_OFFSET = -1


class Committed(NamedTuple):
    """An offset that a group has committed for a partition."""

    offset: int
    metadata: str


def state_name(state: Enum) -> str:
    """The state as Kafka calls it."""
    return STATE_NAMES.get(state.name, "Unknown")


def type_name(kind: Enum) -> str:
    """The protocol of the group, classic or consumer."""
    return kind.name.lower()


def described(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    """The group; one that there is not is "Dead". Raises click.ClickException."""
    answers = admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)
    found: ConsumerGroupDescription = result(answers[group], f"cannot describe {group}")
    return found


def committed(admin: AdminClient, group: str) -> dict[TopicPartition, Committed]:
    """All that the group has committed. Raises click.ClickException."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    answers = admin.list_consumer_group_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    found = result(answers[group], f"cannot get the offsets of {group}").topic_partitions
    for each in found:
        if each.error is not None:
            raise failure(f"cannot get the offset of {group} for {each.topic}-{each.partition}: {reason(each.error)}")
    return {
        (each.topic, each.partition): Committed(each.offset, each.metadata or "")
        for each in found
        if each.offset > NO_OFFSET
    }


def led(admin: AdminClient, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Return those of the partitions that exist, and have a leader to ask."""
    topics = all_topics(admin)
    return {
        (topic, partition)
        for topic, partition in partitions
        if topic in topics and partition in topics[topic].partitions and topics[topic].partitions[partition].leader >= 0
    }


def ends(admin: AdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The next offset of each partition that can be asked for it."""
    from confluent_kafka.admin import OffsetSpec

    return log_offsets(admin, led(admin, partitions), OffsetSpec.latest())


def timestamp_spec(timestamp_ms: int) -> OffsetSpec:
    """The first record of this time (ms since 1970) or later."""
    from confluent_kafka.admin import OffsetSpec

    spec: OffsetSpec = OffsetSpec.for_timestamp(timestamp_ms)
    return spec
