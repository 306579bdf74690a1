"""The controller: where replicas are placed, who is elected, and that a decision is recorded whole or not at all.

What clients are answered is tested with the handlers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.image import BROKER_RESOURCE, TOPIC_RESOURCE
from minibroker.broker.topics import NO_LEADER
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import Harness


def recorded(harness: Harness, kind: type[Message]) -> list[Any]:
    """The records of one kind in the metadata log."""
    seen: list[Message] = []
    harness.cluster.metadata_log.replay(seen.append)
    return [record for record in seen if isinstance(record, kind)]


def leaders(harness: Harness, topic: str) -> list[int]:
    return [partition.leader_id for partition in harness.cluster.image.topics[topic].partitions]


def epochs(harness: Harness, topic: str) -> list[int]:
    return [partition.leader_epoch for partition in harness.cluster.image.topics[topic].partitions]


# --- creation -----------------------------------------------------------------------------------


def test_a_topic_is_recorded_as_kafka_records_it(harness: Harness) -> None:
    topic_id, replicas = harness.cluster.controller.create_topic("t", 2, 1, overrides={"segment.ms": " 7 "})
    assert replicas == [[1], [1]]
    assert recorded(harness, records.TopicRecord) == [records.TopicRecord(name="t", topic_id=topic_id)]
    (config,) = recorded(harness, records.ConfigRecord)
    assert (config.resource_type, config.resource_name, config.name, config.value) == (2, "t", "segment.ms", "7")
    partitions = recorded(harness, records.PartitionRecord)
    assert [(one.partition_id, one.topic_id, one.leader, one.leader_epoch) for one in partitions] == [
        (0, topic_id, 1, 0),
        (1, topic_id, 1, 0),
    ]
    assert all((one.replicas, one.isr, one.directories) == ([1], [1], [bytes(16)]) for one in partitions)


def test_one_creation_is_one_batch_so_that_a_crash_leaves_all_of_it_or_nothing(harness: Harness) -> None:
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


def test_ids_differ_and_validation_gives_none(harness: Harness) -> None:
    controller = harness.cluster.controller
    ids = {controller.create_topic(name)[0] for name in ("a", "b", "c")}
    assert len(ids) == 3 and ZERO_UUID not in ids
    assert controller.create_topic("d", validate_only=True)[0] == ZERO_UUID


@pytest.mark.parametrize(("nodes", "partitions", "replicas"), [(1, 5, 1), (3, 6, 1), (3, 6, 2), (3, 3, 3), (5, 10, 3)])
def test_replicas_are_spread_evenly(tmp_path: Path, nodes: int, partitions: int, replicas: int) -> None:
    with Harness(tmp_path, nodes=nodes) as harness:
        placed = harness.cluster.controller.place(partitions, replicas)
    assert all(len(set(one)) == replicas for one in placed)
    if partitions % nodes == 0:
        assert set(Counter(one[0] for one in placed).values()) == {partitions // nodes}
        assert set(Counter(node for one in placed for node in one).values()) == {partitions * replicas // nodes}


def test_the_first_partitions_leader_is_drawn(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        drawn = {harness.cluster.controller.place(1, 1)[0][0] for _ in range(50)}
        assert drawn == {1, 2, 3}


def test_new_partitions_get_the_settings_of_their_topic(harness: Harness) -> None:
    harness.create_topic("t", segment_ms="7")
    harness.cluster.controller.add_partitions("t", 2)
    assert harness.partition("t", 1).log.settings.segment_ms == 7
    assert [one.partition_id for one in recorded(harness, records.PartitionRecord)] == [0, 1]


# --- deletion -----------------------------------------------------------------------------------


def test_a_deleted_topic_is_led_by_nobody_for_those_who_still_hold_it(harness: Harness) -> None:
    harness.create_topic("t", 2)
    topic = harness.cluster.image.topics["t"]
    harness.cluster.controller.delete_topic(topic)
    assert [partition.leader_id for partition in topic.partitions] == [NO_LEADER, NO_LEADER]
    assert harness.cluster.image.topics_by_id == {}
    assert recorded(harness, records.RemoveTopicRecord) == [records.RemoveTopicRecord(topic_id=topic.topic_id)]


# --- configs ------------------------------------------------------------------------------------


def test_a_change_of_configs_is_recorded_and_acts(harness: Harness) -> None:
    harness.create_topic("t", flush_messages="3")
    controller = harness.cluster.controller
    controller.change_config(TOPIC_RESOURCE, "t", {"segment.ms": "7", "flush.messages": None})
    controller.change_config(BROKER_RESOURCE, "", {"log.index.interval.bytes": "9"})
    settings = harness.partition("t").log.settings
    assert (settings.segment_ms, settings.index_interval_bytes) == (7, 9)
    assert harness.cluster.image.topics["t"].overrides == {"segment.ms": "7"}
    assert [(one.name, one.value) for one in recorded(harness, records.ConfigRecord)] == [
        ("flush.messages", "3"),
        ("segment.ms", "7"),
        ("flush.messages", None),
        ("log.index.interval.bytes", "9"),
    ]


# --- leaders ------------------------------------------------------------------------------------


def test_leaders_stay_through_a_restart_with_all_nodes(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 6, 2)
        before = leaders(harness, "t")
        harness.restart()
        assert (leaders(harness, "t"), epochs(harness, "t")) == (before, [0] * 6)
        assert recorded(harness, records.PartitionChangeRecord) == []


def test_the_next_replica_that_is_there_leads_in_a_new_epoch(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3]), (1, [2, 3, 1]), (2, [3, 1, 2])])
        harness.produce("t", "a")
        harness.restart(nodes=[2, 3])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2, 2, 3], [1, 0, 0])
        assert harness.produce("t", "b") == 1


def test_who_was_elected_leads_on_when_the_first_replica_comes_back(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2])])
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2], [1])


def test_without_a_replica_there_is_no_leader_and_the_next_one_has_a_new_epoch(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2])])
        harness.restart(nodes=[1])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([NO_LEADER], [1])
        harness.restart(nodes=[1, 2])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2], [2])


def test_a_replica_that_is_not_in_sync_is_not_elected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        topic_id, _ = harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3])])
        harness.cluster.commit([records.PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 3])])
        harness.restart(nodes=[2, 3])
        assert leaders(harness, "t") == [3]
        harness.restart(nodes=[2])
        assert leaders(harness, "t") == [NO_LEADER]


@pytest.mark.parametrize(
    ("eligible", "last_known", "elected", "left"),
    [
        ([3, 2], [1], 3, [2]),  # what left the replicas in sync with every record in its log
        ([3], [2], 3, []),
        ([], [2], 2, []),  # the last leader there was
        ([], [], NO_LEADER, []),
        ([4], [2], NO_LEADER, [4]),  # who has every record is away, so the last leader has to wait
    ],
)
def test_without_replicas_in_sync_an_eligible_one_leads_alone(
    tmp_path: Path, eligible: list[int], last_known: list[int], elected: int, left: list[int]
) -> None:
    # as a controlled shutdown of the last replica leaves it in a Kafka with eligible.leader.replicas.version=1
    with Harness(tmp_path, nodes=4) as harness:
        topic_id, _ = harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3, 4])])
        nobody = records.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NO_LEADER, isr=[])
        nobody.eligible_leader_replicas, nobody.last_known_elr = eligible, last_known
        harness.cluster.commit([nobody])
        harness.restart(nodes=[1, 2, 3])
        partition = harness.partition("t")
        assert (partition.leader_id, partition.leader_epoch) == (elected, 2 if elected != NO_LEADER else 1)
        assert partition.isr == ([elected] if elected != NO_LEADER else [])
        assert partition.eligible_leader_replicas == left
        assert partition.last_known_elr == ([] if elected != NO_LEADER else last_known)


@pytest.mark.parametrize(("crash", "epochs_after"), [(False, [0, 0]), (True, [1, 1])])
def test_leaders_begin_an_epoch_after_a_crash_which_may_have_lost_records(
    harness: Harness, crash: bool, epochs_after: list[int]
) -> None:
    harness.create_topic("t", 2)
    harness.restart(crash=crash)
    assert (leaders(harness, "t"), epochs(harness, "t")) == ([1, 1], epochs_after)


def test_an_election_that_changes_nothing_records_nothing(harness: Harness) -> None:
    harness.create_topic("t", 3)
    end_offset = harness.cluster.metadata_log.storage.log_end_offset
    harness.cluster.controller.elect()
    assert harness.cluster.metadata_log.storage.log_end_offset == end_offset


# --- producer ids -------------------------------------------------------------------------------


def test_producer_ids_come_in_recorded_blocks_which_a_restart_does_not_reuse(harness: Harness) -> None:
    controller = harness.cluster.controller
    assert [controller.next_producer_id() for _ in range(1001)] == list(range(1001))
    assert [one.next_producer_id for one in recorded(harness, records.ProducerIdsRecord)] == [1000, 2000]
    harness.restart(crash=True)
    assert harness.cluster.controller.next_producer_id() == 2000


def test_a_block_that_cannot_be_recorded_gives_no_id(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster.metadata_log, "append", fail)
        with pytest.raises(KafkaError):
            harness.cluster.controller.next_producer_id()
    assert harness.cluster.controller.next_producer_id() == 0
