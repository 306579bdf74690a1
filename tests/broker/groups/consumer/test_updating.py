"""How a group changes: how many members it takes, by which assignor and when it divides anew, and all of it or nothing.

What comes of the members' wishes is in `test_heartbeat.py` and `test_subscriptions.py`.
"""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.broker.groups.consumer.driving import GROUP, Player, all_of, describe, owners, settle
from tests.broker.harness import Harness


def test_a_consumer_group_is_limited_to_its_maximum_size(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.max.size": "1"})
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert second.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.join().error_code == ErrorCode.NONE
    assert first.beat().error_code == ErrorCode.NONE


def test_a_static_member_can_rejoin_a_full_group(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.max.size": "1"})
    first = Player(harness, "m1", topic, instance="i")
    first.join()
    first.leave(-2)
    assert Player(harness, "m2", topic, instance="i").join().error_code == ErrorCode.NONE


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_most_members_request_is_used(harness: Harness, assignor: str) -> None:
    harness.create_topic("t", 3)
    harness.create_topic("u", 3)
    other = "range" if assignor == "uniform" else "uniform"
    wishes = [other, assignor, assignor]
    players = [Player(harness, f"m{n}", "t", "u", server_assignor=wish) for n, wish in enumerate(wishes)]
    for player in players:
        player.join()
    settle(*players)
    assert describe(harness).assignor_name == assignor
    assert owners(players).keys() == all_of("t", 3) | all_of("u", 3)


def test_the_first_assignor_of_the_broker_config_is_the_default(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignors": "range"})
    player = Player(harness, "m1", topic)
    assert player.join(server_assignor="uniform").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert player.join().error_code == ErrorCode.NONE
    assert describe(harness).assignor_name == "range"


def test_a_target_assignment_is_unchanged_during_the_assignment_interval(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignment.interval.ms": "1000"})
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    assert len(first.owned) == 4
    second.join()
    assert describe(harness).group_state == "Assigning"
    first.beat()
    assert first.epoch == second.epoch == 2
    harness.clock.advance(1000)
    settle(first, second)
    assert len(first.owned) == len(second.owned) == 2


def test_joining_an_empty_group_assigns_at_once_despite_the_assignment_interval(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignment.interval.ms": "1000"})
    player = Player(harness, "m1", topic)
    player.join()
    player.leave()
    empty = describe(harness)
    assert (empty.group_state, empty.group_epoch, empty.assignment_epoch) == ("Empty", 3, 3)
    harness.restart(crash=True)
    assert describe(harness).assignment_epoch == 3
    assert Player(harness, "m2", topic).join().member_epoch == 4


def test_the_assignment_interval_can_be_changed_while_the_broker_runs(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[
            IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
                name="group.consumer.assignment.interval.ms", config_operation=0, value="1000"
            )
        ],
    )
    (answer,) = harness.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.NONE
    second.join()
    assert describe(harness).group_state == "Assigning"


def test_a_heartbeat_that_cannot_be_recorded_changes_nothing(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    before = describe(harness)
    partition = harness.partition("__consumer_offsets", harness.cluster.groups.log.get_partition_index(GROUP))
    limit = partition.log.settings
    partition.log.update_settings(limit._replace(max_message_bytes=10))
    assert second.join().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert describe(harness) == before
    assert first.beat().error_code == ErrorCode.NONE  # nothing to record
    partition.log.update_settings(limit)
    assert second.join().error_code == ErrorCode.NONE
