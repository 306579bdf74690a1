"""Dead letters of share groups (KIP-1191): what is in the queue for each record that a group gives up."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.share.dead_letters import collect, written
from conformance.wire.batches import Record, batch
from conformance.wire.connection import Connection
from conformance.wire.requests import produce, repeated
from conformance.wire.share_fixtures import NOW_MS, NewMember, new_share_member, topic_id
from conformance.wire.share_members import Member, configure
from tests.clients.share_requests import ACCEPT, REJECT, RELEASE

__all__ = ["new_share_member", "topic_id"]
QUEUE_PARTITIONS = 2
KEY, VALUE = b"\x00\xff", b"a value"


@pytest.fixture
def queue(connection: Connection, group: str) -> str:
    """The group's queue, which gets copies of the records."""
    name = f"dlq.{group}"
    collect(connection, group, name, QUEUE_PARTITIONS)
    return name


@pytest.fixture
def reader(connection: Connection, queue: str, group: str, name: str, new_share_member: NewMember) -> Member:
    """A member that has joined; the topic has three records."""
    configure(connection, group, delivery_count_limit="2")
    records = [Record(VALUE, KEY, headers=[("own", b"\x01"), ("null", None)]), Record(None), Record(b"")]
    assert produce(connection, name, batch(records, timestamp=NOW_MS)).error_code == 0
    made = new_share_member()
    made.join()
    return made


def letters(connection: Connection, queue: str, count: int) -> list[Any]:
    """Return so many dead letters, by partition and in order."""

    def found() -> list[Any]:
        return list(written(connection, queue, QUEUE_PARTITIONS))

    seen: list[Any] = repeated(found, lambda there: len(there) >= count)
    return seen


def headers(letter: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in letter.headers}


def test_a_dead_letter_has_its_records_key_value_and_reason(
    connection: Connection, queue: str, group: str, name: str, reader: Member
) -> None:
    assert reader.fetch_some() == [(0, 2, 1)]
    assert reader.outcome((0, 2, [REJECT, REJECT, ACCEPT])) == 0
    first, second = letters(connection, queue, 2)
    assert [(first.key, first.value), (second.key, second.value)] == [(KEY, VALUE), (None, None)]
    assert [key for key, _ in first.headers] == [f"__dlq.errors.{key}" for key in HEADERS]
    said = dict(zip(HEADERS, [name, "0", "0", group, "1", "Offset rejected by client."], strict=True))
    assert headers(first) == {f"__dlq.errors.{key}": value for key, value in said.items()}
    assert headers(second)["__dlq.errors.offset"] == "1"
    assert first.timestamp > NOW_MS


HEADERS = "topic", "partition", "offset", "group", "delivery.count", "message"


def test_a_record_released_too_often_gets_a_dead_letter(
    connection: Connection, queue: str, group: str, name: str, reader: Member
) -> None:
    assert reader.fetch_some() == [(0, 2, 1)]
    assert reader.outcome((0, 2, [RELEASE, ACCEPT, RELEASE])) == 0
    assert reader.fetch_some() == [(0, 0, 2), (2, 2, 2)]
    assert reader.outcome((0, 0, [RELEASE]), (2, 2, [ACCEPT])) == 0
    (letter,) = letters(connection, queue, 1)
    assert (letter.key, letter.value) == (KEY, VALUE)
    assert [headers(letter)[f"__dlq.errors.{key}"] for key in ("offset", "delivery.count", "message")] == [
        "0",
        "2",
        "Offset delivery count exceeded the threshold.",
    ]
