"""Fetch sessions (KIP-227): what is remembered, what an incremental answer leaves out, and how sessions end.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from conformance.wire.batches import batch
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import (
    LATEST,
    Asked,
    Fetched,
    asked,
    create_request,
    fetch_request,
    fetched,
    list_offset,
    metadata_of,
    produce,
    remove,
    repeated,
    topic,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest

NOW_MS = int(time.time() * 1000)
GOOD = batch([b"a", b"b"], timestamp=NOW_MS)
NO_SESSION = 0
FINAL_EPOCH = -1
Topics = dict[Any, Sequence[Asked]]


class Answer(NamedTuple):
    """The answer of a Fetch; `partitions` by (topic, partition) in the order of the answer."""

    error_code: int
    session_id: int
    partitions: dict[Any, Fetched]


NOT_FOUND = Answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, NO_SESSION, {})
WRONG_EPOCH = Answer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, {})


def fetch(
    connection: Connection,
    session_id: int,
    epoch: int,
    topics: Topics | None = None,
    *,
    forget: dict[Any, list[int]] | None = None,
    version: int = 12,
) -> Answer:
    forgotten = [
        FetchRequest.ForgottenTopic(
            **({"topic": key} if isinstance(key, str) else {"topic_id": key}), partitions=partitions
        )
        for key, partitions in (forget or {}).items()
    ]
    fields = {"session_id": session_id, "session_epoch": epoch, "forgotten_topics_data": forgotten}
    answer = connection.ask(fetch_request(topics or {}, **fields), version)
    return Answer(answer.error_code, answer.session_id, fetched(answer))


@pytest.fixture
def name(connection: Connection, new_topic: NewTopic) -> str:
    """A topic with two partitions, each with a batch of two records."""
    created = new_topic(2)
    for partition in (0, 1):
        assert produce(connection, created, GOOD, partition=partition).error_code == 0
    return created


FIRST = Fetched(0, 2, 0, (0,))
AT_END = Fetched(0, 2, 0)


@pytest.fixture
def session(connection: Connection, name: str) -> int:
    """The id of a session at the end of both partitions, whose next epoch is 1."""
    answer = fetch(connection, 0, 0, {name: [asked(0, 2), asked(1, 2)]})
    assert answer.error_code == 0 and answer.session_id > 0
    assert answer.partitions == {(name, 0): AT_END, (name, 1): AT_END}
    return answer.session_id


@pytest.mark.parametrize("version", [7, 11, 12])
def test_a_fetch_session_keeps_its_partitions(connection: Connection, name: str, version: int) -> None:
    both = {(name, 0): FIRST, (name, 1): FIRST}
    opened = fetch(connection, 0, 0, {name: [asked(0), asked(1)]}, version=version)
    assert opened.session_id != NO_SESSION and opened.partitions == both
    assert fetch(connection, opened.session_id, 1, version=version) == opened


def test_topic_ids_can_be_used_in_a_session(connection: Connection, name: str) -> None:
    topic_id = metadata_of(connection, name).topic_id
    opened = fetch(connection, 0, 0, {topic_id: [asked(0)]}, version=13)
    assert opened.partitions == {(topic_id, 0): FIRST}
    assert fetch(connection, opened.session_id, 1, version=13) == opened
    assert fetch(connection, opened.session_id, 2, {topic_id: [asked(0, 2)]}, version=13).partitions == {}


def test_unchanged_partitions_are_omitted(connection: Connection, name: str, session: int) -> None:
    assert fetch(connection, session, 1) == Answer(0, session, {})
    produce(connection, name, GOOD, partition=1)
    assert fetch(connection, session, 2) == Answer(0, session, {(name, 1): Fetched(0, 4, 0, (2,))})
    assert fetch(connection, session, 3, {name: [asked(1, 4)]}) == Answer(0, session, {})


def test_unconsumed_records_are_sent_again(connection: Connection, name: str, session: int) -> None:
    produce(connection, name, GOOD, partition=1)
    new = Answer(0, session, {(name, 1): Fetched(0, 4, 0, (2,))})
    assert [fetch(connection, session, epoch) for epoch in (1, 2, 3)] == [new] * 3


def test_partitions_are_added_to_updated_in_and_removed_from_a_session(
    connection: Connection, name: str, new_topic: NewTopic
) -> None:
    session = fetch(connection, 0, 0, {name: [asked(0, 2)]}).session_id
    added = fetch(connection, session, 1, {name: [asked(1, 2)]})
    assert added.partitions == {(name, 1): AT_END}
    moved = fetch(connection, session, 2, {name: [asked(1, 0)]})
    assert moved.partitions == {(name, 1): FIRST}
    assert fetch(connection, session, 3, forget={name: [1]}) == Answer(0, session, {})
    produce(connection, name, GOOD, partition=1)
    assert fetch(connection, session, 4) == Answer(0, session, {})


def test_removing_an_unknown_partition_from_a_session_is_ignored(
    connection: Connection, name: str, session: int
) -> None:
    assert fetch(connection, session, 1, forget={name: [9], "no-such-topic": [0]}) == Answer(0, session, {})


def test_a_session_without_partitions_is_closed(connection: Connection, name: str, session: int) -> None:
    assert fetch(connection, session, 1, forget={name: [0, 1]}) == Answer(0, NO_SESSION, {})
    assert fetch(connection, session, 2) == NOT_FOUND


def test_a_fetch_that_empties_its_session_returns_the_partitions_it_names(
    connection: Connection, name: str, session: int
) -> None:
    expected = Answer(0, NO_SESSION, {(name, 0): FIRST})
    assert fetch(connection, session, 1, {name: [asked(0, 0)]}, forget={name: [0, 1]}) == expected
    assert fetch(connection, session, 2) == NOT_FOUND


def test_a_session_may_start_without_partitions(connection: Connection) -> None:
    opened = fetch(connection, 0, 0)
    assert (opened.error_code, opened.partitions) == (0, {})
    assert opened.session_id != NO_SESSION


def test_a_partition_error_is_repeated_in_each_response_of_a_session(
    connection: Connection, name: str, session: int
) -> None:
    unknown = {("no-such-topic", 0): Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert fetch(connection, session, 1, {"no-such-topic": [asked()]}) == Answer(0, session, unknown)
    assert fetch(connection, session, 2) == Answer(0, session, unknown)
    both = {**unknown, (name, 0): Fetched(ErrorCode.OFFSET_OUT_OF_RANGE)}
    assert fetch(connection, session, 3, {name: [asked(0, 99)]}) == Answer(0, session, both)
    assert fetch(connection, session, 4) == Answer(0, session, both)
    again = {(name, 0): FIRST}
    answer = fetch(connection, session, 5, {name: [asked(0, 0)]}, forget={"no-such-topic": [0]})
    assert answer == Answer(0, session, again)


def test_an_unknown_topic_id_is_reported_in_each_response_of_a_session(connection: Connection, name: str) -> None:
    known, unknown = metadata_of(connection, name).topic_id, b"\1" * 16
    opened = fetch(connection, 0, 0, {unknown: [asked()], known: [asked(0, 2)]}, version=13)
    missing = {(unknown, 0): Fetched(ErrorCode.UNKNOWN_TOPIC_ID)}
    assert opened.partitions == {**missing, (known, 0): AT_END}
    assert fetch(connection, opened.session_id, 1, version=13).partitions == missing
    assert fetch(connection, opened.session_id, 2, forget={unknown: [0]}, version=13).partitions == {}


def test_a_fetch_session_reports_a_deleted_or_recreated_topic_in_each_response(
    connection: Connection, name: str, new_topic: NewTopic
) -> None:
    other, topic_id = metadata_of(connection, new_topic()).topic_id, metadata_of(connection, name).topic_id
    wanted = {topic_id: [asked(0, 2), asked(1)], other: [asked()]}
    opened = fetch(connection, 0, 0, wanted, version=13)
    assert {each.error_code for each in opened.partitions.values()} == {0}
    remove(connection, name)
    gone = dict.fromkeys([(topic_id, 0), (topic_id, 1)], Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert [fetch(connection, opened.session_id, epoch, version=13).partitions for epoch in (1, 2)] == [gone, gone]
    assert fetch(connection, 0, -1, wanted, version=13).partitions[topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert connection.ask(create_request(topic(name)), 7).topics[0].error_code == 0
    repeated(lambda: list_offset(connection, name, LATEST), lambda seen: seen.error_code == 0)
    again = {**gone, (topic_id, 0): Fetched(ErrorCode.INCONSISTENT_TOPIC_ID)}  # which has one partition now
    assert [fetch(connection, opened.session_id, epoch, version=13).partitions for epoch in (3, 4)] == [again, again]
    assert fetch(connection, 0, -1, wanted, version=13).partitions[topic_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("epoch", [2, 9, 1 << 30])
def test_a_wrong_session_epoch_is_rejected_and_the_session_is_kept(
    connection: Connection, session: int, epoch: int
) -> None:
    assert fetch(connection, session, epoch) == WRONG_EPOCH
    assert fetch(connection, session, 1) == Answer(0, session, {})


def test_a_session_epoch_cannot_be_used_twice(connection: Connection, session: int) -> None:
    fetch(connection, session, 1)
    assert fetch(connection, session, 1) == WRONG_EPOCH
    assert fetch(connection, session, 2) == Answer(0, session, {})


@pytest.mark.parametrize(("session_id", "epoch"), [(999, 1), (-7, 5), (0, 1), (0, 3), (0, -5)])
def test_an_unknown_session_is_rejected(connection: Connection, name: str, session_id: int, epoch: int) -> None:
    assert fetch(connection, session_id, epoch, {name: [asked()]}) == NOT_FOUND


def test_a_sessionless_fetch_creates_no_session(connection: Connection, name: str) -> None:
    assert fetch(connection, 0, FINAL_EPOCH, {name: [asked()]}) == Answer(0, NO_SESSION, {(name, 0): FIRST})


def test_the_final_epoch_returns_all_partitions_and_closes_the_session(
    connection: Connection, name: str, session: int
) -> None:
    assert fetch(connection, session, FINAL_EPOCH, {name: [asked()]}) == Answer(0, NO_SESSION, {(name, 0): FIRST})
    assert fetch(connection, session, 1) == NOT_FOUND


def test_closing_an_unknown_session_is_accepted(connection: Connection, name: str) -> None:
    assert fetch(connection, 999, FINAL_EPOCH, {name: [asked()]}) == Answer(0, NO_SESSION, {(name, 0): FIRST})


def test_epoch_0_replaces_a_session(connection: Connection, name: str, session: int) -> None:
    opened = fetch(connection, session, 0, {name: [asked(1, 2)]})
    assert (opened.error_code, opened.partitions) == (0, {(name, 1): AT_END})
    assert opened.session_id not in (NO_SESSION, session)
    assert fetch(connection, session, 1) == NOT_FOUND
    assert fetch(connection, opened.session_id, 1) == Answer(0, opened.session_id, {})


def test_a_session_can_be_used_by_another_connection(session: int, connect: Callable[[], Connection]) -> None:
    with connect() as other:
        assert fetch(other, session, 1) == Answer(0, session, {})


@pytest.mark.parametrize(("before", "after"), [(12, 13), (13, 12)])
def test_names_and_topic_ids_cannot_be_mixed_in_a_session(
    connection: Connection, name: str, before: int, after: int
) -> None:
    key = name if before == 12 else metadata_of(connection, name).topic_id
    opened = fetch(connection, 0, 0, {key: [asked()]}, version=before)
    mixed = fetch(connection, opened.session_id, 1, version=after)
    assert mixed == Answer(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, NO_SESSION, {})


def test_partitions_that_returned_records_move_to_the_end_of_the_fetch_session(
    connection: Connection, new_topic: NewTopic
) -> None:
    name = new_topic(3)
    session = fetch(connection, 0, 0, {name: [asked(0), asked(1), asked(2)]}).session_id
    for partition in range(3):
        produce(connection, name, GOOD, partition=partition)
    order = []
    for epoch in range(1, 7):
        answer = connection.ask(fetch_request({}, session_id=session, session_epoch=epoch, max_bytes=1), 12)
        with_records = [key for key, found in fetched(answer).items() if found.first_offsets]
        order += [partition for _, partition in with_records]
    assert order == [0, 1, 2, 0, 1, 2]
