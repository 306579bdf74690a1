"""The settings of groups: what is in force for one, and which of the broker's go together."""

from __future__ import annotations

import pytest

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE
from tests.broker.groups.consumer.driving import BEAT_MS, GROUP, Player, describe
from tests.broker.harness import Harness
from tests.cases import for_each

SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def change(harness: Harness, **texts: str | None) -> None:
    """Set what belongs to the group itself; checked by whoever is asked for it, not here."""
    changes = {name.replace("_", "."): text for name, text in texts.items()}
    harness.cluster.controller.change_config(GROUP_RESOURCE, GROUP, changes)


def test_a_group_config_overrides_the_broker_config(harness: Harness) -> None:
    assert get_group_config(harness.cluster, GROUP, SESSION) == 45_000
    change(harness, consumer_session_timeout_ms="50000")
    assert get_group_config(harness.cluster, GROUP, SESSION) == 50_000
    assert get_group_config(harness.cluster, "another", SESSION) == 45_000
    harness.restart()
    assert get_group_config(harness.cluster, GROUP, SESSION) == 50_000
    change(harness, consumer_session_timeout_ms=None)
    assert get_group_config(harness.cluster, GROUP, SESSION) == 45_000


def test_a_group_config_is_limited_by_the_brokers_current_bounds(harness: Harness) -> None:
    change(harness, consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="5000")
    bounds = {
        "group.consumer.max.session.timeout.ms": "55000",
        "group.consumer.min.heartbeat.interval.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "7000",
    }
    harness.restart(settings=bounds)
    assert get_group_config(harness.cluster, GROUP, SESSION) == 55_000
    assert get_group_config(harness.cluster, GROUP, BEAT) == 6000


def test_members_use_the_settings_of_their_group(harness: Harness) -> None:
    harness.create_topic("t")
    change(harness, consumer_session_timeout_ms="50000", consumer_heartbeat_interval_ms="6000")
    assert Player(harness, "m1", "t").join().heartbeat_interval_ms == 6000
    harness.clock.advance(50_000 - 1)
    assert len(describe(harness).members) == 1
    harness.clock.advance(1)
    assert describe(harness).members == []
    change(harness, consumer_session_timeout_ms=None, consumer_heartbeat_interval_ms=None)
    assert Player(harness, "m1", "t").join().heartbeat_interval_ms == BEAT_MS


@for_each(
    "wrong",
    [
        {"group.consumer.session.timeout.ms": "44999"},
        {"group.consumer.session.timeout.ms": "60001"},
        {"group.consumer.heartbeat.interval.ms": "4999"},
        {"group.consumer.heartbeat.interval.ms": "15001"},
        {"group.consumer.assignment.interval.ms": "15001"},
        {"group.consumer.max.session.timeout.ms": "1000"},
        {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
        {"group.consumer.assignors": "sticky"},
        {"group.consumer.assignors": "uniform,com.example.Assignor"},
        {"group.consumer.migration.policy": "sometimes"},
        {"group.coordinator.rebalance.protocols": "consumer"},
        {"group.coordinator.rebalance.protocols": "classic,paper"},
    ],
)
def test_inconsistent_group_settings_are_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong)).split(".")[-1].replace("protocols", "protocol|one of")):
        Settings(wrong)


@pytest.mark.parametrize("policy", ["disabled", "Upgrade", "DOWNGRADE", "bidirectional"])
def test_migration_policy_names_are_case_insensitive(policy: str) -> None:
    assert Settings({"group.consumer.migration.policy": policy})["group.consumer.migration.policy"] == policy
