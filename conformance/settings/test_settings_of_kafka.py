"""Our settings against Apache Kafka's own: names, types, defaults, values, the .properties syntax, DescribeConfigs.

Java answers all questions in one run, from the jars of Apache Kafka 4.4; what is only ours is in tests/broker/.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from conformance.kafka_files.scenario import wait_until
from conformance.kafka_reference import CONTROL_PROPERTIES, kafka_command, running_kafka
from minibroker.broker.configs.properties import MalformedProperties, parse_java_properties
from minibroker.broker.configs.settings import (
    ConfigEntry,
    Settings,
    get_broker_setting_declaration,
    validate_topic_overrides,
)
from minibroker.broker.configs.settings_table import (
    BROKER_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    ConfigType,
    Setting,
    SettingScope,
)
from minibroker.broker.configs.settings_values import InvalidValue, format_setting_value, parse_setting_value
from minibroker.broker.configs.settings_without_effect import WITHOUT_EFFECT

# What Kafka 4.4 does not know (any more) is not asked about.
TOPIC_NAMES = [name for name, row in TOPIC_SETTINGS.items() if row.in_kafka]
BROKER_NAMES = [name for name, row in BROKER_SETTINGS.items() if row.in_kafka]
# Kafka has them in no definition of the broker's settings: they are set only while it runs.
OF_QUOTAS = (".throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second")
KEPT = [row for row in WITHOUT_EFFECT.values() if not row.name.endswith(OF_QUOTAS)]
# What is no class, which Java looks for, or no address in a setting without effect, does not concern us.
NOT_CHECKED = {"controller.quorum.bootstrap.servers", "controller.quorum.voters"}
KEPT_NAMES = [row.name for row in KEPT if row.type is not ConfigType.CLASS and row.name not in NOT_CHECKED]
VALUE_NAMES = [name for name in BROKER_NAMES if BROKER_SETTINGS[name].type is not ConfigType.CLASS] + KEPT_NAMES

PROGRAM = Path(__file__).parent / "KafkaSettings.java"
TEXTS = (
    *("", " 5 ", "+5", "-5", "0", "1", "-1", "-2", "-3", "4", "9", "10", "17", "18", "22", "23", "1024", "1048575"),
    *("1048576", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "1_000", "0x10", "5.0"),
    *("0.5", ".5", "1e-1", "0.5d", "1.5", "half", "true", "TRUE", "yes", "delete", "compact", "compact, delete"),
    *("delete,", "compact,compact", "gzip", "GZIP", "producer", "uncompressed", "none", "CreateTime", "createtime"),
    *("*", "0:1,1:2", "0:1,*", "x", "PLAINTEXT://a:1"),
)
ALPHABET = "ab=: \t\f\\\n\r#!u0041é"


def value_questions(names: list[str]) -> list[tuple[str, str]]:
    return [(name, text) for name in names for text in TEXTS]


def property_texts() -> list[str]:
    """Random texts of the characters that mean something, the same ones in each run."""
    source = random.Random(7)
    return ["".join(source.choices(ALPHABET, k=source.randrange(30))) for _ in range(3000)]


@pytest.fixture(scope="module")
def kafka() -> dict[str, Any]:
    """All that Apache Kafka says."""
    questions = {
        "topic values": value_questions(TOPIC_NAMES),
        "broker values": value_questions(VALUE_NAMES),
        "properties": property_texts(),
    }
    command = kafka_command(str(PROGRAM))
    run = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answers: dict[str, Any] = json.loads(run.stdout)
    return answers


def test_the_settings_table_has_exactly_kafkas_settings(kafka: dict[str, Any]) -> None:
    assert set(TOPIC_NAMES) == set(kafka["topic"])
    quotas = set(kafka["quotas"]) - set(kafka["broker"])
    assert set(BROKER_NAMES) | set(WITHOUT_EFFECT) == set(kafka["broker"]) | quotas


def kafka_default(row: Setting) -> str | None:
    return format_setting_value(row.default if row.kafka_default is None else row.kafka_default)


@pytest.mark.parametrize(
    "row",
    [*(row for row in SETTINGS if row.scope is not SettingScope.TOPIC and row.in_kafka), *KEPT],
    ids=lambda row: row.name,
)
def test_a_broker_setting_has_kafkas_type_and_default(row: Setting, kafka: dict[str, Any]) -> None:
    theirs = kafka["broker"][row.name]
    assert (row.type.name, row.internal) == (theirs["type"], theirs["internal"])
    assert kafka_default(row) == ("required" if theirs["required"] else theirs["default"])


@pytest.mark.parametrize("topic", TOPIC_NAMES)
def test_a_topic_setting_has_kafkas_type_default_and_synonyms(topic: str, kafka: dict[str, Any]) -> None:
    row, theirs = TOPIC_SETTINGS[topic], kafka["topic"][topic]
    assert (row.type.name, row.internal) == (theirs["type"], theirs["internal"])
    assert format_setting_value(Settings().get_topic_value(topic, {})) == theirs["default"]
    ours = [] if row.scope is SettingScope.TOPIC else [row.name, *(name for name, _ in row.fallbacks)]
    assert ours == kafka["synonyms"].get(topic, [])


# Addresses stay as long as the broker runs.
ONLY_AT_THE_START = {"listeners", "listener.security.protocol.map"}


def test_dynamic_settings_are_those_of_kafka(kafka: dict[str, Any]) -> None:
    every = (*BROKER_SETTINGS.values(), *WITHOUT_EFFECT.values())
    rows = [row for row in every if row.in_kafka and row.name not in ONLY_AT_THE_START]
    theirs = {row.name: kafka["dynamic"].get(row.name, "read-only") for row in rows}
    assert {row.name: row.update.value for row in rows} == theirs


def complaint(row: Setting, name: str, text: str) -> str | None:
    try:
        parse_setting_value(row, name, text)
    except InvalidValue as error:
        return str(error)
    return None


def test_a_topic_config_accepts_the_same_values_as_in_kafka(kafka: dict[str, Any]) -> None:
    for (name, text), theirs in zip(value_questions(TOPIC_NAMES), kafka["topic values"], strict=True):
        ours = complaint(TOPIC_SETTINGS[name], name, text)
        assert (ours is None) == (theirs is None), f"{name}={text!r}: {ours!r} here, {theirs!r} in Kafka"
        if TOPIC_SETTINGS[name].type not in (ConfigType.LIST, ConfigType.DOUBLE):
            assert ours == theirs


# Ours is stricter: Kafka finds these when it uses the value.
STRICTER = {
    "authorizer.class.name",
    "max.connections.per.ip.overrides",  # Kafka does not start with a text that it cannot parse
    *("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"),
    "offsets.topic.compression.codec",
}


def test_a_broker_config_accepts_the_same_values_as_in_kafka(kafka: dict[str, Any]) -> None:
    for (name, text), theirs in zip(value_questions(VALUE_NAMES), kafka["broker values"], strict=True):
        ours = complaint(get_broker_setting_declaration(name), name, text)
        same = (ours is None) == (theirs is None) or (name in STRICTER and theirs is None)
        assert same, f"{name}={text!r}: {ours!r} here, {theirs!r} in Kafka"


def test_properties_are_parsed_as_by_java(kafka: dict[str, Any]) -> None:
    for text, theirs in zip(property_texts(), kafka["properties"], strict=True):
        try:
            ours = {pair.key: pair.value for pair in parse_java_properties(text)}
        except MalformedProperties:
            ours = None
        assert ours == theirs, repr(text)


STATIC = {"log.roll.hours": "2", "log.retention.ms": "77", "num.partitions": "3"}
OVERRIDES = {"segment.bytes": "2000000", "retention.ms": " 5000", "cleanup.policy": "compact, delete"}
# Kafka sets it for the whole cluster when it formats its directory, because of eligible leader replicas (KIP-966).
ELSEWHERE = {
    "min.insync.replicas",
    *(set(TOPIC_SETTINGS) - set(TOPIC_NAMES)),
    *(set(BROKER_SETTINGS) - set(BROKER_NAMES)),
}
# Where the process is and which it is, and what `kafka_reference` sets.
OF_THE_PROCESS = {
    *("broker.id", "controller.quorum.voters", "listeners", "listener.security.protocol.map", "log.dir", "log.dirs"),
    *CONTROL_PROPERTIES,
}
OTHER_DEFAULTS = {name for name, row in BROKER_SETTINGS.items() if row.kafka_default is not None}


def test_a_topic_and_a_broker_are_described_as_by_kafka(tmp_path: Path) -> None:
    settings = Settings(STATIC)
    kept = validate_topic_overrides(settings, OVERRIDES)
    with running_kafka(tmp_path, STATIC) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("t", config=OVERRIDES)])["t"].result(60)
        # Kafka's brokers learn of a topic after its controller has answered.
        wait_until(lambda: "t" in admin.list_topics(timeout=60).topics, "the topic")
        # The client fills in the dict it gave: it must outlive the call.
        asked = admin.describe_configs([ConfigResource("topic", "t"), ConfigResource("broker", "0")])
        topic, broker = (answer.result(60) for answer in asked.values())
    ours = {entry.name: described(entry) for entry in settings.describe_topic_configs(kept)}
    assert {name: described_by_kafka(topic[name]) for name in topic if name not in ELSEWHERE} == {
        name: ours[name] for name in ours if name not in ELSEWHERE
    }
    by_name = {entry.name: described(entry) for entry in settings.describe_broker_configs()}
    assert set(by_name) - ELSEWHERE == set(broker) - ELSEWHERE
    compared = [name for name in by_name if name not in ELSEWHERE | OF_THE_PROCESS | OTHER_DEFAULTS]
    assert {name: by_name[name] for name in compared} == {name: described_by_kafka(broker[name]) for name in compared}


def described(entry: ConfigEntry) -> tuple[Any, ...]:
    # The client keeps one synonym a name, the weakest.
    synonyms = {synonym.name: (synonym.value, int(synonym.source)) for synonym in entry.synonyms}
    return entry.value, int(entry.source), entry.read_only, entry.setting.is_sensitive, synonyms


def described_by_kafka(entry: Any) -> tuple[Any, ...]:
    synonyms = {synonym.name: (synonym.value, synonym.source) for synonym in entry.synonyms.values()}
    return entry.value, entry.source, entry.is_read_only, entry.is_sensitive, synonyms
