"""Which value is in force, what a topic makes of it, and what DescribeConfigs would say, as Kafka does."""

from __future__ import annotations

import pytest

from minibroker.broker.configs.settings import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    Settings,
    SettingsError,
    validate_broker_overrides,
    validate_topic_overrides,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log_settings import MAX_LONG, LogSettings
from tests.cases import for_each

DEFAULT, STATIC = ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER
HOUR_MS = 3_600_000


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


# --- values in force


def test_an_unset_setting_has_its_default() -> None:
    settings = Settings()
    assert settings["num.partitions"] == 1
    assert settings["listeners"] == ("PLAINTEXT://127.0.0.1:9092",)
    assert settings["advertised.listeners"] is None


def test_a_setting_given_as_text_has_a_value_of_its_type() -> None:
    settings = Settings({"num.partitions": " 3 ", "delete.topic.enable": "False", "log.dirs": "/a , /b"})
    assert settings["num.partitions"] == 3
    assert settings["delete.topic.enable"] is False
    assert settings["log.dirs"] == ("/a", "/b")


def test_an_invalid_value_is_reported_in_one_line_with_its_name() -> None:
    with pytest.raises(SettingsError, match=r"^Invalid value many for configuration num\.partitions: Not a number"):
        Settings({"num.partitions": "many"})


def test_an_unknown_setting_name_raises_a_key_error() -> None:
    with pytest.raises(KeyError):
        Settings()["no.such.setting"]


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 3 * 60_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_retention_setting_in_the_smaller_unit_takes_precedence(given: dict[str, str], expected_ms: int) -> None:
    settings = Settings(given)
    assert settings["log.retention.ms"] == expected_ms
    assert settings.get_topic_value("retention.ms", {}) == expected_ms


def test_dynamic_broker_values_override_cluster_wide_and_static_ones() -> None:
    static = Settings({"log.segment.bytes": "2000000"})
    assert static["log.segment.bytes"] == 2_000_000
    for_all = static.with_dynamic_configs(cluster={"log.segment.bytes": "3000000"})
    assert for_all["log.segment.bytes"] == 3_000_000
    for_this = for_all.with_dynamic_configs(broker={"log.segment.bytes": "4000000"})
    assert for_this["log.segment.bytes"] == 4_000_000
    assert for_this.with_dynamic_configs(broker={}, cluster={})["log.segment.bytes"] == 2_000_000


def test_the_data_directory_is_log_dirs_or_else_log_dir() -> None:
    assert Settings().log_directories == ("minibroker-data",)
    assert Settings({"log.dir": "/a"}).log_directories == ("/a",)
    assert Settings({"log.dir": "/a", "log.dirs": "/b"}).log_directories == ("/b",)
    with pytest.raises(SettingsError, match=r"log\.dirs: must not be empty"):
        Settings({"log.dirs": ""})


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert Settings({"broker.id": "7"})["node.id"] == 7
    assert Settings({"node.id": "7"})["broker.id"] == 7
    assert Settings({"broker.id": "7", "node.id": " 7"})["node.id"] == 7
    with pytest.raises(SettingsError, match=r"node\.id=8 and broker\.id=7"):
        Settings({"broker.id": "7", "node.id": "8"})


def test_queued_max_request_bytes_cannot_be_below_socket_request_max_bytes() -> None:
    with pytest.raises(SettingsError, match=r"queued\.max\.request\.bytes=5 must be at least"):
        Settings({"queued.max.request.bytes": "5"})
    assert Settings({"queued.max.request.bytes": "-1"})["queued.max.request.bytes"] == -1


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_a_retention_time_of_zero_is_rejected(name: str) -> None:
    with pytest.raises(SettingsError, match=r"^log\.retention\.ms must be unlimited \(-1\) or, greater than or equal"):
        Settings({name: "0"})
    assert Settings({name: "-1"})["log.retention.ms"] == -1


def test_the_minimum_compaction_lag_cannot_exceed_the_maximum() -> None:
    with pytest.raises(SettingsError, match=r"min\.compaction\.lag\.ms \(9\) > max\.compaction\.lag\.ms \(5\)"):
        Settings({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"})


# --- topics


def test_a_log_inherits_the_brokers_configs_except_those_of_its_topic() -> None:
    settings = Settings({"log.segment.bytes": "2000000", "log.cleanup.policy": "compact,delete"})
    overrides = {"max.message.bytes": "99", "message.timestamp.type": "LogAppendTime"}
    expected = LogSettings(
        segment_bytes=2_000_000,
        max_message_bytes=99,
        message_timestamp_type=1,
        cleanup_policy=frozenset({"compact", "delete"}),
    )
    assert settings.get_log_settings(overrides) == expected


def test_a_log_without_configs_has_kafkas_defaults() -> None:
    assert Settings().get_log_settings({}) == LogSettings()


def test_internal_segment_bytes_overrides_segment_bytes() -> None:
    assert Settings().get_log_settings({"internal.segment.bytes": "100"}).segment_bytes == 100


def test_a_topic_value_is_its_override_or_the_brokers_value() -> None:
    settings = Settings({"min.insync.replicas": "2"})
    assert settings.get_topic_value("min.insync.replicas", {}) == 2
    assert settings.get_topic_value("min.insync.replicas", {"min.insync.replicas": "3"}) == 3


def test_valid_topic_configs_are_normalized_as_in_kafka() -> None:
    overrides = {"retention.ms": " +1000 ", "cleanup.policy": "compact, delete,compact", "preallocate": "TRUE"}
    kept = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "preallocate": "true"}
    assert validate_topic_overrides(Settings(), overrides) == kept


@for_each(
    ("overrides", "message"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"log.segment.bytes": "2000000"}, "Unknown topic config name: log.segment.bytes"),
        ({"segment.bytes": None}, "Null value not supported for topic configs: segment.bytes"),
        ({"segment.bytes": "5"}, "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
        ({"preallocate": "maybe"}, "Invalid value maybe for configuration preallocate: Expected value to be either"),
        ({"remote.storage.enable": "true"}, "remote.storage.enable=true: Tiered Storage functionality is disabled"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "conflict topic config setting"),
    ],
)
def test_a_topic_config_that_kafka_rejects_is_rejected_by_name(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        validate_topic_overrides(Settings(), overrides)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert (refusal.value.message or "").startswith(message)


# --- changes while running


def test_static_settings_are_rejected_by_name() -> None:
    for name in ("node.id", "advertised.listeners"):
        with pytest.raises(
            KafkaError, match=rf"^INVALID_REQUEST: Cannot update these configs dynamically: \[{name}\]$"
        ) as refusal:
            validate_broker_overrides(Settings(), {name: "1"}, per_broker=True)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("per_broker", [True, False])
def test_an_invalid_dynamic_broker_config_is_rejected(per_broker: bool) -> None:
    validate_broker_overrides(Settings(), {"message.max.bytes": "5"}, per_broker=per_broker)
    with pytest.raises(KafkaError, match="Invalid value x for configuration message"):
        validate_broker_overrides(Settings(), {"message.max.bytes": "x"}, per_broker=per_broker)


# --- DescribeConfigs


def test_a_topics_default_is_described_with_the_brokers_synonym() -> None:
    described = entry(Settings().describe_topic_configs({}), "segment.bytes")
    assert (described.value, described.source, described.read_only) == ("1073741824", DEFAULT, False)
    assert described.synonyms == (ConfigSynonym("log.segment.bytes", "1073741824", DEFAULT),)


def test_an_override_comes_first_among_the_synonyms() -> None:
    settings = Settings({"log.segment.bytes": "2000000"}).with_dynamic_configs(cluster={"log.segment.bytes": "3000000"})
    described = entry(settings.describe_topic_configs({"segment.bytes": "4000000"}), "segment.bytes")
    assert described.source is ConfigSource.DYNAMIC_TOPIC
    assert [(synonym.value, synonym.source) for synonym in described.synonyms] == [
        ("4000000", ConfigSource.DYNAMIC_TOPIC),
        ("3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("2000000", STATIC),
        ("1073741824", DEFAULT),
    ]


def test_segment_ms_that_comes_from_log_roll_hours_has_no_synonyms_as_in_kafka() -> None:
    described = entry(Settings({"log.roll.hours": "2"}).describe_topic_configs({}), "segment.ms")
    assert (described.value, described.source, described.synonyms) == (str(2 * HOUR_MS), DEFAULT, ())


def test_a_broker_setting_in_milliseconds_has_the_one_in_hours_as_a_synonym() -> None:
    described = entry(Settings({"log.roll.ms": "5"}).describe_broker_configs(), "log.roll.ms")
    assert (described.value, described.source) == ("5", STATIC)
    assert described.synonyms == (
        ConfigSynonym("log.roll.ms", "5", STATIC),
        ConfigSynonym("log.roll.hours", "168", DEFAULT),
    )


def test_a_broker_description_marks_only_dynamic_settings_as_changeable() -> None:
    described = Settings().describe_broker_configs()
    assert entry(described, "node.id").read_only
    assert not entry(described, "log.segment.bytes").read_only
    assert entry(described, "log.roll.ms").value is None
    assert entry(described, "advertised.listeners").value is None


def test_the_cluster_description_includes_only_cluster_wide_dynamic_values() -> None:
    settings = Settings({"log.segment.bytes": "2000000"}).with_dynamic_configs(
        cluster={"log.segment.bytes": "3000000"}, broker={"log.segment.bytes": "4000000"}
    )
    assert [(e.name, e.value, e.source) for e in settings.describe_cluster_configs()] == [
        ("log.segment.bytes", "3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    ]


def test_an_internal_config_is_described_only_where_it_is_set() -> None:
    assert "internal.segment.bytes" not in {e.name for e in Settings().describe_topic_configs({})}
    assert (
        entry(Settings().describe_topic_configs({"internal.segment.bytes": "9"}), "internal.segment.bytes").value == "9"
    )


def test_the_documentation_says_when_a_setting_has_no_effect() -> None:
    described = Settings().describe_topic_configs({})
    assert entry(described, "local.retention.ms").documentation.endswith("No effect: tiered storage is missing.")
    assert "No effect" not in entry(described, "segment.ms").documentation


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({}, (MAX_LONG, HOUR_MS)),
        ({"message.timestamp.difference.max.ms": "5"}, (5, 5)),
        ({"message.timestamp.difference.max.ms": "5", "message.timestamp.before.max.ms": "7"}, (7, 5)),
        ({"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"}, (5, 7)),
    ],
)
def test_the_deprecated_timestamp_bound_replaces_both_new_bounds_at_their_defaults(
    overrides: dict[str, str], expected: tuple[int, int]
) -> None:
    found = Settings().get_log_settings(overrides)
    assert (found.message_timestamp_before_max_ms, found.message_timestamp_after_max_ms) == expected
    as_brokers = Settings({f"log.{name}": text for name, text in overrides.items()}).get_log_settings({})
    assert as_brokers == found


def test_a_topics_message_format_follows_its_kafka_version() -> None:
    settings = Settings({"log.message.format.version": "0.9.0.1"})
    assert settings.get_log_settings({}).message_format_version == 0
    assert settings.get_log_settings({"message.format.version": "0.10.2"}).message_format_version == 1
    assert Settings().get_log_settings({}).message_format_version == 2
    with pytest.raises(SettingsError, match=r"Version 0\.7 is not a valid version"):
        Settings({"log.message.format.version": "0.7"})


def test_record_attributes_elide_is_none_unless_it_is_set() -> None:
    assert Settings().get_log_settings({}).record_attributes_elide is None
    assert Settings().get_log_settings({"record.attributes.elide": "false"}).record_attributes_elide is False
    assert Settings().get_log_settings({"record.attributes.elide": "true"}).record_attributes_elide is True
