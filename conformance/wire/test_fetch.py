"""Fetch without a session: which batches come, limits, waiting, and errors by partition.

Every literal is what Apache Kafka 4.4 answers; where minibroker differs on purpose, `differing` says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from conformance.wire.batches import ZSTD, batch
from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import (
    Fetched,
    as_fetched,
    asked,
    create_request,
    fetch_request,
    fetched,
    metadata_of,
    produce,
    repeated,
    stored,
    topic,
    whole_batches,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.topics import DeleteTopicsRequest

NOW_MS = int(time.time() * 1000)
BATCHES = 5
SENT = [batch([b"a%d" % place, b"b%d" % place], timestamp=NOW_MS) for place in range(BATCHES)]
SIZE = len(SENT[0])
END = 2 * BATCHES
ALL = Fetched(0, END, 0, (0, 2, 4, 6, 8))
LONG_MS = 15_000


@pytest.fixture
def name(connection: Connection, new_topic: NewTopic) -> str:
    """A topic with two partitions, the first with five batches of two records each."""
    created = new_topic(2)
    for each in SENT:
        assert produce(connection, created, each).error_code == 0
    return created


def fetch(connection: Connection, topics: dict[Any, Any], version: int = 12, **fields: Any) -> dict[Any, Fetched]:
    answer = connection.ask(fetch_request(topics, **fields), version)
    assert (answer.error_code, answer.session_id) == (0, 0)
    return fetched(answer)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_returns_the_batches_as_produced(connection: Connection, name: str, version: int) -> None:
    key = metadata_of(connection, name).topic_id if version >= 13 else name
    answer = connection.ask(fetch_request({key: [asked()]}), version)
    expected = ALL if version >= 5 else ALL._replace(log_start_offset=-1)
    assert fetched(answer) == {(key, 0): expected}
    (partition,) = answer.responses[0].partitions
    assert (partition.last_stable_offset, partition.preferred_read_replica) == (END, -1)
    records = bytes(partition.records)
    assert [records[place * SIZE + 21 : (place + 1) * SIZE] for place in range(BATCHES)] == [each[21:] for each in SENT]


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (2, 2), (3, 2), (9, 8)])
def test_the_batch_that_contains_the_offset_is_returned_first(
    connection: Connection, name: str, offset: int, first: int
) -> None:
    found = fetch(connection, {name: [asked(0, offset)]})
    assert found[name, 0].first_offsets == tuple(range(first, END, 2))


def test_a_fetch_at_the_log_end_is_empty(connection: Connection, name: str) -> None:
    assert fetch(connection, {name: [asked(0, END), asked(1, 0)]}) == {
        (name, 0): Fetched(0, END, 0),
        (name, 1): Fetched(0, 0, 0),
    }


@pytest.mark.parametrize("offset", [-1, -2, END + 1, 1 << 62])
def test_an_offset_out_of_range_is_rejected(connection: Connection, name: str, offset: int) -> None:
    answer = connection.ask(fetch_request({name: [asked(0, offset)]}), 12)
    assert fetched(answer) == {(name, 0): Fetched(ErrorCode.OFFSET_OUT_OF_RANGE)}
    assert bytes(answer.responses[0].partitions[0].records) == b""


def test_unknown_partitions_and_topics_are_rejected(connection: Connection, name: str) -> None:
    unknown = Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = fetch(connection, {name: [asked(0), asked(7)], "no-such-topic": [asked()], "no topic": [asked()]})
    assert found == {(name, 0): ALL, (name, 7): unknown, ("no-such-topic", 0): unknown, ("no topic", 0): unknown}


def test_unknown_topic_ids_are_rejected(connection: Connection, name: str) -> None:
    topic_id = metadata_of(connection, name).topic_id
    found = fetch(connection, {topic_id: [asked(0), asked(7)], b"\1" * 16: [asked()]}, 13)
    assert found == {
        (topic_id, 0): ALL,
        (topic_id, 7): Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (b"\1" * 16, 0): Fetched(ErrorCode.UNKNOWN_TOPIC_ID),
    }
    assert fetch(connection, {bytes(16): [asked()]}, 13) == {(bytes(16), 0): Fetched(ErrorCode.UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize("offset", [0, END + 1])
def test_a_future_leader_epoch_is_rejected(connection: Connection, name: str, offset: int) -> None:
    found = fetch(connection, {name: [asked(0, offset, current_leader_epoch=1)]})
    assert found == {(name, 0): Fetched(ErrorCode.UNKNOWN_LEADER_EPOCH)}


@pytest.mark.parametrize("epoch", [-1, 0])
def test_the_current_leader_epoch_or_none_is_accepted(connection: Connection, name: str, epoch: int) -> None:
    assert fetch(connection, {name: [asked(current_leader_epoch=epoch)]}) == {(name, 0): ALL}


def test_a_fetch_beyond_the_end_of_its_epoch_gets_the_diverging_epoch(connection: Connection, name: str) -> None:
    answer = connection.ask(fetch_request({name: [asked(0, 99, last_fetched_epoch=0)]}), 12)
    (partition,) = answer.responses[0].partitions
    assert (partition.error_code, bytes(partition.records)) == (0, b"")
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, END)
    request = fetch_request({name: [asked(0, 99, last_fetched_epoch=0)]}, isolation_level=1)
    (partition,) = connection.ask(request, 12).responses[0].partitions
    assert (partition.diverging_epoch.end_offset, partition.aborted_transactions) == (END, None)
    found = fetch(connection, {name: [asked(0, 4, last_fetched_epoch=0)]})
    assert found[name, 0].first_offsets == (4, 6, 8)


def test_a_last_fetched_epoch_above_the_current_one_is_rejected(connection: Connection, name: str) -> None:
    found = fetch(connection, {name: [asked(0, 3, last_fetched_epoch=5)]})
    assert found == {(name, 0): Fetched(ErrorCode.OFFSET_OUT_OF_RANGE)}


@pytest.mark.parametrize("limit", [0, 1, SIZE - 1, SIZE, 2 * SIZE - 1, 2 * SIZE, 3 * SIZE + 1, 100 * SIZE])
def test_a_fetch_returns_batches_within_its_byte_limit_but_at_least_one(
    connection: Connection, name: str, limit: int
) -> None:
    expected = tuple(range(0, END, 2))[: max(1, limit // SIZE)]
    assert fetch(connection, {name: [asked(0, partition_max_bytes=limit)]})[name, 0].first_offsets == expected
    assert fetch(connection, {name: [asked(0)]}, max_bytes=limit)[name, 0].first_offsets == expected


def test_the_first_partition_of_a_fetch_may_use_its_whole_byte_limit(connection: Connection, name: str) -> None:
    produce(connection, name, SENT[0], partition=1)
    both = {name: [asked(0), asked(1)]}
    found = fetch(connection, both, max_bytes=1)
    assert (found[name, 0].first_offsets, found[name, 1]) == ((0,), Fetched(0, 2, 0))
    found = fetch(connection, {name: [asked(0, partition_max_bytes=1), asked(1, partition_max_bytes=1)]})
    assert (found[name, 0].first_offsets, found[name, 1]) == ((0,), Fetched(0, 2, 0))
    found = fetch(connection, both, max_bytes=6 * SIZE)
    assert (found[name, 0], found[name, 1].first_offsets) == (ALL, (0,))


def test_negative_byte_limits_of_a_fetch_return_no_batch(
    connection: Connection, name: str, differing: Differing
) -> None:
    expected = differing(
        kafka=Fetched(ErrorCode.UNKNOWN_SERVER_ERROR),
        minibroker=Fetched(0, END, 0),
        because="Kafka's log fails over them; less than nothing holds no batch",
    )
    assert fetch(connection, {name: [asked(0, partition_max_bytes=-1)]})[name, 0] == expected
    assert fetch(connection, {name: [asked(0)]}, max_bytes=-1)[name, 0] == expected


def test_a_partition_may_be_requested_twice_in_a_fetch(connection: Connection, name: str, differing: Differing) -> None:
    found = connection.ask(fetch_request({name: [asked(0, 0), asked(0, 6)]}), 12)
    answers = [as_fetched(each) for each in found.responses[0].partitions]
    assert answers == differing(
        kafka=[ALL._replace(first_offsets=(6, 8))],
        minibroker=[ALL, ALL._replace(first_offsets=(6, 8))],
        because="Kafka keeps a map of what was asked; no client asks twice",
    )


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_lists_aborted_transactions_only_if_it_is_read_committed(
    connection: Connection, name: str, isolation_level: int
) -> None:
    answer = connection.ask(fetch_request({name: [asked()]}, isolation_level=isolation_level), 12)
    assert fetched(answer) == {(name, 0): ALL}
    assert answer.responses[0].partitions[0].aborted_transactions == ([] if isolation_level else None)


@pytest.mark.parametrize("replica_id", [0, 5])
def test_a_consumer_that_sends_a_replica_id_is_answered(
    connection: Connection, name: str, differing: Differing, replica_id: int
) -> None:
    assert fetch(connection, {name: [asked()]}, replica_id=replica_id)[name, 0] == differing(
        kafka=Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        minibroker=ALL,
        because="there are no followers that fetch: whoever says so reads as a consumer does",
    )


def test_a_fetch_without_topics_has_an_empty_response(connection: Connection) -> None:
    assert fetch(connection, {}, max_wait_ms=LONG_MS, min_bytes=1) == {}


def took_long(start: float) -> bool:
    return time.monotonic() - start > LONG_MS / 1000 / 2


READY: dict[str, Callable[[str], dict[Any, Any]]] = {
    "records": lambda name: {name: [asked(0), asked(1)]},
    "out of range": lambda name: {name: [asked(0, 99), asked(1)]},
    "a leader epoch to come": lambda name: {name: [asked(0, END, current_leader_epoch=1), asked(1)]},
}


@pytest.mark.parametrize("topics", READY.values(), ids=READY)
def test_fetches_with_records_or_errors_do_not_wait(
    connection: Connection, name: str, topics: Callable[[str], dict[Any, Any]]
) -> None:
    start = time.monotonic()
    fetch(connection, topics(name), max_wait_ms=LONG_MS, min_bytes=1)
    assert not took_long(start)


def test_a_fetch_with_min_bytes_0_does_not_wait(connection: Connection, name: str) -> None:
    start = time.monotonic()
    assert fetch(connection, {name: [asked(0, END)]}, max_wait_ms=LONG_MS, min_bytes=0)[name, 0].error_code == 0
    assert not took_long(start)


WAIT_MS = 200
TICK_MS = 2  # timers count whole milliseconds, and the two ends of a wait are not read at once
WAITING: dict[str, Callable[[str], dict[Any, Any]]] = {
    "nothing new": lambda name: {name: [asked(0, END), asked(1)]},
    "an unknown partition": lambda name: {name: [asked(0, END), asked(7)]},
    "an unknown topic": lambda name: {name: [asked(0, END)], "no-such-topic": [asked()]},
}


@pytest.mark.parametrize("topics", WAITING.values(), ids=WAITING)
def test_fetches_without_records_are_answered_after_max_wait(
    connection: Connection, name: str, topics: Callable[[str], dict[Any, Any]]
) -> None:
    start = time.monotonic()
    fetch(connection, topics(name), max_wait_ms=WAIT_MS, min_bytes=1)
    assert time.monotonic() - start >= (WAIT_MS - TICK_MS) / 1000


def test_a_fetch_with_too_few_bytes_is_answered_after_max_wait(connection: Connection, name: str) -> None:
    start = time.monotonic()
    found = fetch(connection, {name: [asked()]}, max_wait_ms=WAIT_MS, min_bytes=1 << 20)
    assert time.monotonic() - start >= (WAIT_MS - TICK_MS) / 1000
    assert found == {(name, 0): ALL}


def test_an_append_completes_a_delayed_fetch(
    connection: Connection, name: str, connect: Callable[[], Connection]
) -> None:
    start = time.monotonic()
    with connect() as other:
        later = threading.Timer(0.1, produce, (other, name, SENT[0]), {"partition": 1})
        later.start()
        found = fetch(connection, {name: [asked(0, END), asked(1)]}, max_wait_ms=LONG_MS, min_bytes=1)
        later.join()
    assert found == {(name, 0): Fetched(0, END, 0), (name, 1): Fetched(0, 2, 0, (0,))}
    assert not took_long(start)


def test_a_fetch_response_keeps_the_order_of_the_partitions(
    connection: Connection, name: str, new_topic: NewTopic
) -> None:
    other = new_topic(2)
    order = [(name, 1), (other, 0), (other, 1), (name, 0)]
    request = fetch_request({})
    request.topics = [each for topic, index in order for each in fetch_request({topic: [asked(index)]}).topics]
    answer = connection.ask(request, 12)
    assert [(each.topic, [part.partition_index for part in each.partitions]) for each in answer.responses] == [
        (name, [1]),
        (other, [0, 1]),
        (name, [0]),
    ]


def test_the_old_id_of_a_recreated_topic_is_unknown(connection: Connection, name: str) -> None:
    old_id = metadata_of(connection, name).topic_id
    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=10_000)
    assert connection.ask(deletion, 6).responses[0].error_code == 0
    gone = repeated(
        lambda: fetch(connection, {old_id: [asked()]}, 13)[old_id, 0],
        lambda found: found.error_code == ErrorCode.UNKNOWN_TOPIC_ID,
    )
    assert gone == Fetched(ErrorCode.UNKNOWN_TOPIC_ID)
    assert connection.ask(create_request(topic(name)), 7).topics[0].error_code == 0
    new_id = repeated(lambda: metadata_of(connection, name), lambda seen: seen.error_code == 0).topic_id
    assert new_id != old_id
    assert stored(connection, name) == []
    assert fetch(connection, {old_id: [asked()], new_id: [asked()]}, 13) == {
        (old_id, 0): Fetched(ErrorCode.UNKNOWN_TOPIC_ID),
        (new_id, 0): Fetched(0, 0, 0),
    }


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_from_4_on_returns_zstd_batches(
    connection: Connection, new_topic: NewTopic, version: int
) -> None:
    name = new_topic(compression_type="zstd")
    assert produce(connection, name, SENT[0]).error_code == 0
    (written,) = stored(connection, name)
    assert written.attributes == ZSTD
    key = metadata_of(connection, name).topic_id if version >= 13 else name
    answer = connection.ask(fetch_request({key: [asked()]}), version).responses[0].partitions[0]
    assert (answer.error_code, whole_batches(answer.records)) == (0, [written])
