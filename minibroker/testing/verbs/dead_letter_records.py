"""The dead letters of share groups (KIP-1191), for tests: records that stand for others, which their headers name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minibroker.broker.configs.group_settings import DEAD_LETTER_COPIES, DEAD_LETTER_TOPIC, get_group_config
from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest
from minibroker.testing.seen.log_reading import Record, iterate_records, list_local_partitions
from minibroker.testing.verbs.own_requests import execute_request, get_any_node, raise_if_error
from minibroker.testing.verbs.record_verbs import create_topic_in_cluster

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker

PREFIX: Final = "__dlq.errors."


@dataclass(frozen=True, repr=False)
class DeadLetter(Record):
    """A dead letter: the record that it stands for, how often that was delivered, and why not any more."""

    source_topic: str
    source_partition: int
    source_offset: int
    deliveries: int
    reason: str

    def __str__(self) -> str:
        """Describe the dead letter in a line."""
        source = f"{self.source_topic}-{self.source_partition} offset {self.source_offset}"
        return f"{source}, delivered {self.deliveries} times: {self.reason}"


async def enable_dead_letters(cluster: Broker, topic: str | None, group: str, *, copies: bool) -> dict[str, str]:
    """Raise share.version to what dead letters need, and create their topic; return the configs that the group needs.

    Raises KafkaError.
    """
    from minibroker.broker.share.dead_letters import TOPIC_CONFIGS
    from minibroker.broker.share.share_partition import FIRST_WITH_DEAD_LETTERS

    name = topic or f"{cluster.settings['errors.deadletterqueue.topic.name.prefix']}{group}"
    if cluster.image.features.get(SHARE_VERSION, 0) < FIRST_WITH_DEAD_LETTERS:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=SHARE_VERSION, max_version_level=FIRST_WITH_DEAD_LETTERS
        )
        answer = await execute_request(cluster, get_any_node(cluster), UpdateFeaturesRequest(feature_updates=[update]))
        raise_if_error(answer.error_code, answer.error_message or SHARE_VERSION)
    if name not in cluster.image.topics:
        await create_topic_in_cluster(cluster, name, None, TOPIC_CONFIGS)
    return {DEAD_LETTER_TOPIC: name, DEAD_LETTER_COPIES: str(copies).lower()}


def list_dead_letters(cluster: Broker, group: str) -> list[DeadLetter]:
    """Return the dead letters of a share group in its topic, one partition after the other; none without a topic."""
    name = str(get_group_config(cluster, group, DEAD_LETTER_TOPIC))
    records = (record for partition in list_local_partitions(cluster, name) for record in iterate_records(partition, 0))
    told = ((record, _read_headers(record)) for record in records)
    return [
        DeadLetter(
            **vars(record),
            source_topic=said["topic"],
            source_partition=int(said["partition"]),
            source_offset=int(said["offset"]),
            deliveries=int(said["delivery.count"]),
            reason=said["message"],
        )
        for record, said in told
        if said.get("group") == group
    ]


def _read_headers(record: Record) -> dict[str, str]:
    """Return the headers about a dead letter; the last ones count, if it stands for another dead letter."""
    return {
        key.removeprefix(PREFIX): (value or b"").decode() for key, value in record.headers if key.startswith(PREFIX)
    }
