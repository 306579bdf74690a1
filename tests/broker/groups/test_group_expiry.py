"""The end of offsets: by retention, as an old client wanted, with their topic; and of groups nothing is left of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.classic.classic_states import ClassicState
from minibroker.broker.groups.offsets_of_group import CommittedOffset
from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.broker.handlers.offset_requests import commit
from tests.broker.harness import Harness

MINUTE_MS = 60_000
SETTINGS = {
    "offsets.retention.minutes": "10",
    "offsets.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "0",
}


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Offsets are kept for ten minutes, and looked at every second; there are the topics "t" and "u"."""
    with Harness(tmp_path, settings=SETTINGS) as harness:
        Housekeeping(harness.cluster).start_chores()
        harness.create_topic("t", 2)
        harness.create_topic("u")
        yield harness


def group_of(harness: Harness, group_id: str = "g") -> ClassicGroup | None:
    group = harness.cluster.groups.groups.get(group_id)
    assert group is None or isinstance(group, ClassicGroup)
    return group


def offsets(harness: Harness) -> list[tuple[str, int]]:
    group = group_of(harness)
    assert group is not None
    return sorted(group.offsets.by_partition)


def restarted(harness: Harness) -> None:
    harness.restart(crash=True)
    Housekeeping(harness.cluster).start_chores()


def test_offsets_of_a_group_without_members_expire_after_their_last_commit(harness: Harness) -> None:
    commit(harness, "g", ("t", 0, 5), ("t", 1, 5))
    harness.clock.advance(6 * MINUTE_MS)
    commit(harness, "g", ("t", 1, 6))
    harness.clock.advance(4 * MINUTE_MS - 1)
    assert offsets(harness) == [("t", 0), ("t", 1)]
    harness.clock.advance(1001)
    assert offsets(harness) == [("t", 1)]
    restarted(harness)
    assert offsets(harness) == [("t", 1)]
    harness.clock.advance(6 * MINUTE_MS)
    assert group_of(harness) is None
    restarted(harness)
    assert group_of(harness) is None


def test_offsets_of_a_group_expire_a_retention_time_after_it_became_empty(harness: Harness) -> None:
    commit(harness, "g", ("t", 0, 5))
    group = group_of(harness)
    assert group is not None
    harness.clock.advance(9 * MINUTE_MS)
    group.kind, group.topics, group.state_since_ms = "consumer", frozenset(), harness.clock.wall_ms()
    harness.clock.advance(10 * MINUTE_MS - 1)
    assert offsets(harness) == [("t", 0)]
    harness.clock.advance(1001)
    assert group_of(harness) is None


def test_only_unsubscribed_offsets_expire_in_a_group_with_members(harness: Harness) -> None:
    commit(harness, "g", ("t", 0, 5), ("u", 0, 5))
    group = group_of(harness)
    assert group is not None
    group.kind, group.state, group.topics = "consumer", ClassicState.STABLE, frozenset({"t"})
    harness.clock.advance(60 * MINUTE_MS)
    assert offsets(harness) == [("t", 0)]
    group.topics = frozenset()
    harness.clock.advance(1000)
    assert offsets(harness) == [] and group_of(harness) is group


@pytest.mark.parametrize("state", [ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE])
def test_no_offset_expires_during_a_rebalance(harness: Harness, state: ClassicState) -> None:
    commit(harness, "g", ("t", 0, 5))
    group = group_of(harness)
    assert group is not None
    group.kind, group.state, group.topics = "consumer", state, frozenset()
    harness.clock.advance(60 * MINUTE_MS)
    assert offsets(harness) == [("t", 0)]


@pytest.mark.parametrize("minutes", [1, 20])
def test_an_old_client_sets_the_retention_time_of_its_offset(harness: Harness, minutes: int) -> None:
    commit(harness, "g", ("t", 0, 5), version=4, retention_time_ms=minutes * MINUTE_MS)
    restarted(harness)
    harness.clock.advance(minutes * MINUTE_MS - 1)
    assert offsets(harness) == [("t", 0)]
    harness.clock.advance(1001)
    assert group_of(harness) is None


def test_an_offset_does_not_expire_while_a_transactional_one_is_pending(harness: Harness) -> None:
    commit(harness, "g", ("t", 0, 5), ("t", 1, 5))
    group = group_of(harness)
    assert group is not None
    group.offsets.pending[9] = {("t", 0): CommittedOffset(9, -1, "", 0)}
    harness.clock.advance(60 * MINUTE_MS)
    assert offsets(harness) == [("t", 0)]


def test_offsets_are_kept_while_the_log_cannot_be_written(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    commit(harness, "g", ("t", 0, 5))
    log = harness.partition(GROUPS_TOPIC, harness.cluster.groups.log.get_partition_index("g")).log
    log.offline = "the disk is away"
    harness.clock.advance(11 * MINUTE_MS)
    assert offsets(harness) == [("t", 0)]
    assert "that have expired stay for now" in caplog.text
    log.offline = ""
    harness.clock.advance(1000)
    assert group_of(harness) is None


def test_offset_expiry_creates_no_coordinator_without_groups(harness: Harness) -> None:
    harness.clock.advance(60 * MINUTE_MS)
    assert harness.cluster.coordinators.made == {}


def heartbeat(harness: Harness, epoch: int, *topics: str) -> int:
    """Of the only member of the consumer group "c"; its epoch then."""
    fields: dict[str, Any] = {"subscribed_topic_names": list(topics), "topic_partitions": [], "rebalance_timeout_ms": 1}
    request = ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", member_epoch=epoch, **(fields if epoch == 0 else {})
    )
    answer = harness.request(request, node=harness.coordinator("c"))
    assert answer.error_code == ErrorCode.NONE, answer
    member_epoch: int = answer.member_epoch
    return member_epoch


def test_an_offset_of_a_consumer_group_expires_once_no_member_is_subscribed(harness: Harness) -> None:
    epoch = heartbeat(harness, 0, "t")
    member = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    assert commit(harness, "c", ("t", 0, 5), ("u", 0, 5), **member) == [0, 0]
    groups = harness.cluster.groups.groups
    for _ in range(22):
        assert set(groups["c"].offsets.by_partition) == {("t", 0), ("u", 0)}
        harness.clock.advance(MINUTE_MS / 2 - 1500)
        heartbeat(harness, epoch)
    harness.clock.advance(1001)
    assert list(groups["c"].offsets.by_partition) == [("t", 0)]
    harness.clock.advance(MINUTE_MS)  # the member is silent, and missed
    assert "c" not in groups
    restarted(harness)
    assert "c" not in harness.cluster.groups.groups
