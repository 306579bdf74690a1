"""Groups after a restart, folded from their records: members have what they had, and nothing is given twice.

Single records, in any order, are in `test_group.py`.
"""

from __future__ import annotations

import pytest

from tests.broker.groups.consumer.driving import REBALANCE_MS, Player, all_of, describe, group_of, owners, settle
from tests.broker.harness import Harness


@pytest.mark.parametrize("crash", [True, False])
def test_consumer_group_members_continue_after_a_restart(harness: Harness, topic: str, crash: bool) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic, instance="i2")
    third = Player(harness, "m3", subscribed_topic_regex="[t]", server_assignor="range")
    for player in (first, second, third):
        player.join()
    settle(first, second, third)
    before, had = describe(harness), owners([first, second, third])
    harness.restart(crash=crash)
    assert describe(harness) == before
    for player in (first, second, third):
        assert player.beat().assignment is None
    assert owners([first, second, third]) == had
    assert describe(harness) == before


def test_a_restart_during_a_revocation_assigns_no_partition_twice(harness: Harness, topic: str) -> None:
    first, second = Player(harness, "m1", topic), Player(harness, "m2", topic)
    first.join()
    second.join()
    held = set(first.owned)
    first.ask(topic_partitions=first.reported())  # told to give up, and has not yet
    harness.restart(crash=True)
    second.beat()
    assert (first.owned, second.owned) == (held, set())
    harness.clock.advance(REBALANCE_MS - 1)
    assert "m1" not in group_of(harness).members  # its session has ended meanwhile
    settle(second)
    assert second.owned == all_of(topic, 4)
