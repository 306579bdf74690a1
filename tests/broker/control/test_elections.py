"""Who leads when nodes come and go, what is recorded of it, and who learns of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.elections import elect_leaders_at_start
from minibroker.broker.metadata.features import ELIGIBLE_LEADER_REPLICAS
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from tests.broker.harness import Harness, batch


def recorded(harness: Harness, kind: type[Message]) -> list[Any]:
    """The records of one kind in the metadata log."""
    seen: list[Message] = []
    harness.cluster.metadata_log.replay_all_records(seen.append)
    return [record for record in seen if isinstance(record, kind)]


def leaders(harness: Harness, topic: str) -> list[int]:
    return [partition.leader_id for partition in harness.cluster.image.topics[topic].partitions]


def epochs(harness: Harness, topic: str) -> list[int]:
    return [partition.leader_epoch for partition in harness.cluster.image.topics[topic].partitions]


def create(harness: Harness, *assignment: list[int], **overrides: str) -> bytes:
    """The topic t with these replicas, partition by partition; its id."""
    given = list(enumerate(assignment))
    configs = {name.replace("_", "."): value for name, value in overrides.items()}
    return harness.cluster.controller.create_topic("t", assignment=given, overrides=configs)[0]


def test_leaders_are_unchanged_after_all_nodes_restart(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 6, 2)
        before = leaders(harness, "t")
        harness.restart()
        assert (leaders(harness, "t"), epochs(harness, "t")) == (before, [0] * 6)
        assert recorded(harness, records.PartitionChangeRecord) == []


def test_the_next_online_replica_becomes_leader_in_a_new_epoch(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3]), (1, [2, 3, 1]), (2, [3, 1, 2])])
        harness.produce("t", "a")
        harness.restart(nodes=[2, 3])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2, 2, 3], [1, 0, 0])
        assert harness.produce("t", "b") == 1


def test_an_elected_leader_stays_when_the_preferred_leader_returns(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2])])
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2], [1])


def test_a_partition_without_online_replicas_has_no_leader(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2])])
        harness.restart(nodes=[1])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([NO_LEADER], [1])
        harness.restart(nodes=[1, 2])
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([2], [2])


def test_an_out_of_sync_replica_is_not_elected(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        topic_id, _ = harness.cluster.controller.create_topic("t", assignment=[(0, [1, 2, 3])])
        harness.cluster.commit_metadata_records(
            [records.PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1, 3])]
        )
        harness.restart(nodes=[2])
        assert leaders(harness, "t") == [NO_LEADER]
        harness.restart(nodes=[2, 3])
        assert (leaders(harness, "t"), harness.partition("t").isr) == ([3], [3, 2])
        harness.restart(nodes=[2])
        assert leaders(harness, "t") == [2]


@pytest.mark.parametrize(
    ("eligible", "last_known", "elected", "left"),
    [
        ([3, 2], [1], 2, []),  # what left the replicas in sync with every record in its log
        ([3], [2], 3, []),
        ([], [2], 2, []),  # the last leader there was
        ([], [], NO_LEADER, []),
        ([4], [2], NO_LEADER, [4]),  # who has every record is away, so the last leader has to wait
    ],
)
def test_an_eligible_leader_replica_is_elected_without_in_sync_replicas(
    tmp_path: Path, eligible: list[int], last_known: list[int], elected: int, left: list[int]
) -> None:
    # as a controlled shutdown of the last replica leaves it in a Kafka with eligible.leader.replicas.version=1
    with Harness(tmp_path, nodes=4) as harness:
        topic_id = create(harness, [1, 2, 3, 4])
        nobody = records.PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NO_LEADER, isr=[])
        nobody.eligible_leader_replicas, nobody.last_known_elr = eligible, last_known
        harness.cluster.commit_metadata_records([nobody])
        harness.restart(nodes=[1, 2, 3])
        partition = harness.partition("t")
        assert (partition.leader_id, partition.leader_epoch) == (elected, 2 if elected != NO_LEADER else 1)
        in_sync = [elected, *(node for node in (1, 2, 3) if node != elected)]
        assert partition.isr == (in_sync if elected != NO_LEADER else [])
        assert partition.eligible_leader_replicas == left
        assert partition.last_known_elr == ([] if elected != NO_LEADER else last_known)


@pytest.mark.parametrize(("enabled", "isr", "eligible"), [(False, [1, 2], []), (True, [], [1, 2])])
def test_the_last_in_sync_replicas_become_eligible_leaders_when_they_go_offline(
    tmp_path: Path, enabled: bool, isr: list[int], eligible: list[int]
) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2])
        level = records.FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=int(enabled))
        harness.cluster.commit_metadata_records([level])
        harness.restart(nodes=[3])
        partition = harness.partition("t")
        assert (partition.leader_id, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, isr, eligible)
        assert partition.last_known_elr == ([1] if enabled else [])
        harness.restart(nodes=[2, 3])
        assert (partition := harness.partition("t")).leader_id == 2
        assert (partition.isr, partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [], [])


def test_an_offline_node_leaves_the_isr_until_it_returns(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2, 3], min_insync_replicas="3")
        harness.restart(nodes=[2, 3])
        assert harness.partition("t").isr == [2, 3]
        assert harness.produce_batch("t", batch("a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        harness.restart(nodes=[1, 2, 3])
        assert harness.partition("t").isr == [2, 3, 1]
        assert harness.produce("t", "a") == 0


def test_an_unclean_leader_is_elected_only_if_the_topic_allows_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        topic_id = create(harness, [1, 2])
        harness.cluster.commit_metadata_records(
            [records.PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1])]
        )
        harness.restart(nodes=[2])
        assert leaders(harness, "t") == [NO_LEADER]
        harness.cluster.controller.change_config(TOPIC_RESOURCE, "t", {"unclean.leader.election.enable": "true"})
        assert (leaders(harness, "t"), harness.partition("t").isr) == ([2], [2])


@pytest.mark.parametrize(("crash", "epochs_after"), [(False, [0, 0]), (True, [1, 1])])
def test_leaders_start_a_new_epoch_after_a_crash(harness: Harness, crash: bool, epochs_after: list[int]) -> None:
    harness.create_topic("t", 2)
    harness.restart(crash=crash)
    assert (leaders(harness, "t"), epochs(harness, "t")) == ([1, 1], epochs_after)


def test_an_election_without_a_change_records_nothing(harness: Harness) -> None:
    harness.create_topic("t", 3)
    end_offset = harness.cluster.metadata_log.storage.log_end_offset
    elect_leaders_at_start(harness.cluster)
    assert harness.cluster.metadata_log.storage.log_end_offset == end_offset


def test_leadership_returns_automatically_to_preferred_replicas(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        create(harness, [1, 2], [2, 3], [3, 1])
        harness.restart(nodes=[2, 3])
        harness.restart(nodes=[1, 2, 3])
        Housekeeping(harness.cluster).start_chores()
        assert leaders(harness, "t") == [2, 2, 3]
        harness.clock.advance(299_999)
        assert leaders(harness, "t") == [2, 2, 3]
        harness.clock.advance(1)
        assert (leaders(harness, "t"), epochs(harness, "t")) == ([1, 2, 3], [2, 0, 0])
        change = records.PartitionChangeRecord(partition_id=1, topic_id=harness.partition("t").topic.topic_id, leader=3)
        harness.cluster.commit_metadata_records([change])
        harness.clock.advance(299_000)
        assert leaders(harness, "t") == [1, 3, 3]
        harness.clock.advance(1000)
        assert leaders(harness, "t") == [1, 2, 3]


def test_leadership_stays_if_automatic_rebalancing_is_disabled(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2, settings={"auto.leader.rebalance.enable": "false"}) as harness:
        create(harness, [1, 2])
        harness.restart(nodes=[2])
        harness.restart(nodes=[1, 2])
        Housekeeping(harness.cluster).start_chores()
        harness.clock.advance(1_000_000)
        assert leaders(harness, "t") == [2]


def test_unclean_elections_process_a_hundred_partitions_per_step(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        create(harness, *[[1, 2]] * 250)
        harness.restart(nodes=[1])
        harness.restart(nodes=[2])
        assert leaders(harness, "t") == [NO_LEADER] * 250
        changes = {"unclean.leader.election.enable": "true"}
        steps = harness.cluster.controller.change_config_in_steps(TOPIC_RESOURCE, "t", changes)
        led = [leaders(harness, "t").count(2) for _ in steps]
        assert led == [0, 0, 0, 100, 200, 250, 250, 250, 250]  # first the logs hear of it, last who is in sync again


def test_partitions_added_or_deleted_during_an_iteration_in_portions_are_included_or_skipped(harness: Harness) -> None:
    controller = harness.cluster.controller
    for name, count in (("a", 30), ("b", 150), ("c", 40), ("d", 10)):
        controller.create_topic(name, count)
    given = harness.cluster.iterate_partition_portions()
    first = next(given)
    assert [sum(one.topic.name == name for one in first) for name in "ab"] == [30, 70]
    controller.add_partitions("b", 200)
    controller.delete_topic(harness.cluster.image.topics["c"])
    second, last = given
    assert [(one.topic.name, one.index) for one in second] == [("b", index) for index in range(70, 170)]
    assert [sum(one.topic.name == name for one in last) for name in "bcd"] == [30, 0, 10]
