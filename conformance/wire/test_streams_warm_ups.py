"""Warm-ups of streams groups (KIP-1071): a task with state goes to a new member when that one has caught up."""

from __future__ import annotations

import pytest

from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.streams_members import Member, TaskOffset, configure, internal, settle, subtopology, topology


@pytest.fixture(autouse=True)
def without_delays(connection: Connection, group: str) -> None:
    configure(connection, group, initial_rebalance_delay_ms="0", assignment_interval_ms="0")


@pytest.mark.parametrize("warm_ups", ["0", "2"])
def test_a_stateful_task_moves_to_a_new_member(
    connection: Connection, new_topic: NewTopic, group: str, differing: Differing, warm_ups: str
) -> None:
    configure(connection, group, num_warmup_replicas=warm_ups)
    changelog = [internal(f"{group}-changelog")]
    counts = topology(subtopology("0", new_topic(4), state_changelog_topics=changelog))
    first, second = Member(connection, group, "m-1", counts), Member(connection, group, "m-2", counts)
    first.join(version=1)
    alone = settle(connection, group, first, version=1)
    assert (first.active, first.epoch) == ({"0": {0, 1, 2, 3}}, alone.group_epoch)
    second.join(version=1)
    both = settle(connection, group, first, second, version=1)
    assert both.group_epoch == alone.group_epoch + 1
    moved = [{"0": {0, 1}}, {"0": {2, 3}}, {}]
    warmed_up = [{"0": {0, 1, 2, 3}}, {}, {"0": {2, 3}}] if warm_ups == "2" else moved
    because = "Kafka 4.4.0 has the settings and the offsets of warm-ups, but makes none"
    found = [first.active, second.active, second.warmup]
    assert found == differing(kafka=moved, minibroker=warmed_up, because=because)
    restored = [TaskOffset(subtopology_id="0", partition=task, offset=9) for task in (2, 3)]
    second.beat(version=1, task_offsets=restored, task_end_offsets=restored)
    last = settle(connection, group, first, second, version=1)
    assert [first.active, second.active, second.warmup] == moved
    steps = differing(kafka=0, minibroker=int(warm_ups == "2"), because=because)
    assert last.group_epoch == both.group_epoch + steps
