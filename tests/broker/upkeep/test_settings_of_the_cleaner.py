"""Which threads, memory and rates the cleaner is started with, and how its settings may change while it runs."""

from __future__ import annotations

import pytest

from minibroker.broker.configs.settings import Settings, SettingsError, validate_broker_overrides
from minibroker.broker.configs.settings_values import format_setting_value
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

MIB = 1 << 20


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads must be at least 1"),
        ({"log.cleaner.dedupe.buffer.size": str(MIB)}, "must be at least 1MB per cleaner thread"),
        (
            {"log.cleaner.threads": "4", "log.cleaner.dedupe.buffer.size": str(4 * MIB)},
            "must be at least 1MB per cleaner thread",
        ),
        ({"log.cleaner.io.buffer.load.factor": "1e-7"}, "too small to fit in even a single message"),
        ({"log.cleaner.io.buffer.load.factor": "-1"}, "too small to fit in even a single message"),
    ],
)
def test_a_cleaner_with_too_little_memory_is_rejected(texts: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(texts)


def test_a_dedupe_buffer_just_above_the_minimum_is_accepted() -> None:
    settings = Settings({"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": str(2 * (MIB + 1))})
    assert settings["log.cleaner.dedupe.buffer.size"] == 2 * (MIB + 1)


@pytest.mark.parametrize(
    ("wanted", "change"), [("1", "reduced to less than half"), ("9", "increased to more than double")]
)
def test_cleaner_threads_change_by_at_most_a_factor_of_two(wanted: str, change: str) -> None:
    settings = Settings({"log.cleaner.threads": "4"})
    with pytest.raises(KafkaError, match=f"Log cleaner threads cannot be {change} the current value 4") as raised:
        validate_broker_overrides(settings, {"log.cleaner.threads": wanted}, per_broker=False)
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    for allowed in ("2", "8"):
        validate_broker_overrides(settings, {"log.cleaner.threads": allowed}, per_broker=False)


def test_the_cleaner_cannot_be_disabled_at_runtime() -> None:
    with pytest.raises(KafkaError, match="Cannot update these configs dynamically"):
        validate_broker_overrides(Settings(), {"log.cleaner.enable": "false"}, per_broker=False)


def test_no_cleaner_setting_is_declared_without_effect() -> None:
    cleaner = [entry for entry in Settings().describe_broker_configs() if entry.name.startswith("log.cleaner.")]
    assert len(cleaner) == 11
    assert all(entry.setting.has_effect for entry in cleaner)


@for_each(
    ("value", "text"),
    [
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.9, "0.9"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123_456_789.5, "1.234567895E8"),
        (-2e8, "-2.0E8"),
        (1e-3, "0.001"),
        (1e-4, "1.0E-4"),
        (0.0, "0.0"),
        (float("inf"), "Infinity"),
    ],
)
def test_a_double_setting_is_formatted_as_in_java(value: float, text: str) -> None:
    assert format_setting_value(value) == text
