"""The image: what each record changes, and records about what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.metadata.image import Image, InconsistentMetadata
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE

ID, OTHER_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"


def fold(*messages: Message) -> Image:
    image = Image()
    for message in messages:
        image.apply_record(message)
    return image


def topic(name: str = "t", topic_id: bytes = ID) -> records.TopicRecord:
    return records.TopicRecord(name=name, topic_id=topic_id)


def partition(index: int, leader: int = 1, **more: Any) -> records.PartitionRecord:
    fields = {"replicas": [1, 2], "isr": [1, 2], "leader_epoch": 0, "partition_epoch": 0, **more}
    return records.PartitionRecord(partition_id=index, topic_id=ID, leader=leader, **fields)


def config(kind: int, resource: str, name: str, value: str | None) -> records.ConfigRecord:
    return records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def test_a_topic_is_found_by_name_and_by_id_with_its_partitions() -> None:
    image = fold(topic(), partition(0), partition(1, leader=2, leader_epoch=5))
    found = image.topics["t"]
    assert image.topics_by_id == {ID: found}
    assert [(one.index, one.leader_id, one.leader_epoch, one.replicas) for one in found.partitions] == [
        (0, 1, 0, [1, 2]),
        (1, 2, 5, [1, 2]),
    ]


def test_removing_a_topic_removes_its_configs() -> None:
    image = fold(
        topic(),
        partition(0),
        config(TOPIC_RESOURCE, "t", "retention.ms", "5"),
        records.RemoveTopicRecord(topic_id=ID),
        topic(topic_id=OTHER_ID),
    )
    assert (list(image.topics_by_id), image.topics["t"].overrides) == ([OTHER_ID], {})


def test_configs_are_set_replaced_and_removed_per_topic() -> None:
    image = fold(
        config(BROKER_RESOURCE, "", "log.retention.ms", "1"),
        topic(),
        config(TOPIC_RESOURCE, "t", "retention.ms", "5"),
        config(TOPIC_RESOURCE, "t", "segment.ms", "6"),
        config(TOPIC_RESOURCE, "t", "retention.ms", "7"),
        config(TOPIC_RESOURCE, "t", "segment.ms", None),
        config(TOPIC_RESOURCE, "t", "never.set", None),
    )
    assert image.topics["t"].overrides == {"retention.ms": "7"}
    assert image.get_configs(BROKER_RESOURCE, "") == {"log.retention.ms": "1"}
    assert image.get_configs(BROKER_RESOURCE, "1") == {}


def test_config_records_may_precede_the_record_of_their_topic() -> None:
    image = fold(config(TOPIC_RESOURCE, "t", "retention.ms", "5"), topic())
    assert image.topics["t"].overrides == {"retention.ms": "5"}


def test_a_new_leader_starts_a_new_leader_epoch() -> None:
    image = fold(topic(), partition(0))
    change = records.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2)
    image.apply_record(change)
    (found,) = image.topics["t"].partitions
    assert (found.leader_id, found.leader_epoch, found.partition_epoch) == (2, 1, 1)


def test_a_partition_change_without_a_leader_keeps_the_leader_epoch() -> None:
    image = fold(topic(), partition(0))
    image.apply_record(records.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[1], replicas=[1, 3]))
    (found,) = image.topics["t"].partitions
    assert (found.leader_id, found.leader_epoch, found.partition_epoch) == (1, 0, 1)
    assert (found.isr, found.replicas) == ([1], [1, 3])


def test_a_second_partition_record_replaces_the_first() -> None:
    image = fold(topic(), partition(0), partition(1), partition(0, leader=2))
    assert [one.leader_id for one in image.topics["t"].partitions] == [2, 1]


def test_brokers_features_and_producer_ids_are_in_the_image() -> None:
    image = fold(
        records.RegisterBrokerRecord(broker_id=1),
        records.RegisterBrokerRecord(broker_id=2),
        records.UnregisterBrokerRecord(broker_id=1),
        records.FeatureLevelRecord(name="metadata.version", feature_level=30),
        records.FeatureLevelRecord(name="group.version", feature_level=1),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.ProducerIdsRecord(broker_id=1, next_producer_id=1000),
    )
    assert (list(image.brokers), image.features, image.next_producer_id) == ([2], {"metadata.version": 30}, 1000)


def test_fence_and_unfence_records_of_any_kafka_version_are_applied() -> None:
    change = records.BrokerRegistrationChangeRecord
    image = fold(records.RegisterBrokerRecord(broker_id=1, fenced=True))
    seen = []
    for message in (
        change(broker_id=1, fenced=-1),
        change(broker_id=1, in_controlled_shutdown=1),
        change(broker_id=1, fenced=1),
        records.UnfenceBrokerRecord(id=1),
        records.FenceBrokerRecord(id=1),
    ):
        image.apply_record(message)
        seen.append((image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown))
    assert seen == [(False, False), (False, True), (True, True), (False, True), (True, True)]


@pytest.mark.parametrize(
    "message", [records.BrokerRegistrationChangeRecord(broker_id=5), records.FenceBrokerRecord(id=5)]
)
def test_a_change_of_an_unknown_broker_is_rejected(message: Message) -> None:
    with pytest.raises(InconsistentMetadata, match="there is no broker 5"):
        fold(message)


def test_eligible_leader_replicas_are_kept_until_changed_or_cleared() -> None:
    image = fold(topic(), partition(0), partition(1, eligible_leader_replicas=[2], last_known_elr=[1]))
    image.apply_record(
        records.PartitionChangeRecord(partition_id=0, topic_id=ID, eligible_leader_replicas=[1], last_known_elr=[2])
    )
    image.apply_record(records.PartitionChangeRecord(partition_id=0, topic_id=ID, isr=[]))
    found = image.topics["t"].partitions
    assert [(one.eligible_leader_replicas, one.last_known_elr) for one in found] == [([1], [2]), ([2], [1])]
    image.apply_record(records.ClearElrRecord(topic_name="another"))
    assert found[0].eligible_leader_replicas == [1]
    image.apply_record(records.ClearElrRecord())
    assert [(one.eligible_leader_replicas, one.last_known_elr) for one in found] == [([], []), ([], [])]


def test_metadata_records_without_effect_on_the_image_are_ignored() -> None:
    image = fold(records.NoOpRecord(), records.BeginTransactionRecord(name="x"))
    assert image.topics == {}


@pytest.mark.parametrize(
    "message",
    [
        partition(0),
        records.PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2),
        records.RemoveTopicRecord(topic_id=ID),
    ],
)
def test_a_record_about_an_unknown_topic_is_rejected(message: Message) -> None:
    with pytest.raises(InconsistentMetadata, match="no topic with the id AAAAAAAAAAAAAAAAAAAABw"):
        fold(message)


def test_partition_records_must_be_in_the_order_of_their_indexes() -> None:
    with pytest.raises(InconsistentMetadata, match="partition 2 of t comes before 1"):
        fold(topic(), partition(0), partition(2))


@pytest.mark.parametrize("index", [1, -1])
def test_a_change_of_an_unknown_partition_is_rejected(index: int) -> None:
    with pytest.raises(InconsistentMetadata, match=f"t has no partition {index}"):
        fold(topic(), partition(0), records.PartitionChangeRecord(partition_id=index, topic_id=ID, leader=2))
