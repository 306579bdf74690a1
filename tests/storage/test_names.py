"""The names of directories and files, in both directions.

Which names are on a disk is tested in `test_log_directory.py` and `test_leftovers.py`.
"""

from __future__ import annotations

import pytest

from minibroker.storage.names import (
    DELETED_LOG_SUFFIX,
    STRAY_LOG_SUFFIX,
    format_log_name,
    is_deleted_log_name,
    list_offsets_with_suffix,
    make_future_log_name,
    make_log_name_with_suffix,
    make_segment_name,
    parse_base_offset,
    parse_future_log_name,
    parse_log_name,
)
from tests.cases import for_each

UNIQUE = "0123456789abcdef0123456789abcdef"


@for_each(
    ("name", "topic_partition"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b-12", ("a-b", 12)),
        ("a-1-0", ("a-1", 0)),
        ("-0", None),
        ("--0", ("-", 0)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0)),
        ("orders-01", None),
        ("orders--1", ("orders-", 1)),
        ("orders", None),
        ("orders-0.tmp", None),
        ("orders-0\n", None),
        ("or ders-0", None),
        (f"orders-0.{UNIQUE}-delete", None),
        (f"orders-0.{UNIQUE}-future", None),
        (f"orders-0.{UNIQUE}-stray", None),
    ],
)
def test_a_log_is_identified_by_its_directory_name(name: str, topic_partition: tuple[str, int] | None) -> None:
    assert parse_log_name(name) == topic_partition


def test_log_directory_names_are_parsed_into_topic_and_partition() -> None:
    for topic in ("a", "a-b", "a-1", "1-1", "x.y_z-"):
        assert parse_log_name(format_log_name(topic, 7)) == (topic, 7)


def test_a_deleted_logs_directory_name_is_recognized() -> None:
    name = make_log_name_with_suffix("or-ders", 3, UNIQUE, DELETED_LOG_SUFFIX)
    assert name == f"or-ders-3.{UNIQUE}-delete"
    assert is_deleted_log_name(name)
    assert parse_log_name(name) is None
    assert not is_deleted_log_name(make_log_name_with_suffix("or-ders", 3, UNIQUE, STRAY_LOG_SUFFIX))
    assert not is_deleted_log_name("my-delete")


def test_the_longest_topic_name_is_shortened_for_the_file_system() -> None:
    name = make_log_name_with_suffix("t" * 249, 1234567890, UNIQUE, DELETED_LOG_SUFFIX)
    assert len(name) == 255
    assert name.endswith(f"-1234567890.{UNIQUE}-delete")


def test_segment_file_names_have_twenty_digits() -> None:
    assert make_segment_name(0) == "00000000000000000000"
    assert make_segment_name((1 << 63) - 1) == "09223372036854775807"
    assert parse_base_offset("00000000000000000042.log") == 42
    assert parse_base_offset("leader-epoch-checkpoint") is None
    assert parse_base_offset("0000000000000000004²") is None
    assert parse_base_offset("42.log") is None


def test_only_files_with_exactly_the_suffix_are_listed() -> None:
    names = ["00000000000000000042.log", "00000000000000000007.log", "00000000000000000009.log.deleted", "7.log"]
    assert list_offsets_with_suffix(names, ".log") == [7, 42]


@pytest.mark.parametrize("topic", ["orders", "a-1", "a.b-future"])
def test_a_future_logs_directory_name_identifies_its_log(topic: str) -> None:
    name = make_future_log_name(topic, 12, UNIQUE)
    assert name == f"{topic}-12.{UNIQUE}-future"
    assert parse_future_log_name(name) == (topic, 12)
    assert parse_log_name(name) is None
    assert not is_deleted_log_name(name)


@pytest.mark.parametrize(
    "name", ["orders-0", f"orders.{UNIQUE}-future", f"orders-0.{UNIQUE}-delete", "orders-0.12-future"]
)
def test_other_directory_names_are_not_those_of_future_logs(name: str) -> None:
    assert parse_future_log_name(name) is None
