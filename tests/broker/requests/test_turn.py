"""The turn: what several connections append is written together, and each is told in its order what became of it.

A loop that the test turns by hand: connections read, then the turn ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibroker.broker.metadata.partitions import COLLECTED_BYTES, Partition
from minibroker.broker.network.framing import FrameBudget
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.slices import Slicer
from minibroker.broker.requests.turn import Turn, Wait, wait_for
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.records.batch import check_batch
from minibroker.storage import log as log_module
from minibroker.storage.batch_scanning import headers
from tests.broker.handlers.fetching import answers_in, fetch_of, values_in
from tests.broker.harness import LIMIT_BYTES, Client, Harness, TopicData, batch, frame_of
from tests.storage.support import FailingDisk, read_values

LOST = ErrorCode.KAFKA_STORAGE_ERROR
PRODUCE, FETCH, METADATA = 9, 12, 9  # the versions that are sent
Where = tuple[str, int]


class LoopClient(Client):
    """A client whose turn ends when the test says so."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness, harness.cluster.nodes[1], "PLAINTEXT", FrameBudget(), LIMIT_BYTES)

    def read(self, *requests: tuple[int, Message, int]) -> None:
        """Let the socket read these requests, (correlation id, request, version) each, at once."""
        self._asked += [
            (request.api_key, version)
            for _, request, version in requests
            if not (isinstance(request, ProduceRequest) and request.acks == 0)
        ]
        data = b"".join(frame_of(request, version, number) for number, request, version in requests)
        scratch = memoryview(bytearray(data))
        self.connection.received(scratch, len(data))


def produce_of(batches: dict[Where, bytes], acks: int = 1) -> ProduceRequest:
    topics = [
        TopicData(
            name=name, partition_data=[TopicData.PartitionProduceData(index=index, records=memoryview(bytearray(data)))]
        )
        for (name, index), data in batches.items()
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def codes(client: Client) -> list[int]:
    """The error code of each Produce that was answered since the last time."""
    return [answer.responses[0].partition_responses[0].error_code for _, answer in client.responses()]


class Loop:
    """A harness on a disk that can be made to fail, with the topics t, of two partitions, and u."""

    def __init__(self, directory: Path) -> None:
        self.disk = FailingDisk()
        self.disk.suffix = ".log"
        self.harness = Harness(directory, disk=self.disk)
        self.harness.create_topic("t", 2)
        self.harness.create_topic("u")
        for where in (("t", 0), ("t", 1), ("u", 0)):  # the first batch of a segment is never pending
            self.harness.produce(where[0], "first", partition=where[1])

    def partition(self, where: Where) -> Partition:
        return self.harness.partition(*where)

    def end_turn(self, *clients: Client) -> None:
        """End this turn, and those that follow by themselves."""
        self.harness.end_turn()
        while any(client.outlet.soon for client in clients):
            for client in clients:
                client.outlet.run_soon()
            self.harness.end_turn()

    def values(self, where: Where = ("t", 0)) -> list[str]:
        return [(value or b"").decode() for _, value in read_values(self.partition(where).log)]

    def fail_writes(self) -> None:
        self.disk.failing = {"write"}

    def heal(self) -> None:
        self.disk.failing, self.disk.room_bytes = set(), None


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    made = Loop(tmp_path)
    with made.harness:
        yield made


# --- written together -------------------------------------------------------------------------------------------------


def test_what_several_connections_produce_is_one_write_and_then_answered(
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


def test_answers_of_a_connection_stay_in_order_around_those_that_wait(loop: Loop) -> None:
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


def test_a_fetch_of_the_same_turn_sees_what_is_written_and_one_that_waits_sees_the_rest(loop: Loop) -> None:
    producer, reader, waiting = (LoopClient(loop.harness) for _ in range(3))
    producer.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    reader.read((1, fetch_of(loop.harness, {("t", 0): 0}), FETCH))
    waiting.read((1, fetch_of(loop.harness, {("t", 0): 1}, max_wait_ms=1000), FETCH))
    loop.end_turn(producer, reader, waiting)
    seen = [list(client.responses()) for client in (reader, waiting)]
    values = [values_in(answers_in(loop.harness, answers[0][1])["t", 0]) for answers in seen]
    assert values == [["first"], ["a"]]


def test_what_a_client_that_has_gone_appended_is_written(loop: Loop) -> None:
    gone, other = LoopClient(loop.harness), LoopClient(loop.harness)
    for client in (gone, other):
        client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    gone.connection.lost()
    loop.end_turn(gone, other)
    assert (gone.sent_bytes(), codes(other), loop.values()) == (b"", [0], ["first", "a", "a"])


def test_without_a_loop_all_is_written_at_once(loop: Loop) -> None:
    turn = Turn()
    data = batch("a")
    partition = loop.partition(("t", 0))
    partition.append(turn, memoryview(bytearray(data)), [check_batch(data)])
    assert loop.values() == ["first", "a"]
    assert wait_for(partition.log).is_kept


# --- lost -------------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_fails_those_who_waited_for_it_and_nobody_else(loop: Loop) -> None:
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


def test_the_early_write_of_a_turn_may_be_kept_and_its_last_one_lost(
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


def test_the_early_write_of_a_turn_may_be_lost_and_its_last_one_kept(
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


def test_a_request_in_steps_is_told_of_a_batch_that_was_lost_in_an_earlier_turn(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon: list[Any] = []
    slicer = Slicer(soon.append, iter(range(1000)).__next__)  # a step is a slice
    loop.harness.dispatcher = Dispatcher(loop.harness.cluster, slicer=slicer)
    client, other = LoopClient(loop.harness), LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a"), ("u", 0): batch("b")}), PRODUCE))
    while loop.partition(("t", 0)).log.unwritten is None:
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


def test_who_wants_no_answer_is_cut_off_and_what_else_it_waits_for_is_forgotten(loop: Loop) -> None:
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


def test_a_topic_that_is_deleted_in_the_same_turn_takes_what_is_pending_with_it(loop: Loop) -> None:
    client = LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE), (2, produce_of({("u", 0): batch("b")}), PRODUCE))
    list(loop.harness.cluster.controller.delete_topic_in_steps(loop.harness.cluster.image.topics["t"]))
    loop.end_turn(client)
    assert codes(client) == [LOST, 0]


def test_what_fails_unexpectedly_acknowledges_nothing_and_costs_nobody_else_the_answer(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    client, other = LoopClient(loop.harness), LoopClient(loop.harness)
    client.read((1, produce_of({("t", 0): batch("a")}), PRODUCE))
    other.read((1, produce_of({("u", 0): batch("b")}), PRODUCE))
    monkeypatch.setattr(type(loop.partition(("t", 0)).log.segments[-1]), "append", fail)
    loop.harness.cluster.turn.end()
    assert (codes(client), codes(other)) == ([LOST], [LOST])
    assert "a mistake of ours" in caplog.text


# --- promises of which a part is known already ------------------------------------------------------------------------


def test_a_promise_is_known_at_once_if_its_write_is_done(loop: Loop) -> None:
    turn, log = loop.harness.cluster.turn, loop.partition(("t", 0)).log
    told: list[KafkaError | None] = []
    turn.when(wait_for(log), told.append)
    assert told == [None]
    data = batch("a")
    log.append_soon(memoryview(bytearray(data)), check_batch(data), log.leader_epoch)
    wait = wait_for(log)
    turn.when(wait, told.append)
    assert told == [None]
    loop.fail_writes()
    loop.harness.end_turn()
    log.write_pending()
    turn.when(wait._replace(codes={LOST: ErrorCode.NOT_COORDINATOR}), told.append)
    assert [None if each is None else each.code for each in told] == [None, LOST, ErrorCode.NOT_COORDINATOR]


def test_of_several_promises_each_broken_one_is_told_before_the_end(loop: Loop) -> None:
    turn = loop.harness.cluster.turn
    waits = []
    for where in (("t", 0), ("u", 0)):
        data = batch("a")
        partition = loop.partition(where)
        partition.append(turn, memoryview(bytearray(data)), [check_batch(data)])
        waits.append(wait_for(partition.log))
    loop.fail_writes()
    loop.disk.suffix = "u-0/00000000000000000000.log"
    told: list[str] = []
    turn.when_all(
        [(wait, lambda _, wait=wait: told.append(wait.log.topic)) for wait in waits], lambda: told.append("end")
    )
    turn.when_all([], lambda: told.append("none"))
    loop.harness.end_turn()
    assert told == ["none", "u", "end"]
    assert [Wait(wait.log, None).is_kept for wait in waits] == [True, True]


# --- at random --------------------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """A batch that was sent: `value` is in no other one but its repetitions."""

    client: int
    correlation_id: int
    where: Where
    value: str
    acks: int
    fails: bool  # whether a write of its turn may


WHERES: tuple[Where, ...] = (("t", 0), ("t", 1), ("u", 0))
ACTIONS = st.tuples(
    st.integers(0, 3),
    st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.lists(st.sampled_from(WHERES), min_size=1, max_size=3, unique=True)),
            st.tuples(st.sampled_from(["idempotent", "repeat", "large", "fetch"]), st.sampled_from(WHERES)),
            st.tuples(st.just("metadata"), st.none()),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1, 1, -1, 0]),
)
FAILURES = st.sampled_from([None, None, "all", "t-0", "early", "short"])
TURNS = st.lists(st.tuples(st.lists(ACTIONS, min_size=1, max_size=5), FAILURES, st.integers(0, 300)), max_size=8)


class RandomTurns:
    """Four clients that send at random, and what each was told."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.clients = [LoopClient(loop.harness) for _ in range(4)]
        self.numbers = iter(range(1, 1 << 30))
        self.asked: list[list[int]] = [[] for _ in self.clients]  # correlation ids that are still to be answered
        self.sent: list[Sent] = []
        self.codes: dict[tuple[int, str], int] = {}  # by correlation id and value
        self.repeatable: dict[tuple[int, Where], tuple[bytes, str]] = {}
        self.sequences: Counter[tuple[int, Where]] = Counter()

    def turn(self, actions: list[Any], failure: str | None, room_bytes: int) -> None:
        fails = failure is not None
        if failure == "early":
            self.loop.fail_writes()
        for number, wanted, acks in actions:
            self._read(number, wanted, acks, fails)
        if failure in ("all", "t-0"):
            self.loop.fail_writes()
        if failure == "t-0":
            self.loop.disk.suffix = "t-0/00000000000000000000.log"
        if failure == "short":
            self.loop.disk.room_bytes = room_bytes
        self.loop.harness.end_turn()
        self.loop.heal()
        self.loop.disk.suffix = ".log"
        self.loop.end_turn(*self.clients)
        for number in range(len(self.clients)):
            self._take_answers(number)

    def _read(self, number: int, wanted: list[Any], acks: int, fails: bool) -> None:
        requests: list[tuple[int, Message, int]] = []
        for kind, about in wanted:
            correlation_id = next(self.numbers)
            request, version = self._request(number, correlation_id, kind, about, acks, fails)
            requests.append((correlation_id, request, version))
            if not (isinstance(request, ProduceRequest) and acks == 0):
                self.asked[number].append(correlation_id)
        if self.clients[number].connection.closed:
            return
        self.clients[number].read(*requests)
        for where in WHERES:
            self._check_what_is_there(where)

    def _request(
        self, number: int, correlation_id: int, kind: str, about: Any, acks: int, fails: bool
    ) -> tuple[Message, int]:
        if kind == "metadata":
            return MetadataRequest(topics=[]), METADATA
        if kind == "fetch":
            return fetch_of(self.loop.harness, {about: 0}), FETCH
        batches: dict[Where, bytes] = {}
        for where in about if kind == "produce" else [about]:
            batches[where], value = self._batch(number, correlation_id, kind, where)
            self.sent.append(Sent(number, correlation_id, where, value, acks, fails))
        return produce_of(batches, acks), PRODUCE

    def _batch(self, number: int, correlation_id: int, kind: str, where: Where) -> tuple[bytes, str]:
        value = f"{number}{kind[0]}:{correlation_id}:{where[0]}-{where[1]}"
        if kind == "large":
            return batch(value, b"x" * COLLECTED_BYTES), value
        if kind == "produce":
            return batch(value), value
        if kind == "repeat" and (number, where) in self.repeatable:
            return self.repeatable[number, where]
        sequence = self.sequences[number, where]
        self.sequences[number, where] += 1
        made = batch(value, producer_id=1000 + number, producer_epoch=0, base_sequence=sequence), value
        self.repeatable[number, where] = made
        return made

    def _take_answers(self, number: int) -> None:
        """Take the answers in their order. A client that was cut off begins anew."""
        client, asked = self.clients[number], self.asked[number]
        for correlation_id, answer in client.responses():
            assert correlation_id == asked.pop(0)
            if isinstance(answer, FetchResponse):
                for where, found in answers_in(self.loop.harness, answer).items():
                    assert values_in(found) == self.loop.values(where)[: len(values_in(found))]
            elif isinstance(answer, ProduceResponse):
                self._note(correlation_id, answer)
        if client.closed:
            assert client.failure or any(each.acks == 0 and each.client == number for each in self.sent)
            self.clients[number], self.asked[number] = LoopClient(self.loop.harness), []
        assert not self.asked[number]
        for (producer, where), _ in list(self.sequences.items()):
            if producer == number:
                self._go_on_in_sequence(number, where)

    def _go_on_in_sequence(self, number: int, where: Where) -> None:
        known = dict(self.loop.partition(where).log.producers.entries()).get(1000 + number)
        self.sequences[number, where] = known.batches[-1][1] + 1 if known is not None else 0
        if (number, where) in self.repeatable and self.repeatable[number, where][1] not in self.loop.values(where):
            del self.repeatable[number, where]  # another one may get its sequence

    def _note(self, correlation_id: int, answer: Any) -> None:
        sent = [each for each in self.sent if each.correlation_id == correlation_id]
        told = [partition for topic in answer.responses for partition in topic.partition_responses]
        for each, partition in zip(sent, told, strict=True):
            self.codes[correlation_id, each.value] = partition.error_code
            if partition.error_code == ErrorCode.NONE:
                offsets = dict(read_values(self.loop.partition(each.where).log))
                assert offsets[partition.base_offset] == each.value.encode()

    def _check_what_is_there(self, where: Where) -> None:
        """Readers see what is in the file, and nothing that still waits to be written."""
        log = self.loop.partition(where).log
        (segment,) = log.segments
        assert segment.size_bytes <= segment.file.size_bytes()
        *_, (_, last) = headers(segment.file, 0, segment.size_bytes)
        assert log.high_watermark == last.next_offset

    def check(self) -> None:
        """What was acknowledged is there once, and in order; what was lost is not; nothing was lost without a cause."""
        for where in WHERES:
            stored = [value for value in self.loop.values(where) if ":" in value]
            assert len(stored) == len(set(stored))
            for number in range(len(self.clients)):
                mine = [int(value.split(":")[1]) for value in stored if value.startswith(f"{number}p:")]
                assert mine == sorted(mine)
            present = set(stored)
            for each in self.sent:
                code = self.codes.get((each.correlation_id, each.value))
                if each.where != where or code is None:
                    continue
                assert code in (0, LOST, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                assert each.fails or code != LOST
                assert code != 0 or each.value in present
            told = {each.value for each in self.sent if self.codes.get((each.correlation_id, each.value)) == 0}
            unanswered = {each.value for each in self.sent if (each.correlation_id, each.value) not in self.codes}
            assert present <= told | unanswered, "a batch that is there was refused"


@pytest.mark.parametrize("max_pending_bytes", [1 << 20, 400])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=TURNS)
def test_random_turns_tell_each_client_in_its_order_what_became_of_its_batches(
    max_pending_bytes: int, turns: list[Any]
) -> None:
    directory = Path(tempfile.mkdtemp(prefix="turns-"))
    before, log_module.MAX_PENDING_BYTES = log_module.MAX_PENDING_BYTES, max_pending_bytes  # type: ignore[misc]
    loop = Loop(directory)
    try:
        with loop.harness:
            random_turns = RandomTurns(loop)
            for actions, failure, room_bytes in turns:
                random_turns.turn(actions, failure, room_bytes)
            random_turns.check()
            loop.harness.restart(crash=True)
            random_turns.check()
    finally:
        log_module.MAX_PENDING_BYTES = before  # type: ignore[misc]
        shutil.rmtree(directory)
