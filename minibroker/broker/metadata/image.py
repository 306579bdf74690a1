"""The metadata image, a fold over the metadata log: brokers, topics, configs, features, quotas, credentials and rights.

Only `Image.apply` changes it; the controller decides on the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.metadata.partitions import Partition, Topic, make_metric_collision_key
from minibroker.broker.security.acls import Acl, Acls
from minibroker.broker.security.delegation import DelegationTokens
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.primitives import format_uuid

# The entity of a quota: (type, name) of each part, such as {("user", "a"), ("client-id", None)}; None is the default.
QuotaEntity = frozenset[tuple[str, str | None]]
LEADER_UNCHANGED = -2  # PartitionChangeRecord's default


class InconsistentMetadata(ValueError):
    """A record that refers to something that does not exist."""


class Image:
    """The cluster's metadata in memory. The secrets of its delegation tokens follow from the secret key."""

    def __init__(self, token_secret_key: str | None = None) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.topics_by_colliding_name: dict[str, dict[str, Topic]] = {}
        self.brokers: dict[int, records.RegisterBrokerRecord] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.scram_credentials: dict[tuple[str, int], records.UserScramCredentialRecord] = {}  # (user, mechanism)
        self.tokens = DelegationTokens(token_secret_key)
        self.acls = Acls()
        self.next_producer_id = 0

    def apply_record(self, record: Message) -> None:
        """Apply a record; ignore kinds that this broker does not use. Raises InconsistentMetadata."""
        apply = APPLY.get(type(record))
        if apply is not None:
            apply(self, record)

    def add_topic(self, topic: Topic) -> None:
        """Add a topic to the image's indexes by name, id and colliding name."""
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic
        self.topics_by_colliding_name.setdefault(make_metric_collision_key(topic.name), {})[topic.name] = topic

    def copy_topic_from_image(self, topic: Topic, source: Image) -> None:
        """Take a topic, or its new partitions, from an image to which their records were applied."""
        known = self.topics_by_id.get(topic.topic_id)
        if known is None:
            topic.overrides = self.get_configs(TOPIC_RESOURCE, topic.name)
            topic.overrides.update(source.get_configs(TOPIC_RESOURCE, topic.name))
            self.add_topic(topic)
            return
        added = topic.partitions[len(known.partitions) :]
        for partition in added:
            partition.topic = known
        known.partitions += added

    def get_configs(self, resource_type: int, name: str) -> dict[str, str]:
        """Return the configs of a topic, or of a broker ("" is the default for all brokers), as text by name."""
        return self.configs.setdefault((resource_type, name), {})


def _get_topic(image: Image, topic_id: bytes) -> Topic:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        raise InconsistentMetadata(f"there is no topic with the id {format_uuid(topic_id)}")
    return topic


def _apply_topic(image: Image, record: records.TopicRecord) -> None:
    topic = Topic(record.name, record.topic_id)
    topic.overrides = image.get_configs(TOPIC_RESOURCE, record.name)
    image.add_topic(topic)


def _remove_topic(image: Image, record: records.RemoveTopicRecord) -> None:
    topic = _get_topic(image, record.topic_id)
    del image.topics_by_id[topic.topic_id], image.topics[topic.name]
    colliding = image.topics_by_colliding_name[make_metric_collision_key(topic.name)]
    del colliding[topic.name]
    if not colliding:
        del image.topics_by_colliding_name[make_metric_collision_key(topic.name)]
    image.configs.pop((TOPIC_RESOURCE, topic.name), None)


def _apply_partition(image: Image, record: records.PartitionRecord) -> None:
    topic = _get_topic(image, record.topic_id)
    if record.partition_id > len(topic.partitions):
        raise InconsistentMetadata(
            f"partition {record.partition_id} of {topic.name} comes before {len(topic.partitions)}"
        )
    partition = Partition(topic, record.partition_id, record.replicas, record.isr, record.leader)
    partition.leader_epoch = record.leader_epoch
    partition.partition_epoch = record.partition_epoch
    partition.eligible_leader_replicas = record.eligible_leader_replicas or []
    partition.last_known_elr = record.last_known_elr or []
    partition.adding_replicas = record.adding_replicas
    partition.removing_replicas = record.removing_replicas
    partition.directories = record.directories
    if record.partition_id < len(topic.partitions):  # a snapshot may repeat records of the log
        topic.partitions[record.partition_id] = partition
    else:
        topic.partitions.append(partition)


def _apply_partition_change(image: Image, record: records.PartitionChangeRecord) -> None:
    topic = _get_topic(image, record.topic_id)
    partition = topic.find_partition(record.partition_id)
    if partition is None:
        raise InconsistentMetadata(f"{topic.name} has no partition {record.partition_id}")
    if record.isr is not None:
        partition.isr = record.isr
    if record.replicas is not None:
        partition.replicas = record.replicas
    if record.eligible_leader_replicas is not None:
        partition.eligible_leader_replicas = record.eligible_leader_replicas
    if record.last_known_elr is not None:
        partition.last_known_elr = record.last_known_elr
    if record.adding_replicas is not None:
        partition.adding_replicas = record.adding_replicas
    if record.removing_replicas is not None:
        partition.removing_replicas = record.removing_replicas
    if record.directories is not None:
        partition.directories = record.directories
    if record.leader != LEADER_UNCHANGED:
        partition.leader_id = record.leader
        partition.leader_epoch += 1
    partition.partition_epoch += 1


def _apply_config(image: Image, record: records.ConfigRecord) -> None:
    config = image.get_configs(record.resource_type, record.resource_name)
    if record.value is None:
        config.pop(record.name, None)
    else:
        config[record.name] = record.value


def _apply_broker(image: Image, record: records.RegisterBrokerRecord) -> None:
    image.brokers[record.broker_id] = record


def _apply_broker_change(image: Image, record: records.BrokerRegistrationChangeRecord) -> None:
    broker = _get_broker(image, record.broker_id)
    broker.fenced = _apply_flag_change(broker.fenced, record.fenced)
    broker.in_controlled_shutdown = _apply_flag_change(broker.in_controlled_shutdown, record.in_controlled_shutdown)
    broker.log_dirs = record.log_dirs or broker.log_dirs
    if record.cordoned_log_dirs is not None:
        broker.cordoned_log_dirs = record.cordoned_log_dirs


def _get_broker(image: Image, broker_id: int) -> records.RegisterBrokerRecord:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise InconsistentMetadata(f"there is no broker {broker_id}")
    return broker


def _apply_flag_change(before: bool, change: int) -> bool:
    """Return the flag after a change of BrokerRegistrationChangeRecord: 1 sets it, -1 clears it, 0 keeps it."""
    return before if change == 0 else change > 0


def _apply_fence(image: Image, record: records.FenceBrokerRecord) -> None:
    _get_broker(image, record.id).fenced = True


def _apply_unfence(image: Image, record: records.UnfenceBrokerRecord) -> None:
    _get_broker(image, record.id).fenced = False


def _remove_broker(image: Image, record: records.UnregisterBrokerRecord) -> None:
    image.brokers.pop(record.broker_id, None)


def _apply_feature(image: Image, record: records.FeatureLevelRecord) -> None:
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level


def _clear_elr(image: Image, record: records.ClearElrRecord) -> None:
    topics = [image.topics[record.topic_name]] if record.topic_name in image.topics else []
    for topic in topics if record.topic_name else image.topics.values():
        for partition in topic.partitions:
            partition.eligible_leader_replicas = []
            partition.last_known_elr = []


def _apply_producer_ids(image: Image, record: records.ProducerIdsRecord) -> None:
    image.next_producer_id = record.next_producer_id


def _apply_quota(image: Image, record: records.ClientQuotaRecord) -> None:
    entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
    values = image.quotas.setdefault(entity, {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    if not values:
        del image.quotas[entity]


def _apply_scram_credential(image: Image, record: records.UserScramCredentialRecord) -> None:
    image.scram_credentials[record.name, record.mechanism] = record


def _remove_scram_credential(image: Image, record: records.RemoveUserScramCredentialRecord) -> None:
    image.scram_credentials.pop((record.name, record.mechanism), None)


def _apply_token(image: Image, record: records.DelegationTokenRecord) -> None:
    image.tokens.add_token(record)


def _remove_token(image: Image, record: records.RemoveDelegationTokenRecord) -> None:
    image.tokens.remove_token(record.token_id)


def _apply_acl(image: Image, record: records.AccessControlEntryRecord) -> None:
    acl = Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
    image.acls.add_acl(record.id, acl)


def _remove_acl(image: Image, record: records.RemoveAccessControlEntryRecord) -> None:
    if record.id not in image.acls.by_id:
        raise InconsistentMetadata(f"there is no ACL with the id {format_uuid(record.id)}")
    image.acls.remove_acl(record.id)


APPLY: dict[type[Message], Callable[[Image, Any], None]] = {
    records.TopicRecord: _apply_topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _apply_partition,
    records.PartitionChangeRecord: _apply_partition_change,
    records.ConfigRecord: _apply_config,
    records.RegisterBrokerRecord: _apply_broker,
    records.UnregisterBrokerRecord: _remove_broker,
    records.BrokerRegistrationChangeRecord: _apply_broker_change,
    records.FenceBrokerRecord: _apply_fence,
    records.UnfenceBrokerRecord: _apply_unfence,
    records.FeatureLevelRecord: _apply_feature,
    records.ClearElrRecord: _clear_elr,
    records.ProducerIdsRecord: _apply_producer_ids,
    records.ClientQuotaRecord: _apply_quota,
    records.UserScramCredentialRecord: _apply_scram_credential,
    records.RemoveUserScramCredentialRecord: _remove_scram_credential,
    records.DelegationTokenRecord: _apply_token,
    records.RemoveDelegationTokenRecord: _remove_token,
    records.AccessControlEntryRecord: _apply_acl,
    records.RemoveAccessControlEntryRecord: _remove_acl,
}
