"""DescribeConfigs and IncrementalAlterConfigs: what is shown, and what a change of a topic does at once and later.

Changes of brokers are in `test_broker_configs.py`, those of other resources in `test_incremental_configs.py`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from minibroker.broker.configs.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
from minibroker.broker.configs.settings_without_effect import WITHOUT_EFFECT
from minibroker.broker.handlers import configs
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from tests.broker.handlers.config_requests import (
    APPEND,
    BROKER,
    DEFAULT,
    DELETE,
    DESCRIBED,
    DYNAMIC_DEFAULT,
    DYNAMIC_TOPIC,
    INT,
    LONG,
    SET,
    STATIC,
    TOPIC,
    WITH_SOURCES,
    WITH_TYPES,
    Line,
    alter,
    describe,
    entry,
    value,
)
from tests.broker.harness import Harness, batch

# --- DescribeConfigs ----------------------------------------------------------------------------


OURS = {"message.format.version", "message.timestamp.difference.max.ms", "record.attributes.elide"}


def test_configs_that_kafka_lacks_are_described_only_if_set_or_requested(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.message.timestamp.difference.max.ms": "5"}) as harness:
        harness.create_topic("t", message_format_version="0.10.2")
        listed = {found.name for found in describe(harness, TOPIC, "t").configs}
        assert listed & OURS == {"message.format.version", "message.timestamp.difference.max.ms"}
        assert value(harness, TOPIC, "t", "record.attributes.elide") == ("false", DEFAULT)
        of_broker = {found.name for found in describe(harness, BROKER, "1").configs}
        assert "log.message.timestamp.difference.max.ms" in of_broker
        assert "log.message.format.version" not in of_broker


@pytest.mark.parametrize("version", DESCRIBED)
def test_each_version_describes_a_setting_with_its_own_fields(harness: Harness, version: int) -> None:
    harness.create_topic("t", segment_ms="5000")
    found = {
        name: entry(harness, TOPIC, "t", name, version=version, include_synonyms=True, include_documentation=True)
        for name in ("segment.ms", "index.interval.bytes")
    }
    own, default = found["segment.ms"], found["index.interval.bytes"]
    assert (own.value, default.value) == ("5000", "4096")
    if version < WITH_SOURCES:
        assert (own.is_default, default.is_default) == (False, True)
    else:
        assert (own.config_source, default.config_source) == (DYNAMIC_TOPIC, DEFAULT)
        assert [(one.name, one.value, one.source) for one in default.synonyms] == [
            ("log.index.interval.bytes", "4096", DEFAULT)
        ]
    if version >= WITH_TYPES:
        assert (own.config_type, default.config_type) == (LONG, INT)
        assert default.documentation == TOPIC_SETTINGS["index.interval.bytes"].documentation


def test_a_config_entry_shared_by_many_topics_is_built_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    make = configs._make_described_entry
    monkeypatch.setattr(
        configs, "_make_described_entry", lambda request, each: made.append(each) or make(request, each)
    )
    names = [f"topic-{number}" for number in range(20)]
    for name in names:
        harness.create_topic(name)
    alter(harness, TOPIC, names[7], ("retention.ms", SET, "7"))
    asked = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]
    results = harness.request(DescribeConfigsRequest(resources=asked), DESCRIBED[-1]).results
    told = [{each.name: each.value for each in result.configs} for result in results]
    assert [values["retention.ms"] for values in told] == ["604800000"] * 7 + ["7"] + ["604800000"] * 12
    assert len(made) == len(told[0]) + 1


@pytest.mark.parametrize("version", DESCRIBED)
def test_a_broker_is_described_with_all_its_settings(harness: Harness, version: int) -> None:
    result = describe(harness, BROKER, "1", version=version)
    rows = {**BROKER_SETTINGS, **WITHOUT_EFFECT}.values()
    assert [found.name for found in result.configs] == sorted(
        row.name for row in rows if row.in_kafka and not row.internal
    )
    read_only = {found.name: found.read_only for found in result.configs}
    assert (read_only["node.id"], read_only["log.retention.ms"]) == (True, False)


def test_a_static_setting_is_described_with_its_source(harness: Harness) -> None:
    assert value(harness, BROKER, "1", "log.dirs") == (str(harness.directory / "data"), STATIC)
    assert value(harness, BROKER, "1", "num.partitions") == ("1", DEFAULT)


def test_each_node_describes_its_own_configs(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        for name in ("node.id", "broker.id"):
            found = entry(harness, BROKER, "2", name, node=2, include_synonyms=True)
            assert (found.value, found.synonyms[0].value) == ("2", "2")
        assert value(harness, BROKER, "1", "node.id") == ("1", STATIC)
        refused = describe(harness, BROKER, "2", node=1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "Unexpected broker id, expected 1 or empty string, but received 2"


def test_an_empty_broker_name_describes_the_cluster_wide_defaults(harness: Harness) -> None:
    assert [found.name for found in describe(harness, BROKER, "").configs] == ["min.insync.replicas"]
    alter(harness, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    found, _ = describe(harness, BROKER, "").configs
    assert (found.name, found.value, found.config_source) == ("log.segment.bytes", "2000000", DYNAMIC_DEFAULT)


def test_duplicate_and_unknown_config_resources_are_described_separately(topic: Harness) -> None:
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=[key]
        )
        for name, key in (("t", "retention.ms"), ("nope", "retention.ms"), ("t", "segment.ms"))
    ]
    results = topic.request(DescribeConfigsRequest(resources=asked)).results
    assert [[found.name for found in result.configs] for result in results] == [["retention.ms"], [], ["segment.ms"]]


# --- IncrementalAlterConfigs: topics ------------------------------------------------------------


def test_a_config_change_affects_the_next_produce(topic: Harness) -> None:
    large = batch("x" * 500)
    assert topic.produce_batch("t", large).error_code == ErrorCode.NONE
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "100"))
    assert topic.produce_batch("t", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(topic, TOPIC, "t", ("max.message.bytes", DELETE, None), ("cleanup.policy", SET, "compact"))
    assert topic.produce_batch("t", large).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("crash", [False, True])
def test_a_config_change_survives_a_restart(topic: Harness, crash: bool) -> None:
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "100"), ("segment.ms", SET, "7"))
    alter(topic, TOPIC, "t", ("segment.ms", DELETE, None))
    alter(topic, BROKER, "", ("log.index.interval.bytes", SET, "9"))
    topic.restart(crash=crash)
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_TOPIC)
    assert value(topic, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)
    assert value(topic, TOPIC, "t", "index.interval.bytes") == ("9", DYNAMIC_DEFAULT)
    assert topic.produce_batch("t", batch("x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "line", [("segment.ms", DELETE, None), ("segment.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")]
)
def test_altering_a_config_to_its_current_value_writes_nothing(harness: Harness, line: Line) -> None:
    configs = {} if line[1] == DELETE else {"segment_ms": "5", "cleanup_policy": "compact"}
    harness.create_topic("t", **configs)
    end_offset = harness.cluster.metadata_log.storage.log_end_offset
    assert alter(harness, TOPIC, "t", line) == (ErrorCode.NONE, None)
    assert alter(harness, TOPIC, "t") == (ErrorCode.NONE, None)
    assert harness.cluster.metadata_log.storage.log_end_offset == end_offset


def test_a_changed_topic_config_is_validated_together_with_existing_ones(topic: Harness) -> None:
    assert alter(topic, TOPIC, "t", ("min.compaction.lag.ms", SET, "10"))[0] == ErrorCode.NONE
    assert alter(topic, TOPIC, "t", ("max.compaction.lag.ms", SET, "5"))[0] == ErrorCode.INVALID_CONFIG


def test_configs_without_effect_are_logged_by_name(topic: Harness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        alter(topic, TOPIC, "t", ("local.retention.ms", SET, "7"), ("segment.ms", SET, "7"))
        alter(topic, BROKER, "", ("log.local.retention.ms", SET, "7"))
        alter(topic, TOPIC, "t", ("local.retention.ms", DELETE, None))
        topic.create_topic("u", local_retention_bytes="7")
    assert [record.getMessage() for record in caplog.records] == [
        "topic t: local.retention.ms is kept, but has no effect: tiered storage is missing",
        "broker (all): log.local.retention.ms is kept, but has no effect: tiered storage is missing",
        "topic u: local.retention.bytes is kept, but has no effect: tiered storage is missing",
    ]
