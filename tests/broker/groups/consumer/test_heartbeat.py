"""ConsumerGroupHeartbeat: what members keep, and what they get from those that leave."""

from __future__ import annotations

from tests.broker.groups.consumer.driving import Player, all_of, owners, settle
from tests.broker.harness import Harness


def test_a_member_that_does_not_report_its_partitions_keeps_them(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    first.ask()
    for _ in range(3):
        assert first.ask().member_epoch == 2
        second.beat()
    assert second.owned == set()


def test_partitions_of_a_member_that_leaves_go_to_the_others(harness: Harness, topic: str) -> None:
    players = [Player(harness, f"m{number}", topic) for number in range(3)]
    for player in players:
        player.join()
    settle(*players)
    assert owners(players).keys() == all_of(topic, 4)
    assert players[0].leave().member_epoch == -1
    settle(*players[1:])
    assert owners(players[1:]).keys() == all_of(topic, 4)
