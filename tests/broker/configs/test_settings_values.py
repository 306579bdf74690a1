"""Texts become values as in Kafka's ConfigDef, whose accepted forms and error texts are pinned here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.configs.settings_table import CODECS, FROM_ONE, ConfigType, Setting, SettingScope, SettingValue
from minibroker.broker.configs.settings_values import InvalidValue, format_setting_value, parse_setting_value
from minibroker.broker.configs.valid_values import OneOf, Range
from tests.cases import for_each


def parse(type: ConfigType, text: str, valid: Range | OneOf | None = None) -> SettingValue:
    return parse_setting_value(Setting("some.name", type, None, "", valid), "some.name", text)


@for_each(
    ("type", "text", "value"),
    [
        (ConfigType.BOOLEAN, "TRUE", True),
        (ConfigType.BOOLEAN, " false ", False),
        (ConfigType.INT, "+5", 5),
        (ConfigType.INT, " -2147483648 ", -(1 << 31)),
        (ConfigType.LONG, "9223372036854775807", (1 << 63) - 1),
        (ConfigType.DOUBLE, "1e-1", 0.1),
        (ConfigType.DOUBLE, "0.5d", 0.5),
        (ConfigType.DOUBLE, ".5", 0.5),
        (ConfigType.STRING, "  a b ", "a b"),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, " a , b ", ("a", "b")),
    ],
)
def test_setting_text_is_parsed_to_its_type(type: ConfigType, text: str, value: SettingValue) -> None:
    assert parse(type, text) == value


@for_each(
    ("type", "text", "complaint"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.BOOLEAN, "1", "Expected value to be either true or false"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "0x10", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.LONG, "-9223372036854775809", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "half", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "0.5x", "Not a number of type DOUBLE"),
    ],
)
def test_invalid_text_is_rejected_with_kafkas_message(type: ConfigType, text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse(type, text)
    assert str(refusal.value) == f"Invalid value {text} for configuration some.name: {complaint}"


def test_a_number_of_a_million_digits_is_rejected_without_being_computed() -> None:
    with pytest.raises(InvalidValue, match="Not a number"):
        parse(ConfigType.INT, "9" * 1_000_000)


def test_duplicates_are_dropped_from_topic_lists_and_rejected_in_broker_lists() -> None:
    setting = Setting("log.cleanup.policy", ConfigType.LIST, (), "", scope=SettingScope.BOTH, topic="cleanup.policy")
    assert parse_setting_value(setting, "cleanup.policy", "b,a,b") == ("b", "a")
    with pytest.raises(InvalidValue, match=r"^Configuration 'log\.cleanup\.policy' values must not be duplicated\.$"):
        parse_setting_value(setting, "log.cleanup.policy", "b,a,b")


def test_a_list_with_empty_elements_is_invalid() -> None:
    with pytest.raises(InvalidValue, match=r"^Configuration 'some\.name' values must not be empty\.$"):
        parse(ConfigType.LIST, "a,,b")


def test_a_required_list_cannot_be_empty() -> None:
    setting = Setting("some.name", ConfigType.LIST, (), "", OneOf(("a", "b"), some=True))
    assert parse_setting_value(setting, "some.name", "b") == ("b",)
    with pytest.raises(InvalidValue, match=r"some\.name: must not be empty\. Valid values include: \[a, b\]"):
        parse_setting_value(setting, "some.name", "")


@pytest.mark.parametrize(
    ("valid", "text", "complaint"),
    [
        (FROM_ONE, "0", "Value must be at least 1"),
        (Range(1, 17), "18", "Value must be no more than 17"),
        (Range(1, 9, or_equal_to=-1), "0", "Value must be between 1 and 9 or equal to -1"),
    ],
)
def test_a_number_out_of_range_is_rejected(valid: Range, text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse(ConfigType.INT, text, valid)
    assert str(refusal.value).endswith(complaint)


@pytest.mark.parametrize("text", ["-1", "1", "9"])
def test_values_at_the_limits_of_a_range_are_valid(text: str) -> None:
    assert parse(ConfigType.INT, text, Range(1, 9, or_equal_to=-1)) == int(text)


def test_enumerated_values_are_case_sensitive() -> None:
    assert parse(ConfigType.STRING, "gzip", CODECS) == "gzip"
    with pytest.raises(InvalidValue, match="String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"):
        parse(ConfigType.STRING, "GZIP", CODECS)


@given(st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1))
def test_every_long_is_parsed_back_from_its_text(number: int) -> None:
    assert parse(ConfigType.LONG, format_setting_value(number) or "") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_parsed_back_from_its_text(number: float) -> None:
    assert parse(ConfigType.DOUBLE, format_setting_value(number) or "") == number


@given(st.text())
def test_any_setting_text_is_parsed_or_rejected(text: str) -> None:
    for type in ConfigType:
        try:
            parse(type, text)
        except InvalidValue as refusal:
            assert "some.name" in str(refusal)


def test_setting_values_are_formatted_as_in_kafka() -> None:
    assert [format_setting_value(value) for value in (True, False, 7, 0.5, ("a", "b"), (), None, "x")] == [
        "true",
        "false",
        "7",
        "0.5",
        "a,b",
        "",
        None,
        "x",
    ]
