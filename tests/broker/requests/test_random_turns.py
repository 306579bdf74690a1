"""Random turns of several connections with writes that fail: each is told, in its order, what became of its batches."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minibroker.broker.metadata.partitions import COLLECTED_BYTES
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.storage import log_end as log_module
from minibroker.storage.batch_scanning import iterate_headers
from tests.broker.handlers.fetching import answers_in, fetch_of, values_in
from tests.broker.harness import batch
from tests.broker.requests.turned_loop import FETCH, LOST, METADATA, PRODUCE, Loop, LoopClient, Where, produce_of
from tests.storage.support import read_values


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
        known = dict(self.loop.partition(where).log.producers.iterate_entries()).get(1000 + number)
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
        *_, (_, last) = iterate_headers(segment.file, 0, segment.size_bytes)
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
def test_clients_get_their_results_in_order_with_random_scheduling(max_pending_bytes: int, turns: list[Any]) -> None:
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
