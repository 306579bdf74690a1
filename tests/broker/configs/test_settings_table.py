"""The table is sound in itself; that it agrees with Apache Kafka is shown in conformance/settings/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import minibroker
from minibroker.broker.configs.group_settings import GROUP_SETTINGS
from minibroker.broker.configs.settings_table import (
    BROKER_SETTINGS,
    SETTINGS,
    TOPIC_SETTINGS,
    ConfigType,
    Setting,
    SettingScope,
    UpdateMode,
)
from minibroker.broker.configs.settings_values import format_setting_value, parse_setting_value
from minibroker.broker.configs.settings_without_effect import (
    KNOWN_WITHOUT_EFFECT,
    WITHOUT_EFFECT,
    find_broker_setting_declaration,
)
from minibroker.broker.configs.valid_values import OneOf, ReplicaList
from minibroker.storage.log_settings import LogSettings
from tests.cases import for_each


def test_every_setting_is_in_the_table_once() -> None:
    names = [row.name for row in SETTINGS if row.scope is not SettingScope.TOPIC]
    topics = [row.topic for row in SETTINGS if row.topic is not None]
    assert len(set(names)) == len(names) and len(set(topics)) == len(topics)
    assert not KNOWN_WITHOUT_EFFECT & set(names)


def test_a_default_of_a_setting_without_effect_is_valid() -> None:
    for row in WITHOUT_EFFECT.values():
        text = format_setting_value(row.default)
        assert text is None or parse_setting_value(row, row.name, text) == row.default, row


@pytest.mark.parametrize(
    ("name", "type", "base"),
    [
        ("listener.name.x.max.connections", ConfigType.INT, "max.connections"),
        ("listener.name.x.socket.request.max.bytes", ConfigType.INT, "socket.request.max.bytes"),
        ("listener.name.x.plain.sasl.jaas.config", ConfigType.PASSWORD, "sasl.jaas.config"),
    ],
)
def test_a_setting_of_one_listener_has_the_type_of_the_general_setting(name: str, type: ConfigType, base: str) -> None:
    row = find_broker_setting_declaration(name)
    assert (row.name, row.type, row.fallbacks) == (name, type, ((base, 1),))
    assert not row.is_dynamic


@pytest.mark.parametrize(
    ("name", "acts"),
    [
        ("listener.name.x.sasl.enabled.mechanisms", True),
        ("listener.name.x.plain.sasl.jaas.config", True),
        ("listener.name.x.sasl.jaas.config", False),  # as in Kafka: it is a mechanism's
        ("listener.name.x.max.connections.per.ip", False),
    ],
)
def test_the_table_marks_which_settings_of_one_listener_have_an_effect(name: str, acts: bool) -> None:
    assert find_broker_setting_declaration(name).has_effect is acts


@for_each(
    ("name", "why"),
    [
        ("controlled.shutdown.enable", "the controller is a part of this process"),
        ("replica.socket.timeout.ms", "the replicas of a partition share one log"),
        ("listener.name.x.num.network.threads", "one event loop serves all"),
        ("listener.name.x.max.connections.per.ip", "it is the same for all listeners"),
        ("no.such", "it is not known here"),
        ("max.connections", ""),
    ],
)
def test_a_setting_without_effect_gives_a_reason(name: str, why: str) -> None:
    assert find_broker_setting_declaration(name).inert == why


@pytest.mark.parametrize("name", ["no.such", "listener.name.x.no.such", "listener.name.x", "ssl.x"])
def test_an_unknown_setting_is_treated_as_sensitive(name: str) -> None:
    row = find_broker_setting_declaration(name)
    assert row.type is ConfigType.UNKNOWN and row.is_sensitive and not row.has_effect


def test_every_default_is_a_valid_value() -> None:
    for row in SETTINGS:
        text = format_setting_value(row.default)
        assert text is None or parse_setting_value(row, row.name, text) == row.default, row.name


def test_a_setting_is_explained_in_one_sentence() -> None:
    for row in SETTINGS:
        assert row.documentation.endswith(".") and "\n" not in row.documentation, row.name


def test_exactly_the_settings_that_apply_to_topics_have_a_topic_name() -> None:
    for row in SETTINGS:
        assert (row.topic is None) == (row.scope is SettingScope.BROKER), row.name
        assert row.scope is not SettingScope.BOTH or row.update is UpdateMode.CLUSTER_WIDE, row.name
        assert row.scope is not SettingScope.TOPIC or row.update is UpdateMode.READ_ONLY, row.name


def test_the_fallback_of_an_effective_setting_is_an_effective_broker_setting() -> None:
    for row in SETTINGS:
        for name, factor in row.fallbacks:
            assert factor >= 1 and BROKER_SETTINGS[name].has_effect == row.has_effect


def test_every_topic_setting_has_a_default_of_its_own_or_of_a_broker_setting() -> None:
    for row in TOPIC_SETTINGS.values():
        defaults = [row.default, *(BROKER_SETTINGS[name].default for name, _ in row.fallbacks)]
        assert row.internal or any(default is not None for default in defaults)


def test_only_passwords_are_sensitive() -> None:
    assert Setting("x", ConfigType.PASSWORD, None, "").is_sensitive
    assert all(row.type is ConfigType.PASSWORD for row in SETTINGS if row.is_sensitive)


def test_each_element_of_a_list_is_validated() -> None:
    policies = OneOf(("compact", "delete"))
    assert policies.find_validation_error(("compact", "delete")) is None
    assert policies.find_validation_error(()) is None
    assert policies.find_validation_error(("compact", "sometimes")) == "String must be one of: compact, delete"


@pytest.mark.parametrize("pairs", [("*",), (), ("0:1", "1:2")])
def test_throttled_replicas_are_a_wildcard_or_partition_broker_pairs(pairs: tuple[str, ...]) -> None:
    assert ReplicaList().find_validation_error(pairs) is None


@pytest.mark.parametrize("pairs", [("x",), ("0:",), ("0:1", "*"), ("1:b",)])
def test_throttled_replicas_in_another_form_than_a_wildcard_or_pairs_are_invalid(pairs: tuple[str, ...]) -> None:
    assert ReplicaList().find_validation_error(pairs) is not None


# Another name of node.id, which is the one that is looked up.
ALIASES = {"broker.id"}


def test_each_effective_setting_is_read_by_the_code() -> None:
    """A setting that is accepted and not acted on is a defect: it would be `acts=False` in the table."""
    files = Path(minibroker.__file__).parent.rglob("*.py")
    code = "".join(file.read_text() for file in files if not file.name.startswith("settings_"))
    bounds = {name for row, *names in GROUP_SETTINGS.values() if row.has_effect for name in names}
    fallbacks = {name for row in SETTINGS for name, _ in row.fallbacks}
    for row in SETTINGS:
        name = row.topic or row.name
        field = name.replace(".", "_")
        used = f'"{name}"' in code or (field in LogSettings._fields and f".{field}" in code)
        parts = r"compression\.(gzip|lz4|zstd)\.level|group\.(share|streams)\.max\.size"
        computed = re.fullmatch(parts, name) or name in bounds  # looked up by parts
        assert used or computed or not row.has_effect or name in fallbacks or name in ALIASES, name
