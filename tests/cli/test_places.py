"""Places in topics, as people write them, and the partitions and offsets that they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click
import pytest

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.places import (
    PartitionPlace,
    clamp_offset_to_log,
    find_offsets_at,
    list_partitions,
    parse_offset_or_time,
    parse_topic,
)
from minibroker.client.blocking import Client
from minibroker.testing import Broker
from tests.cases import for_each

PLACE = ("orders", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("orders", ())),
        ("a.b_c-d:0", ("a.b_c-d", (0,))),
        ("t:2,10,0", ("t", (2, 10, 0))),
        ("orders-*:1", ("orders-*", (1,))),
        ("^a:[0-9]", ("^a:[0-9]", ())),
    ],
)
def test_a_topic_argument_may_be_followed_by_partitions(text: str, expected: object) -> None:
    assert parse_topic(text) == expected


@for_each("text", ["", ":0", "t:", "t:a", "t:1,", "t:-1", "t:1:2", "a b"])
def test_an_invalid_topic_argument_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not TOPIC"):
        parse_topic(text)


def test_an_invalid_pattern_is_rejected_with_the_reason() -> None:
    with pytest.raises(click.BadParameter, match="is no regular expression: missing"):
        parse_topic("^(")


@for_each(
    ("text", "where"),
    [
        ("earliest", PartitionPlace("earliest")),
        ("beginning", PartitionPlace("earliest")),
        ("end", PartitionPlace("latest")),
        ("42", PartitionPlace("offset", 42)),
        ("-42", PartitionPlace("back", 42)),
        ("1970-01-01T00:00:01Z", PartitionPlace("time", 1000)),
        ("2026-01-31T12:00:00.5+01:00", PartitionPlace("time", 1_769_857_200_500)),
        ("2026-01-31", PartitionPlace("time", int(datetime(2026, 1, 31).timestamp() * 1000))),
        ("@1769857200500", PartitionPlace("time", 1_769_857_200_500)),
        ("3=42", PartitionPlace("offset", 42, 3)),
        ("0=1970-01-01T00:00:01Z", PartitionPlace("time", 1000, 0)),
    ],
)
def test_a_position_is_parsed_as_a_keyword_an_offset_or_a_time(text: str, where: PartitionPlace) -> None:
    assert parse_offset_or_time(text) == where


@for_each("text", ["", "first", "9" * 19, "9" * 1000, "2026-13-01", "1.5", "0=", "x=1", "two hours ago"])
def test_an_invalid_position_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not earliest, latest, an offset"):
        parse_offset_or_time(text)


@pytest.mark.parametrize(("wanted", "expected"), [(1, 2), (2, 2), (5, 5), (10, 10), (11, 10)])
def test_an_offset_outside_the_log_is_moved_into_it_with_a_note(
    wanted: int, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clamp_offset_to_log(PLACE, wanted, 2, 10) == expected
    assert ("orders-1" in capsys.readouterr().err) == (wanted != expected)


@pytest.fixture
def client(kafka: Broker) -> Iterator[Client]:
    """A client of a broker with two topics, and records at 1, 2 and 3 s in the second partition of one."""
    kafka.create_topic("orders-eu", partitions=2)
    kafka.create_topic("orders-us")
    for second in (1, 2, 3):
        kafka.produce("orders-eu", b"a", partition=1, timestamp_ms=1000 * second)
    with connect_client(Bootstrap(kafka.bootstrap_servers, ())) as found:
        yield found


EU0, EU1, US = ("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0)


@for_each(
    ("asked", "partitions"),
    [
        ("orders-eu", [EU0, EU1]),
        ("orders-eu:1", [EU1]),
        ("orders-*", [EU0, EU1, US]),
        ("orders-[v-z]?", []),
        ("^s$", []),
        ("^ord.*s$", [US]),
        ("__*", []),
    ],
)
def test_patterns_are_shell_patterns_or_regular_expressions(
    client: Client, asked: str, partitions: list[tuple[str, int]]
) -> None:
    if partitions:
        assert list_partitions(client, [parse_topic(asked)]) == partitions
    else:
        with pytest.raises(click.ClickException, match="no topic matches"):
            list_partitions(client, [parse_topic(asked)])


@for_each(
    ("places", "offsets"),
    [
        ([], [0, 0]),
        (["latest"], [0, 3]),
        (["1=2"], [0, 2]),
        (["-1"], [0, 2]),
        (["-9"], [0, 0]),
        (["latest", "1=1"], [0, 1]),
        (["1=1", "latest"], [0, 1]),
        (["1970-01-01T00:00:01.5Z"], [0, 1]),
        (["2999-01-01"], [0, 3]),
    ],
)
def test_each_partition_starts_at_the_offset_named_for_it(
    client: Client, places: list[str], offsets: list[int]
) -> None:
    found = find_offsets_at(client, [EU0, EU1], [parse_offset_or_time(text) for text in places], "earliest")
    assert found == dict(zip((EU0, EU1), offsets, strict=True))


def test_a_position_in_an_unread_partition_is_rejected(client: Client) -> None:
    with pytest.raises(click.ClickException, match="there is no partition 7 among those"):
        find_offsets_at(client, [EU0, EU1], [parse_offset_or_time("7=1")], "earliest")


def test_reading_the_metadata_log_is_rejected_with_a_hint_at_the_dump_command(client: Client) -> None:
    with pytest.raises(click.ClickException, match="minibroker dump shows its files"):
        list_partitions(client, [("__cluster_metadata", ())])
