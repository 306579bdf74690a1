"""IncrementalAlterConfigs of brokers: what a change does at once, and what each node has for itself."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.steps import run_all_steps
from tests.broker.handlers.config_requests import (
    APPEND,
    BROKER,
    DEFAULT,
    DELETE,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    DYNAMIC_TOPIC,
    LONG,
    SET,
    STATIC,
    TOPIC,
    alter,
    describe,
    entry,
    value,
    values,
)
from tests.broker.harness import Harness, batch


def test_a_dynamic_broker_value_is_immediately_the_topic_default(topic: Harness) -> None:
    assert alter(topic, BROKER, "", ("message.max.bytes", SET, "100")) == (ErrorCode.NONE, None)
    assert topic.produce_batch("t", batch("x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_DEFAULT)
    assert value(topic, BROKER, "1", "message.max.bytes") == ("100", DYNAMIC_DEFAULT)


def test_a_per_broker_value_overrides_the_cluster_wide_one(topic: Harness) -> None:
    alter(topic, BROKER, "", ("message.max.bytes", SET, "100"))
    assert alter(topic, BROKER, "1", ("message.max.bytes", SET, "200")) == (ErrorCode.NONE, None)
    assert values(topic, TOPIC, "t", "max.message.bytes") == [
        ("message.max.bytes", "200", DYNAMIC_BROKER),
        ("message.max.bytes", "100", DYNAMIC_DEFAULT),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    alter(topic, BROKER, "1", ("message.max.bytes", DELETE, None))
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_DEFAULT)


def test_a_topics_own_config_stays_when_the_brokers_config_changes(topic: Harness) -> None:
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "300"))
    alter(topic, BROKER, "", ("message.max.bytes", SET, "100"))
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("300", DYNAMIC_TOPIC)
    assert topic.partition("t").log.settings.max_message_bytes == 300


def test_appending_to_an_unset_broker_list_extends_its_default(harness: Harness) -> None:
    assert alter(harness, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert value(harness, BROKER, "", "log.cleanup.policy") == ("delete,compact", DYNAMIC_DEFAULT)


def test_unknown_broker_configs_and_those_without_effect_are_kept_and_described(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    rate, unknown = "leader.replication.throttled.rate", "no.such.name"
    ours, base = "listener.name.x.max.connections.per.ip", "max.connections.per.ip"
    lines = [(rate, SET, "1000"), (unknown, SET, "5"), (ours, SET, "7")]
    with caplog.at_level(logging.WARNING):
        assert alter(harness, BROKER, "1", *lines) == (ErrorCode.NONE, None)
    assert f"broker 1: {rate} is kept, but has no effect: the replicas of a partition share one log" in caplog.text
    harness.restart(crash=True)
    found = entry(harness, BROKER, "1", rate, include_documentation=True)
    assert (found.value, found.config_source, found.config_type, found.read_only) == (
        "1000",
        DYNAMIC_BROKER,
        LONG,
        False,
    )
    assert found.documentation == "No effect: the replicas of a partition share one log."
    found = entry(harness, BROKER, "1", unknown)
    assert (found.value, found.config_source, found.config_type) == (None, DYNAMIC_BROKER, 0)
    assert found.is_sensitive and found.read_only
    assert values(harness, BROKER, "1", ours) == [(ours, "7", DYNAMIC_BROKER), (base, "2147483647", DEFAULT)]
    assert alter(harness, BROKER, "1", *[(key, DELETE, None) for key, _, _ in lines]) == (ErrorCode.NONE, None)
    assert describe(harness, BROKER, "1", rate, unknown, ours).configs == []


def test_a_setting_without_effect_is_described_with_its_static_value(tmp_path: Path) -> None:
    settings = {"num.io.threads": "16", "ssl.keystore.password": "secret"}
    with Harness(tmp_path, settings=settings) as harness:
        assert value(harness, BROKER, "1", "num.io.threads") == ("16", STATIC)
        assert value(harness, BROKER, "1", "ssl.keystore.password") == (None, STATIC)


def test_each_of_several_brokers_in_a_process_has_its_own_values(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [1, 3]), (1, [2, 3]), (2, [3, 1])])
        assert alter(harness, BROKER, "2", ("message.max.bytes", SET, "99"), node=2) == (ErrorCode.NONE, None)
        assert alter(harness, BROKER, "3", ("message.max.bytes", SET, "77"), node=3) == (ErrorCode.NONE, None)

        def limits() -> list[int]:
            return [harness.partition("t", index).log.settings.max_message_bytes for index in range(3)]

        assert limits() == [1_048_588, 99, 77]  # a log goes by its leader's
        harness.restart(crash=True)
        assert limits() == [1_048_588, 99, 77]
        assert value(harness, BROKER, "1", "message.max.bytes") == ("1048588", DEFAULT)
        assert value(harness, BROKER, "2", "message.max.bytes", node=2) == ("99", DYNAMIC_BROKER)
        assert value(harness, BROKER, "3", "message.max.bytes", node=3) == ("77", DYNAMIC_BROKER)
        assert value(harness, TOPIC, "t", "max.message.bytes", node=2) == ("99", DYNAMIC_BROKER)
        harness.restart(nodes=[1, 3])
        assert limits() == [1_048_588, 77, 77]  # node 3 leads for 2
        assert alter(harness, BROKER, "3", ("message.max.bytes", DELETE, None), node=3) == (ErrorCode.NONE, None)
        assert limits() == [1_048_588, 1_048_588, 1_048_588]


def test_a_new_topic_uses_its_leaders_settings_immediately(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        alter(harness, BROKER, "2", ("message.max.bytes", SET, "99"), node=2)
        harness.cluster.controller.create_topic("t", assignment=[(0, [2]), (1, [1])])
        assert harness.partition("t", 0).log.settings.max_message_bytes == 99
        assert harness.partition("t", 1).log.settings.max_message_bytes == 1_048_588


def test_setting_a_process_wide_config_on_a_broker_other_than_the_first_logs_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Harness(tmp_path, nodes=2) as harness, caplog.at_level(logging.WARNING):
        alter(harness, BROKER, "2", ("log.cleaner.threads", SET, "2"), ("log.retention.ms", SET, "7"), node=2)
        assert harness.cluster.settings["log.cleaner.threads"] == 1
        assert [record.getMessage() for record in caplog.records] == [
            "broker 2: log.cleaner.threads acts only as broker 1 has it, for all nodes here"
        ]


def test_each_of_several_brokers_is_described_with_its_own_listeners_and_rack(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:0",
        "advertised.listeners": "PLAINTEXT://kafka.test:80,INTERNAL://kafka.test:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "broker.rack": "a,b",
    }
    with Harness(tmp_path, nodes=2, settings=settings) as harness:
        harness.cluster.nodes[1].rack, harness.cluster.nodes[2].rack = "a", "b"
        run_all_steps(harness.cluster.controller.apply_changed_log_settings(None))
        names = ("broker.rack", "listeners", "advertised.listeners", "node.id")
        told = [[entry(harness, BROKER, str(node), name, node=node).value for name in names] for node in (1, 2)]
        assert told == [
            ["a", settings["listeners"], settings["advertised.listeners"], "1"],
            [
                "b",
                "PLAINTEXT://127.0.0.1:9093,INTERNAL://[::1]:0",
                "PLAINTEXT://kafka.test:81,INTERNAL://kafka.test:0",
                "2",
            ],
        ]


def test_a_config_that_is_not_set_can_be_removed_from_one_of_several_brokers(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        lines = [(f"{who}.replication.throttled.rate", DELETE, None) for who in ("leader", "follower")]
        assert alter(harness, BROKER, "2", *lines, node=2) == (ErrorCode.NONE, None)
        assert alter(harness, BROKER, "", ("message.max.bytes", SET, "9"), node=2) == (ErrorCode.NONE, None)
