"""The turn: what several connections append is written together, and each is told in its order what became of it.

A loop that the test turns by hand: connections read, then the turn ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.turn import Turn, make_append_wait
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.compression import Compression
from minibroker.storage import log_end as log_module
from tests.broker.handlers.fetching import answers_in, fetch_of, values_in
from tests.broker.harness import Harness, batch
from tests.broker.requests.turned_loop import FETCH, LOST, METADATA, PRODUCE, Loop, LoopClient, codes, produce_of


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path)
    with made.harness:
        yield made


# --- written together -------------------------------------------------------------------------------------------------


def test_batches_of_several_connections_are_written_together_and_then_answered(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = [LoopClient(loop.harness) for _ in range(5)]
    asked: list[str] = []
    monkeypatch.setattr(loop.disk, "ask", lambda operation, path: asked.append(operation))
    for number, client in enumerate(clients):
        client.read((1, produce_of({("t", 0): batch(f"a{number}")}), PRODUCE))
    assert [client.sent_bytes() for client in clients] == [b""] * 5
    assert (loop.values(), asked.count("write")) == (["first"], 0)
    loop.end_turn(*clients)
    assert asked.count("write") == 1
    assert [codes(client) for client in clients] == [[0]] * 5
    assert loop.values() == ["first", "a0", "a1", "a2", "a3", "a4"]


def test_a_batch_that_nobody_waits_for_is_written_at_the_end_of_the_event_loops_turn(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        harness.produce("t", "first")  # the first batch of a segment is written at once
        soon: list[Callable[[], None]] = []
        turn, partition = Turn(), harness.partition("t")
        turn.bind_to_loop(soon.append)
        for expected in (2, 3):
            append_soon(turn, partition)
            assert (partition.log.log_end_offset, len(soon)) == (expected - 1, 1)
            soon.pop()()
            assert partition.log.log_end_offset == expected


def test_waiters_for_records_are_called_in_the_loop_turn_that_writes_the_records(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        harness.produce("t", "first")
        soon: list[Callable[[], None]] = []
        turn, partition = Turn(), harness.partition("t")
        turn.bind_to_loop(soon.append)
        told: list[str] = []
        watch = Mock(
            count_appended_bytes=lambda *_: turn.add_listener(watch), on_turn_ended=lambda: told.append("watch")
        )
        partition.waiters.add(watch)
        append_soon(turn, partition)
        soon.pop()()
        assert (told, soon) == (["watch"], []), "and the loop is not woken for a turn without work"


def test_batches_that_are_appended_while_a_loop_turn_ends_are_written_in_the_next_one(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        harness.create_topic("t")
        harness.produce("t", "first")
        soon: list[Callable[[], None]] = []
        turn, partition = Turn(), harness.partition("t")
        turn.bind_to_loop(soon.append)
        watch = Mock(count_appended_bytes=lambda *_: (partition.waiters.clear(), append_soon(turn, partition)))
        partition.waiters.add(watch)
        append_soon(turn, partition)
        for expected in (2, 3):
            soon.pop()()
            assert partition.log.log_end_offset == expected
        assert soon == []


@pytest.mark.parametrize("during", ["the write of its log", "the write before its own", "the calls of listeners"])
def test_a_wait_that_begins_while_a_loop_turn_ends_is_over_at_the_end_of_the_next_one(
    tmp_path: Path, during: str
) -> None:
    with Harness(tmp_path) as harness:
        for topic in ("t", "u"):
            harness.create_topic(topic)
            harness.produce(topic, "first")
        soon: list[Callable[[], None]] = []
        failures: list[KafkaError | None] = []
        turn, partition, other = Turn(), harness.partition("t"), harness.partition("u")
        turn.bind_to_loop(soon.append)

        def append_and_wait(*_: object) -> None:
            append_soon(turn, partition)
            turn.call_when_wait_is_over(make_append_wait(partition.log), failures.append)

        def wait(*_: object) -> None:
            turn.call_when_wait_is_over(make_append_wait(partition.log), failures.append)

        if during == "the calls of listeners":
            turn.add_listener(Mock(on_turn_ended=append_and_wait))
        elif during == "the write of its log":
            partition.waiters.add(Mock(count_appended_bytes=lambda *_: (partition.waiters.clear(), append_and_wait())))
            append_soon(turn, partition)
        else:
            other.waiters.add(Mock(count_appended_bytes=wait))
            append_soon(turn, other)
            append_soon(turn, partition)
        soon.pop()()
        assert (failures, len(soon)) == ([], 1)
        soon.pop()()
        assert (failures, soon) == ([None], [])


def append_soon(turn: Turn, partition: Partition) -> None:
    data = batch("v")
    partition.append_batches(turn, memoryview(data), [check_batch(data)])


def test_responses_of_a_connection_stay_in_order_around_deferred_ones(loop: Loop) -> None:
    client = LoopClient(loop.harness)
    metadata, produce = MetadataRequest(topics=[]), produce_of({("t", 0): batch("a")})
    several = produce_of({("t", 0): batch("b"), ("u", 0): batch("c")})
    client.read(
        (1, metadata, METADATA),
        (2, produce, PRODUCE),
        (3, metadata, METADATA),
        (4, several, PRODUCE),
        (5, metadata, METADATA),
        (6, produce, PRODUCE),
    )
    assert client.sent_bytes() == b""
    loop.end_turn(client)
    assert [number for number, _ in client.responses()] == [1, 2, 3, 4, 5, 6]


def test_a_fetch_returns_only_written_batches_and_a_delayed_fetch_those_written_later(loop: Loop) -> None:
    producer, reader, waiting = (LoopClient(loop.harness) for _ in range(3))
    producer.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    reader.read((1, fetch_of(loop.harness, {("t", 0): 0}), FETCH))
    waiting.read((1, fetch_of(loop.harness, {("t", 0): 1}, max_wait_ms=1000), FETCH))
    loop.end_turn(producer, reader, waiting)
    seen = [list(client.responses()) for client in (reader, waiting)]
    values = [values_in(answers_in(loop.harness, answers[0][1])["t", 0]) for answers in seen]
    assert values == [["first"], ["a"]]


def test_batches_of_a_disconnected_client_are_written(loop: Loop) -> None:
    gone, other = LoopClient(loop.harness), LoopClient(loop.harness)
    for client in (gone, other):
        client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    gone.connection.drop_lost_client()
    loop.end_turn(gone, other)
    assert (gone.sent_bytes(), codes(other), loop.values()) == (b"", [0], ["first", "a", "a"])


def test_all_batches_are_written_immediately_without_an_event_loop(loop: Loop) -> None:
    turn = Turn()
    data = batch("a")
    partition = loop.partition(("t", 0))
    partition.append_batches(turn, memoryview(bytearray(data)), [check_batch(data)])
    assert loop.values() == ["first", "a"]
    assert make_append_wait(partition.log).is_over


# --- lost -------------------------------------------------------------------------------------------------------------


def test_a_failed_write_fails_exactly_the_responses_that_waited_for_it(loop: Loop) -> None:
    lost, other = LoopClient(loop.harness), LoopClient(loop.harness)
    lost.read((1, produce_of({("t", 0): batch("a")}), PRODUCE), (2, produce_of({("u", 0): batch("b")}), PRODUCE))
    other.read((1, produce_of({("u", 0): batch("c")}), PRODUCE))
    loop.fail_writes()
    loop.disk.suffix = "t-0/00000000000000000000.log"
    loop.end_turn(lost, other)
    assert (codes(lost), codes(other)) == ([LOST, 0], [0])
    loop.heal()
    other.read((2, produce_of({("t", 0): batch("d")}), PRODUCE))
    loop.end_turn(other)
    assert codes(other) == [0]
    assert (loop.values(), loop.values(("u", 0))) == (["first", "d"], ["first", "b", "c"])


def test_if_only_the_last_write_of_a_loop_turn_fails_only_its_produces_are_rejected(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 2 * len(batch("a")))
    client, waiting = LoopClient(loop.harness), LoopClient(loop.harness)
    waiting.read((1, fetch_of(loop.harness, {("t", 0): 1}, max_wait_ms=1000), FETCH))
    client.read(*((number, produce_of({("t", 0): batch(str(number))}), PRODUCE) for number in range(3)))
    loop.fail_writes()
    loop.end_turn(client, waiting)
    assert codes(client) == [0, 0, LOST]
    assert loop.values() == ["first", "0", "1"]
    ((_, answer),) = waiting.responses()
    assert values_in(answers_in(loop.harness, answer)["t", 0]) == ["0", "1"]


def test_if_an_early_write_of_a_loop_turn_fails_later_produces_may_succeed(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MAX_PENDING_BYTES", 2 * len(batch("a")))
    client = LoopClient(loop.harness)
    client.read(*((number, produce_of({("t", 0): batch(str(number))}), PRODUCE) for number in range(2)))
    loop.fail_writes()
    client.read((2, produce_of({("t", 0): batch("2")}), PRODUCE))
    loop.heal()
    client.read(*((number, produce_of({("t", 0): batch(str(number))}), PRODUCE) for number in (3, 4)))
    loop.end_turn(client)
    assert codes(client) == [LOST, LOST, LOST, 0, 0]
    assert loop.values() == ["first", "3", "4"]


def test_a_produce_in_steps_reports_a_batch_lost_in_an_earlier_loop_turn(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon: list[Any] = []
    slicer = Slicer(soon.append, iter(range(1000)).__next__)  # a step is a slice
    loop.harness.dispatcher = Dispatcher(loop.harness.cluster, slicer=slicer)
    client, other = LoopClient(loop.harness), LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a"), ("u", 0): batch("b", compression=Compression.GZIP)}), PRODUCE))
    while loop.partition(("t", 0)).log.pending_batches is None:
        soon.pop(0)()
    loop.fail_writes()
    loop.end_turn(client, other)
    loop.heal()
    other.read((1, produce_of({("t", 0): batch("c", "d", "e")}), PRODUCE))
    while soon:
        soon.pop(0)()
        loop.end_turn(client, other)
    ((_, answer),) = client.responses()
    assert [topic.partition_responses[0].error_code for topic in answer.responses] == [LOST, 0]
    assert codes(other) == [0]
    assert (loop.values(), loop.values(("u", 0))) == (["first", "c", "d", "e"], ["first", "b"])


def test_a_failed_write_with_acks_0_closes_the_connection(loop: Loop) -> None:
    client = LoopClient(loop.harness)
    client.read(
        (1, produce_of({("t", 0): batch("a")}, acks=0), PRODUCE),
        (2, produce_of({("u", 0): batch("b")}), PRODUCE),
        (3, fetch_of(loop.harness, {("t", 0): 1}, max_wait_ms=1000), FETCH),
    )
    assert loop.partition(("t", 0)).waiters
    loop.fail_writes()
    loop.disk.suffix = "t-0/00000000000000000000.log"
    loop.end_turn(client)
    assert client.closed and codes(client) == [0]
    assert not loop.partition(("t", 0)).waiters


def test_a_produce_to_a_topic_deleted_in_the_same_loop_turn_is_answered_with_an_error(loop: Loop) -> None:
    client = LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE), (2, produce_of({("u", 0): batch("b")}), PRODUCE))
    list(loop.harness.cluster.controller.delete_topic_in_steps(loop.harness.cluster.image.topics["t"]))
    loop.end_turn(client)
    assert codes(client) == [LOST, 0]


def test_an_unexpected_write_error_acknowledges_nothing_and_affects_no_other_response(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    client, other = LoopClient(loop.harness), LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    other.read((1, produce_of({("u", 0): batch("b")}), PRODUCE))
    monkeypatch.setattr(type(loop.partition(("t", 0)).log.segments[-1].file), "write", fail)
    loop.harness.cluster.turn.end()
    assert (codes(client), codes(other)) == ([LOST], [LOST])
    assert "a mistake of ours" in caplog.text


# --- promises of which a part is known already ------------------------------------------------------------------------


def test_the_callback_for_a_write_that_has_already_ended_is_called_at_once(loop: Loop) -> None:
    turn, log = loop.harness.cluster.turn, loop.partition(("t", 0)).log
    told: list[KafkaError | None] = []
    turn.call_when_wait_is_over(make_append_wait(log), told.append)
    assert told == [None]
    data = batch("a")
    log.append_to_pending_batches(memoryview(bytearray(data)), check_batch(data), log.leader_epoch)
    wait = make_append_wait(log)
    turn.call_when_wait_is_over(wait, told.append)
    assert told == [None]
    loop.fail_writes()
    loop.harness.end_turn()
    log.write_pending_batches()
    turn.call_when_wait_is_over(wait._replace(translated_codes={LOST: ErrorCode.NOT_COORDINATOR}), told.append)
    assert [None if each is None else each.code for each in told] == [None, LOST, ErrorCode.NOT_COORDINATOR]
