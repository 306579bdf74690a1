"""The versions of Kafka that name a message format."""

from __future__ import annotations

from minibroker.broker.configs.valid_values import find_magic_of_format_version
from tests.cases import for_each


@for_each(
    ("version", "magic"),
    [
        ("0.8.0", 0),
        ("0.8.2.2", 0),
        ("0.9.0", 0),
        ("0.10.0-IV0", 1),
        ("0.10.0", 1),
        ("0.10.0.1", 1),
        ("0.10.2-IV0", 1),
        ("0.11.0-IV0", 2),
        ("0.11.0", 2),
        ("1.0", 2),
        ("2.8", 2),
        ("2.8.2", 2),
        ("3.0-IV1", 2),
        ("4.3", 2),
    ],
)
def test_a_kafka_version_maps_to_the_message_format_of_its_time(version: str, magic: int) -> None:
    assert find_magic_of_format_version(version) == magic


@for_each("version", ["", "0.7", "0.8", "0.9.0-IV0", "0.10", "0.10.0-IV2", "0.10.3", "1", "2", "2.9", "x"])
def test_an_unknown_version_has_no_message_format(version: str) -> None:
    assert find_magic_of_format_version(version) is None
