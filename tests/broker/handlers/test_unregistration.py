"""UnregisterBroker: a broker that is away, and one that is there, are forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.registration import unregister_broker_in_steps as steps_of_unregistering
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.cluster import (
    DescribeClusterRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.broker.harness import Harness, batch


def unregister(harness: Harness, broker_id: int, node: int = 1) -> tuple[int, str | None]:
    answer = harness.request(UnregisterBrokerRequest(broker_id=broker_id), node=node)
    return answer.error_code, answer.error_message


def brokers(harness: Harness) -> dict[int, bool]:
    """Return by broker in the answer whether it is fenced."""
    answer = harness.request(DescribeClusterRequest(include_fenced_brokers=True))
    return {one.broker_id: one.is_fenced for one in answer.brokers}


def test_an_offline_broker_is_unregistered_permanently(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        epoch = harness.cluster.nodes[2].broker_epoch
        harness.restart(nodes=[1])
        assert brokers(harness) == {1: False, 2: True}
        assert unregister(harness, 2) == (ErrorCode.NONE, "")
        assert brokers(harness) == {1: False}
        seen: list[Any] = []
        harness.cluster.metadata_log.replay_all_records(seen.append)
        (record,) = [one for one in seen if isinstance(one, records.UnregisterBrokerRecord)]
        assert (record.broker_id, record.broker_epoch) == (2, epoch)
        harness.restart(nodes=[1])
        assert brokers(harness) == {1: False}
        message = "Broker ID 2 is not currently registered"
        assert unregister(harness, 2) == (ErrorCode.BROKER_ID_NOT_REGISTERED, message)


def test_an_unregistered_online_node_loses_leadership_until_its_restart(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2, 1])])
        client = harness.client(node=2)
        assert unregister(harness, 2, node=2) == (ErrorCode.NONE, "")
        partition = harness.partition("t")
        assert (partition.leader_id, partition.isr, partition.leader_epoch) == (1, [1], 1)
        client.send(MetadataRequest(topics=None))
        ((_, answer),) = client.responses()
        assert ([one.node_id for one in answer.brokers], answer.controller_id) == ([1], 1)
        assert harness.produce("t", "a") == 0
        harness.restart(nodes=[1, 2])
        assert (brokers(harness), harness.partition("t").isr) == ({1: False, 2: False}, [1, 2])


def test_the_last_node_can_be_unregistered(harness: Harness) -> None:
    harness.create_topic("t")
    client = harness.client()
    assert unregister(harness, 1) == (ErrorCode.NONE, "")
    client.send(MetadataRequest(topics=None))
    ((_, answer),) = client.responses()
    assert (answer.brokers, answer.controller_id) == ([], -1)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    client.send(DescribeClusterRequest())
    ((_, described),) = client.responses()
    assert (described.brokers, described.controller_id) == ([], -1)
    harness.restart()
    assert harness.produce_batch("t", batch("a")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("broker_id", [-1, 9])
def test_an_unknown_broker_cannot_be_unregistered(harness: Harness, broker_id: int) -> None:
    message = f"Broker ID {broker_id} is not currently registered"
    assert unregister(harness, broker_id) == (ErrorCode.BROKER_ID_NOT_REGISTERED, message)


def test_leadership_is_transferred_a_hundred_partitions_per_step(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(index, [2, 1]) for index in range(250)])
        before = harness.dispatcher.slicer.steps
        assert unregister(harness, 2) == (ErrorCode.NONE, "")
        assert harness.dispatcher.slicer.steps - before >= 3
        assert {(one.leader_id, *one.isr) for one in harness.cluster.image.topics["t"].partitions} == {(1, 1)}


def test_a_crash_during_an_unregistration_leaves_no_leadership_to_the_broker(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(index, [2, 1]) for index in range(250)])
        next(steps_of_unregistering(harness.cluster, 2))
        led = [one.leader_id for one in harness.cluster.image.topics["t"].partitions]
        assert (led.count(1), led.count(2)) == (100, 150)
        harness.restart(nodes=[1], crash=True)
        assert brokers(harness) == {1: False}
        assert {(one.leader_id, *one.isr) for one in harness.cluster.image.topics["t"].partitions} == {(1, 1)}


def test_unregistering_a_controller_is_rejected(harness: Harness) -> None:
    def told() -> tuple[int, str]:
        answer = harness.request(UnregisterControllerRequest(controller_id=1))
        return answer.error_code, answer.error_message

    message = "Controller ID 1 is not currently registered."
    assert told() == (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name="metadata.version", feature_level=32)])
    assert told() == (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, message)
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name="metadata.version", feature_level=31)])
    old = "The current MetadataVersion is too old to support controller unregistration."
    assert told() == (ErrorCode.UNSUPPORTED_VERSION, old)
