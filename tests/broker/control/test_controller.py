"""The controller: that a decision on topics, configs and producer ids is recorded whole or not at all.

What clients are answered is tested with the handlers.
"""

from __future__ import annotations

import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.controller import DELETED_AT_ONCE
from minibroker.broker.control.registration import fence_leaving_node, unregister_broker_in_steps
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE, TOPIC_RESOURCE
from minibroker.protocol.primitives import ZERO_UUID, parse_uuid
from minibroker.protocol.steps import run_all_steps
from minibroker.storage.log import Log
from tests.broker.harness import Harness


def recorded(harness: Harness, kind: type[Message]) -> list[Any]:
    """The records of one kind in the metadata log."""
    seen: list[Message] = []
    harness.cluster.metadata_log.replay_all_records(seen.append)
    return [record for record in seen if isinstance(record, kind)]


# --- creation -----------------------------------------------------------------------------------


def test_one_of_two_concurrently_created_colliding_names_is_rejected(harness: Harness) -> None:
    controller = harness.cluster.controller
    first = controller.create_topic_in_steps("a.b", 2, 1)
    next(first)
    with pytest.raises(KafkaError, match="collides with existing topic: a.b") as refusal:
        controller.create_topic("a_b", 1, 1)
    assert refusal.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    run_all_steps(first)
    assert list(harness.cluster.image.topics) == ["a.b"]


def test_a_topic_is_usable_even_if_its_creation_is_abandoned_after_its_record_is_written(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        cluster = harness.cluster
        cluster.controller.change_config(BROKER_RESOURCE, "1", {"log.retention.ms": "7000"})
        steps = cluster.controller.create_topic_in_steps("t", 2, 1)
        while "t" not in cluster.image.topics:
            next(steps)
        steps.close()
        assert harness.produce("t", "v") == 0
        harness.restart()
        assert harness.partition("t").log.log_end_offset == 1


def test_a_topic_creation_takes_account_of_configs_and_brokers_that_change_meanwhile(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        cluster = harness.cluster
        steps = cluster.controller.create_topic_in_steps("t", 2, 2)
        next(steps)
        cluster.controller.change_config(BROKER_RESOURCE, "", {"log.retention.ms": "7000"})
        fence_leaving_node(cluster, cluster.nodes.pop(2))
        run_all_steps(steps)
        partitions = cluster.image.topics["t"].partitions
        assert [partition.log.settings.retention_ms for partition in partitions] == [7000, 7000]
        assert [(partition.leader_id, partition.isr) for partition in partitions] == [(1, [1]), (1, [1])]


def test_a_topic_is_recorded_in_the_metadata_as_kafka_records_it(harness: Harness) -> None:
    topic_id, replicas = harness.cluster.controller.create_topic("t", 2, 1, overrides={"segment.ms": " 7 "})
    assert replicas == [[1], [1]]
    assert recorded(harness, records.TopicRecord) == [records.TopicRecord(name="t", topic_id=topic_id)]
    _, config = recorded(harness, records.ConfigRecord)  # the first is the new cluster's own
    assert (config.resource_type, config.resource_name, config.name, config.value) == (2, "t", "segment.ms", "7")
    partitions = recorded(harness, records.PartitionRecord)
    assert [(one.partition_id, one.topic_id, one.leader, one.leader_epoch) for one in partitions] == [
        (0, topic_id, 1, 0),
        (1, topic_id, 1, 0),
    ]
    directory_id = parse_uuid(harness.logs.directories[0].directory_id)
    assert all((one.replicas, one.isr, one.directories) == ([1], [1], [directory_id]) for one in partitions)


def test_one_topic_creation_is_one_atomic_metadata_batch(harness: Harness) -> None:
    storage = harness.cluster.metadata_log.storage
    before = storage.log_end_offset
    harness.create_topic("t", 3, segment_ms="7")
    region = storage.read(before, 1 << 20)
    assert region is not None
    assert region.next_offset == storage.log_end_offset == before + 1 + 1 + 3
    harness.stop(crash=True)
    file = harness.directory / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    with file.open("r+b") as torn:
        torn.truncate(file.stat().st_size - 1)
    harness.start()
    assert harness.cluster.image.topics == {}
    harness.create_topic("t")
    assert harness.produce("t", "v") == 0


def test_topic_ids_are_unique_and_validate_only_assigns_none(harness: Harness) -> None:
    controller = harness.cluster.controller
    ids = {controller.create_topic(name)[0] for name in ("a", "b", "c")}
    assert len(ids) == 3 and ZERO_UUID not in ids
    assert controller.create_topic("d", validate_only=True)[0] == ZERO_UUID


def test_new_partitions_get_the_settings_of_their_topic(harness: Harness) -> None:
    harness.create_topic("t", segment_ms="7")
    harness.cluster.controller.add_partitions("t", 2)
    assert harness.partition("t", 1).log.settings.segment_ms == 7
    assert [one.partition_id for one in recorded(harness, records.PartitionRecord)] == [0, 1]


# --- deletion -----------------------------------------------------------------------------------


def test_partitions_of_a_deleted_topic_have_no_leader(harness: Harness) -> None:
    harness.create_topic("t", 2)
    topic = harness.cluster.image.topics["t"]
    partitions = topic.partitions
    harness.cluster.controller.delete_topic(topic)
    assert [partition.leader_id for partition in partitions] == [NO_LEADER, NO_LEADER]
    assert harness.cluster.image.topics_by_id == {}
    assert recorded(harness, records.RemoveTopicRecord) == [records.RemoveTopicRecord(topic_id=topic.topic_id)]


# --- configs ------------------------------------------------------------------------------------


def test_a_config_change_is_recorded_and_takes_effect(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="3")
    controller = harness.cluster.controller
    controller.change_config(TOPIC_RESOURCE, "t", {"segment.ms": "7", "flush.messages": None})
    controller.change_config(BROKER_RESOURCE, "", {"log.index.interval.bytes": "9"})
    settings = harness.partition("t").log.settings
    assert (settings.segment_ms, settings.index_interval_bytes) == (7, 9)
    assert harness.cluster.image.topics["t"].overrides == {"segment.ms": "7"}
    assert [(one.name, one.value) for one in recorded(harness, records.ConfigRecord)] == [
        ("min.insync.replicas", "1"),  # of the new cluster
        ("flush.messages", "3"),
        ("segment.ms", "7"),
        ("flush.messages", None),
        ("log.index.interval.bytes", "9"),
    ]


# --- producer ids -------------------------------------------------------------------------------


def test_producer_id_blocks_are_recorded_and_not_reused_after_a_restart(harness: Harness) -> None:
    controller = harness.cluster.controller
    assert [controller.allocate_producer_id() for _ in range(1001)] == list(range(1001))
    assert [one.next_producer_id for one in recorded(harness, records.ProducerIdsRecord)] == [1000, 2000]
    harness.restart(crash=True)
    assert harness.cluster.controller.allocate_producer_id() == 2000


def test_a_producer_id_block_that_cannot_be_recorded_assigns_no_id(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append_messages", fail)
        with pytest.raises(KafkaError):
            harness.cluster.controller.allocate_producer_id()
    assert harness.cluster.controller.allocate_producer_id() == 0


# --- in steps -----------------------------------------------------------------------------------

INTERVAL = {"log.index.interval.bytes": "9"}


def intervals(harness: Harness) -> set[int]:
    """Return the interval that each log goes by."""
    topics = harness.cluster.image.topics.values()
    return {partition.log.settings.index_interval_bytes for topic in topics for partition in topic.partitions}


def test_a_cluster_wide_change_is_applied_to_a_hundred_partitions_per_step(harness: Harness) -> None:
    for name in ("t", "u"):
        harness.cluster.controller.create_topic(name, 150)
    steps = harness.cluster.controller.change_config_in_steps(BROKER_RESOURCE, "", INTERVAL)
    assert intervals(harness) == {4096}
    assert len(list(steps)) == 3
    assert intervals(harness) == {9}


def test_a_topic_change_is_applied_to_a_hundred_partitions_per_step(harness: Harness) -> None:
    harness.cluster.controller.create_topic("t", 250)
    changes = {"index.interval.bytes": "9"}
    assert len(list(harness.cluster.controller.change_config_in_steps(TOPIC_RESOURCE, "t", changes))) == 3
    assert intervals(harness) == {9}


def test_topics_created_during_a_config_change_have_the_new_settings(harness: Harness) -> None:
    controller = harness.cluster.controller
    for name in ("t", "gone", "u"):
        controller.create_topic(name, 120)
    making = controller.create_topic_in_steps("late", 3)
    next(making)
    changing = controller.change_config_in_steps(BROKER_RESOURCE, "", INTERVAL)
    next(changing)
    controller.create_topic("new", 3)
    controller.add_partitions("t", 130)
    controller.delete_topic(harness.cluster.image.topics["gone"])
    run_all_steps(changing)
    run_all_steps(making)
    assert set(harness.cluster.image.topics) == {"t", "u", "new", "late"}
    assert intervals(harness) == {9}


def test_memory_of_the_partitions_of_a_deleted_topic_is_released_in_steps(harness: Harness) -> None:
    controller = harness.cluster.controller
    controller.create_topic("t", 50)

    class Text(str):
        """A text of a log, with which it goes; logs have no weak references."""

    def mark(log: Log) -> weakref.ref[str]:
        log.offline = Text()
        return weakref.ref(log.offline)

    texts = [mark(partition.log) for partition in harness.cluster.image.topics["t"].partitions]
    left = [len(texts)]
    for _ in controller.delete_topic_in_steps(harness.cluster.image.topics["t"]):
        left.append(sum(text() is not None for text in texts))
    assert not any(text() is not None for text in texts)
    assert max(before - after for before, after in pairwise(left)) <= 2 * DELETED_AT_ONCE


def test_the_later_of_two_concurrent_config_changes_wins(harness: Harness) -> None:
    controller = harness.cluster.controller
    controller.create_topic("t", 250)
    first = controller.change_config_in_steps(BROKER_RESOURCE, "", INTERVAL)
    next(first)
    controller.change_config(BROKER_RESOURCE, "", {"log.index.interval.bytes": "7"})
    run_all_steps(first)
    assert intervals(harness) == {7}


def test_changed_settings_of_one_broker_apply_only_to_partitions_that_it_leads(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", 250)
        run_all_steps(harness.cluster.controller.change_config_in_steps(BROKER_RESOURCE, "2", INTERVAL))
        for partition in harness.cluster.image.topics["t"].partitions:
            expected = 9 if partition.leader_id == 2 else 4096
            assert partition.log.settings.index_interval_bytes == expected


def test_a_broker_unregistered_during_a_creation_leads_no_new_topic(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        making = harness.cluster.controller.create_topic_in_steps("t", 120, 2)
        next(making)
        run_all_steps(unregister_broker_in_steps(harness.cluster, 2))
        run_all_steps(making)
        assert {(one.leader_id, *one.isr) for one in harness.cluster.image.topics["t"].partitions} == {(1, 1)}
