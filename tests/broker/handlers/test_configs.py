"""DescribeConfigs and IncrementalAlterConfigs: what is shown, what a change does at once, and every refusal."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
from minibroker.broker.settings_without_effect import WITHOUT_EFFECT
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.steps import at_once
from tests.broker.harness import Harness, batch, served_versions

DESCRIBED = served_versions(DescribeConfigsRequest)
ALTERED = served_versions(IncrementalAlterConfigsRequest)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
INT, LONG, LIST = 3, 5, 7
WITH_SOURCES, WITH_TYPES = 1, 3

Line = tuple[str, int, str | None]
AlterResource = IncrementalAlterConfigsRequest.AlterConfigsResource


def describe(
    harness: Harness, kind: int, name: str, *keys: str, version: int = DESCRIBED[-1], node: int = 1, **flags: bool
) -> Any:
    """The answer for one resource; without `keys` all of its settings."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = harness.request(DescribeConfigsRequest(resources=[resource], **flags), version, node=node).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entry(harness: Harness, kind: int, name: str, key: str, **more: Any) -> Any:
    (found,) = describe(harness, kind, name, key, **more).configs
    return found


def value(harness: Harness, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """A setting's value and the source of it."""
    found = entry(harness, kind, name, key)
    return found.value, found.config_source


def resource(kind: int, name: str, *lines: Line) -> AlterResource:
    configs = [AlterResource.AlterableConfig(name=key, config_operation=op, value=text) for key, op, text in lines]
    return AlterResource(resource_type=kind, resource_name=name, configs=configs)


def alter_all(harness: Harness, *resources: AlterResource, **more: Any) -> list[tuple[int, str | None]]:
    """(error, message) for each resource."""
    version, node = more.pop("version", ALTERED[-1]), more.pop("node", 1)
    response = harness.request(IncrementalAlterConfigsRequest(resources=list(resources), **more), version, node=node)
    assert [(answer.resource_type, answer.resource_name) for answer in response.responses] == [
        (asked.resource_type, asked.resource_name) for asked in resources
    ]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


def alter(harness: Harness, kind: int, name: str, *lines: Line, **more: Any) -> tuple[int, str | None]:
    (answer,) = alter_all(harness, resource(kind, name, *lines), **more)
    return answer


@pytest.fixture
def topic(harness: Harness) -> Harness:
    """A topic "t" without configs of its own."""
    harness.create_topic("t")
    return harness


# --- DescribeConfigs ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", DESCRIBED)
def test_a_topic_is_described_with_all_its_settings(topic: Harness, version: int) -> None:
    result = describe(topic, TOPIC, "t", version=version)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    names = [found.name for found in result.configs]
    assert names == sorted(name for name, row in TOPIC_SETTINGS.items() if row.in_kafka and not row.internal)
    assert not any(found.read_only or found.is_sensitive for found in result.configs)


OURS = {"message.format.version", "message.timestamp.difference.max.ms", "record.attributes.elide"}


def test_what_kafka_does_not_know_is_described_where_it_is_set_or_named(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.message.timestamp.difference.max.ms": "5"}) as harness:
        harness.create_topic("t", message_format_version="0.10.2")
        listed = {found.name for found in describe(harness, TOPIC, "t").configs}
        assert listed & OURS == {"message.format.version", "message.timestamp.difference.max.ms"}
        assert value(harness, TOPIC, "t", "record.attributes.elide") == ("false", DEFAULT)
        of_broker = {found.name for found in describe(harness, BROKER, "1").configs}
        assert "log.message.timestamp.difference.max.ms" in of_broker
        assert "log.message.format.version" not in of_broker


@pytest.mark.parametrize("version", DESCRIBED)
def test_each_version_tells_a_setting_in_its_own_way(harness: Harness, version: int) -> None:
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


def test_synonyms_and_documentation_come_when_asked_for(topic: Harness) -> None:
    found = entry(topic, TOPIC, "t", "retention.ms")
    assert (found.synonyms, found.documentation) == ([], None)


def test_named_settings_come_alone_and_unknown_ones_not_at_all(topic: Harness) -> None:
    result = describe(topic, TOPIC, "t", "segment.bytes", "no.such.name", "retention.ms")
    assert [found.name for found in result.configs] == ["retention.ms", "segment.bytes"]
    assert result.error_code == ErrorCode.NONE


def test_an_empty_list_of_names_means_all(topic: Harness) -> None:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=[]
    )
    (result,) = topic.request(DescribeConfigsRequest(resources=[asked])).results
    assert len(result.configs) > 20


@pytest.mark.parametrize("version", DESCRIBED)
def test_a_broker_is_described_with_all_its_settings(harness: Harness, version: int) -> None:
    result = describe(harness, BROKER, "1", version=version)
    rows = {**BROKER_SETTINGS, **WITHOUT_EFFECT}.values()
    assert [found.name for found in result.configs] == sorted(
        row.name for row in rows if row.in_kafka and not row.internal
    )
    read_only = {found.name: found.read_only for found in result.configs}
    assert (read_only["node.id"], read_only["log.retention.ms"]) == (True, False)


def test_a_static_setting_is_told_with_its_source(harness: Harness) -> None:
    assert value(harness, BROKER, "1", "log.dirs") == (str(harness.directory / "data"), STATIC)
    assert value(harness, BROKER, "1", "num.partitions") == ("1", DEFAULT)


def test_each_node_describes_itself(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        for name in ("node.id", "broker.id"):
            found = entry(harness, BROKER, "2", name, node=2, include_synonyms=True)
            assert (found.value, found.synonyms[0].value) == ("2", "2")
        assert value(harness, BROKER, "1", "node.id") == ("1", STATIC)
        refused = describe(harness, BROKER, "2", node=1)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "Unexpected broker id, expected 1 or empty string, but received 2"


def test_the_broker_without_a_name_has_what_was_changed_for_all(harness: Harness) -> None:
    assert [found.name for found in describe(harness, BROKER, "").configs] == ["min.insync.replicas"]
    alter(harness, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    found, _ = describe(harness, BROKER, "").configs
    assert (found.name, found.value, found.config_source) == ("log.segment.bytes", "2000000", DYNAMIC_DEFAULT)


@pytest.mark.parametrize("version", DESCRIBED)
@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "'a b' contains one or more characters"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 7"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (BROKER_LOGGER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 7"),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (9, "x", ErrorCode.INVALID_REQUEST, "Unsupported resource type"),
        (0, "x", ErrorCode.INVALID_REQUEST, "Unsupported resource type"),
    ],
)
def test_what_cannot_be_described_is_refused(
    harness: Harness, version: int, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    result = describe(harness, kind, name, version=version)
    assert (result.error_code, result.configs) == (code, [])
    assert message in result.error_message


def test_resources_are_answered_one_by_one_also_the_same_twice(topic: Harness) -> None:
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=[key]
        )
        for name, key in (("t", "retention.ms"), ("nope", "retention.ms"), ("t", "segment.ms"))
    ]
    results = topic.request(DescribeConfigsRequest(resources=asked)).results
    assert [[found.name for found in result.configs] for result in results] == [["retention.ms"], [], ["segment.ms"]]


# --- IncrementalAlterConfigs: topics ------------------------------------------------------------


@pytest.mark.parametrize("version", ALTERED)
def test_a_set_value_is_shown_and_a_deleted_one_gives_way_to_the_default(topic: Harness, version: int) -> None:
    assert alter(topic, TOPIC, "t", ("segment.ms", SET, " 5000 "), version=version) == (ErrorCode.NONE, None)
    assert value(topic, TOPIC, "t", "segment.ms") == ("5000", DYNAMIC_TOPIC)
    assert alter(topic, TOPIC, "t", ("segment.ms", DELETE, None), version=version) == (ErrorCode.NONE, None)
    assert value(topic, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)


def test_a_change_acts_on_the_next_produce(topic: Harness) -> None:
    large = batch("x" * 500)
    assert topic.produce_batch("t", large).error_code == ErrorCode.NONE
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "100"))
    assert topic.produce_batch("t", large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(topic, TOPIC, "t", ("max.message.bytes", DELETE, None), ("cleanup.policy", SET, "compact"))
    assert topic.produce_batch("t", large).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("crash", [False, True])
def test_a_change_outlives_a_restart(topic: Harness, crash: bool) -> None:
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "100"), ("segment.ms", SET, "7"))
    alter(topic, TOPIC, "t", ("segment.ms", DELETE, None))
    alter(topic, BROKER, "", ("log.index.interval.bytes", SET, "9"))
    topic.restart(crash=crash)
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_TOPIC)
    assert value(topic, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)
    assert value(topic, TOPIC, "t", "index.interval.bytes") == ("9", DYNAMIC_DEFAULT)
    assert topic.produce_batch("t", batch("x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_lists_grow_and_shrink(topic: Harness) -> None:
    for operation, text, after in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ]:
        assert alter(topic, TOPIC, "t", ("cleanup.policy", operation, text)) == (ErrorCode.NONE, None)
        assert value(topic, TOPIC, "t", "cleanup.policy") == (after, DYNAMIC_TOPIC)


def test_validation_alone_changes_nothing(topic: Harness) -> None:
    end_offset = topic.cluster.metadata_log.storage.log_end_offset
    assert alter(topic, TOPIC, "t", ("segment.ms", SET, "5"), validate_only=True) == (ErrorCode.NONE, None)
    code, _ = alter(topic, TOPIC, "t", ("segment.ms", SET, "x"), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert value(topic, TOPIC, "t", "segment.ms") == ("604800000", DEFAULT)
    assert topic.cluster.metadata_log.storage.log_end_offset == end_offset


@pytest.mark.parametrize(
    "line", [("segment.ms", DELETE, None), ("segment.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")]
)
def test_what_changes_nothing_is_well_and_writes_nothing(harness: Harness, line: Line) -> None:
    configs = {} if line[1] == DELETE else {"segment_ms": "5", "cleanup_policy": "compact"}
    harness.create_topic("t", **configs)
    end_offset = harness.cluster.metadata_log.storage.log_end_offset
    assert alter(harness, TOPIC, "t", line) == (ErrorCode.NONE, None)
    assert alter(harness, TOPIC, "t") == (ErrorCode.NONE, None)
    assert harness.cluster.metadata_log.storage.log_end_offset == end_offset


def test_a_resource_is_changed_whole_or_not_at_all_and_alone(topic: Harness) -> None:
    topic.create_topic("u")
    answers = alter_all(
        topic,
        resource(TOPIC, "t", ("retention.ms", SET, "7"), ("segment.ms", SET, "x")),
        resource(TOPIC, "u", ("retention.ms", SET, "7")),
        resource(TOPIC, "nope", ("retention.ms", SET, "7")),
    )
    assert [code for code, _ in answers] == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert value(topic, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT)
    assert value(topic, TOPIC, "u", "retention.ms") == ("7", DYNAMIC_TOPIC)


@pytest.mark.parametrize("version", ALTERED)
@pytest.mark.parametrize(
    ("name", "lines", "code", "message"),
    [
        (
            "t",
            [("retention.ms", SET, "abc")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("t", [("nope", SET, "5")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            "t",
            [("log.retention.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: log.retention.ms",
        ),
        (
            "t",
            [("retention.ms", APPEND, "5")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            [("retention.ms", SUBTRACT, "5")],
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            [("cleanup.policy", APPEND, "eat")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value eat for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "t",
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            "t",
            [("retention.ms", SET, None), ("segment.ms", APPEND, None), ("flush.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms, segment.ms",
        ),
        (
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ("t", [("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        (
            "nope",
            [("retention.ms", SET, "1")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        ("nope", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        ("", [("retention.ms", SET, "1")], ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            "a/b",
            [("retention.ms", SET, "1")],
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'",
        ),
    ],
)
def test_a_bad_change_of_a_topic_is_refused(
    topic: Harness, version: int, name: str, lines: list[Line], code: ErrorCode, message: str
) -> None:
    end_offset = topic.cluster.metadata_log.storage.log_end_offset
    assert alter(topic, TOPIC, name, *lines, version=version) == (code, message)
    assert topic.cluster.metadata_log.storage.log_end_offset == end_offset


def test_a_change_is_checked_together_with_what_is_set_already(topic: Harness) -> None:
    assert alter(topic, TOPIC, "t", ("min.compaction.lag.ms", SET, "10"))[0] == ErrorCode.NONE
    assert alter(topic, TOPIC, "t", ("max.compaction.lag.ms", SET, "5"))[0] == ErrorCode.INVALID_CONFIG


def test_a_resource_that_stands_twice_is_refused_in_both_places(topic: Harness) -> None:
    line = ("retention.ms", SET, "7")
    answers = alter_all(topic, resource(TOPIC, "t", line), resource(BROKER, ""), resource(TOPIC, "t", line))
    refusal = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
    assert answers == [refusal, (ErrorCode.NONE, None), refusal]
    assert value(topic, TOPIC, "t", "retention.ms") == ("604800000", DEFAULT)


@pytest.mark.parametrize("kind", [9, 0, 7])
def test_other_kinds_of_resources_cannot_be_changed(harness: Harness, kind: int) -> None:
    answer = alter(harness, kind, "x", ("a", SET, "1"))
    assert answer == (ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def test_who_sets_what_has_no_effect_yet_is_warned_by_name(topic: Harness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        alter(topic, TOPIC, "t", ("local.retention.ms", SET, "7"), ("segment.ms", SET, "7"))
        alter(topic, BROKER, "", ("log.local.retention.ms", SET, "7"))
        alter(topic, TOPIC, "t", ("local.retention.ms", DELETE, None))
        topic.create_topic("u", local_retention_bytes="7")
    assert [record.getMessage() for record in caplog.records] == [
        "topic t: local.retention.ms is kept, but has no effect here yet",
        "broker (all): log.local.retention.ms is kept, but has no effect here yet",
        "topic u: local.retention.bytes is kept, but has no effect here yet",
    ]


# --- IncrementalAlterConfigs: brokers -----------------------------------------------------------


def test_a_brokers_value_is_the_default_of_its_topics_at_once(topic: Harness) -> None:
    assert alter(topic, BROKER, "", ("message.max.bytes", SET, "100")) == (ErrorCode.NONE, None)
    assert topic.produce_batch("t", batch("x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_DEFAULT)
    assert value(topic, BROKER, "1", "message.max.bytes") == ("100", DYNAMIC_DEFAULT)


def test_one_brokers_value_is_stronger_than_that_of_all(topic: Harness) -> None:
    alter(topic, BROKER, "", ("message.max.bytes", SET, "100"))
    assert alter(topic, BROKER, "1", ("message.max.bytes", SET, "200")) == (ErrorCode.NONE, None)
    found = entry(topic, TOPIC, "t", "max.message.bytes", include_synonyms=True)
    assert (found.value, found.config_source) == ("200", DYNAMIC_BROKER)
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        ("message.max.bytes", "200", DYNAMIC_BROKER),
        ("message.max.bytes", "100", DYNAMIC_DEFAULT),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    alter(topic, BROKER, "1", ("message.max.bytes", DELETE, None))
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("100", DYNAMIC_DEFAULT)


def test_a_topics_own_value_stays_when_the_brokers_changes(topic: Harness) -> None:
    alter(topic, TOPIC, "t", ("max.message.bytes", SET, "300"))
    alter(topic, BROKER, "", ("message.max.bytes", SET, "100"))
    assert value(topic, TOPIC, "t", "max.message.bytes") == ("300", DYNAMIC_TOPIC)
    assert topic.partition("t").log.settings.max_message_bytes == 300


def test_a_brokers_list_grows_from_its_default(harness: Harness) -> None:
    assert alter(harness, BROKER, "", ("log.cleanup.policy", APPEND, "compact")) == (ErrorCode.NONE, None)
    assert value(harness, BROKER, "", "log.cleanup.policy") == ("delete,compact", DYNAMIC_DEFAULT)


@pytest.mark.parametrize("version", ALTERED)
@pytest.mark.parametrize(
    ("name", "line", "code", "message"),
    [
        ("7", None, ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
        ("x", None, ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (
            "1",
            ("node.id", SET, "5"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [node.id]",
        ),
        (
            "",
            ("num.partitions", SET, "5"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            "",
            ("num.io.threads", SET, "x"),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration num.io.threads: Not a number of type INT",
        ),
        (
            "1",
            ("ssl.keystore.location", SET, "/x"),
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            "",
            ("sasl.jaas.config", SET, "x"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: [sasl.jaas.config]",
        ),
        (
            "",
            ("listener.name.plaintext.ssl.client.auth", SET, "none"),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.client.auth]",
        ),
        ("", ("no.such.name", APPEND, "5"), ErrorCode.INVALID_CONFIG, "Unknown config name: no.such.name"),
        (
            "1",
            ("log.retention.ms", SET, "x"),
            ErrorCode.INVALID_REQUEST,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        ("", ("log.retention.ms", 4, "x"), ErrorCode.INVALID_REQUEST, "Unknown operations type 4"),
        (
            "",
            ("log.retention.ms", APPEND, "5"),
            ErrorCode.INVALID_CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
    ],
)
def test_a_bad_change_of_a_broker_is_refused(
    harness: Harness, version: int, name: str, line: Line | None, code: ErrorCode, message: str
) -> None:
    lines = [("log.retention.ms", SET, "5")] if line is None else [line]
    assert alter(harness, BROKER, name, *lines, version=version) == (code, message)
    assert [found.name for found in describe(harness, BROKER, "").configs] == ["min.insync.replicas"]


def test_settings_of_brokers_that_nobody_knows_or_acts_on_are_kept_and_described(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    rate, unknown = "leader.replication.throttled.rate", "no.such.name"
    ours, base = "listener.name.x.max.connections", "max.connections"
    lines = [(rate, SET, "1000"), (unknown, SET, "5"), (ours, SET, "7")]
    with caplog.at_level(logging.WARNING):
        assert alter(harness, BROKER, "1", *lines) == (ErrorCode.NONE, None)
    assert f"broker 1: {rate} is kept, but has no effect here yet" in caplog.text
    harness.restart(crash=True)
    found = entry(harness, BROKER, "1", rate, include_documentation=True)
    assert (found.value, found.config_source, found.config_type, found.read_only) == (
        "1000",
        DYNAMIC_BROKER,
        LONG,
        False,
    )
    assert found.documentation == "No effect yet."
    found = entry(harness, BROKER, "1", unknown)
    assert (found.value, found.config_source, found.config_type) == (None, DYNAMIC_BROKER, 0)
    assert found.is_sensitive and found.read_only
    found = entry(harness, BROKER, "1", ours, include_synonyms=True)
    assert [(one.name, one.value, one.source) for one in found.synonyms] == [
        (ours, "7", DYNAMIC_BROKER),
        (base, "2147483647", DEFAULT),
    ]
    assert alter(harness, BROKER, "1", *[(key, DELETE, None) for key, _, _ in lines]) == (ErrorCode.NONE, None)
    assert describe(harness, BROKER, "1", rate, unknown, ours).configs == []


def test_a_setting_without_effect_is_described_as_the_start_gave_it(tmp_path: Path) -> None:
    settings = {"num.io.threads": "16", "ssl.keystore.password": "secret"}
    with Harness(tmp_path, settings=settings) as harness:
        assert value(harness, BROKER, "1", "num.io.threads") == ("16", STATIC)
        assert value(harness, BROKER, "1", "ssl.keystore.password") == (None, STATIC)


def test_each_of_several_brokers_in_a_process_has_values_of_its_own(tmp_path: Path) -> None:
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
        found = [entry(harness, BROKER, str(node), "message.max.bytes", node=node) for node in (2, 3)]
        assert [(one.value, one.config_source) for one in found] == [("99", DYNAMIC_BROKER), ("77", DYNAMIC_BROKER)]
        of_topic = entry(harness, TOPIC, "t", "max.message.bytes", node=2)
        assert (of_topic.value, of_topic.config_source) == ("99", DYNAMIC_BROKER)
        harness.restart(nodes=[1, 3])
        assert limits() == [1_048_588, 77, 77]  # node 3 leads for 2
        assert alter(harness, BROKER, "3", ("message.max.bytes", DELETE, None), node=3) == (ErrorCode.NONE, None)
        assert limits() == [1_048_588, 1_048_588, 1_048_588]


def test_a_new_topic_goes_by_its_leaders_settings_at_once(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        alter(harness, BROKER, "2", ("message.max.bytes", SET, "99"), node=2)
        harness.cluster.controller.create_topic("t", assignment=[(0, [2]), (1, [1])])
        assert harness.partition("t", 0).log.settings.max_message_bytes == 99
        assert harness.partition("t", 1).log.settings.max_message_bytes == 1_048_588


def test_what_a_further_broker_has_for_itself_of_what_all_share_is_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Harness(tmp_path, nodes=2) as harness, caplog.at_level(logging.WARNING):
        alter(harness, BROKER, "2", ("log.cleaner.threads", SET, "2"), ("log.retention.ms", SET, "7"), node=2)
        assert harness.cluster.settings["log.cleaner.threads"] == 1
        assert [record.getMessage() for record in caplog.records] == [
            "broker 2: log.cleaner.threads acts only as broker 1 has it, for all nodes here"
        ]


def test_each_of_several_brokers_is_described_with_its_own_place(tmp_path: Path) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,INTERNAL://[::1]:0",
        "advertised.listeners": "PLAINTEXT://kafka.test:80,INTERNAL://kafka.test:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "broker.rack": "a,b",
    }
    with Harness(tmp_path, nodes=2, settings=settings) as harness:
        harness.cluster.nodes[1].rack, harness.cluster.nodes[2].rack = "a", "b"
        at_once(harness.cluster.settings_changed(None))
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


def test_what_one_of_several_brokers_does_not_have_can_be_removed_as_kafka_s_tools_do(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        lines = [(f"{who}.replication.throttled.rate", DELETE, None) for who in ("leader", "follower")]
        assert alter(harness, BROKER, "2", *lines, node=2) == (ErrorCode.NONE, None)
        assert alter(harness, BROKER, "", ("message.max.bytes", SET, "9"), node=2) == (ErrorCode.NONE, None)
