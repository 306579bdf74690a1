"""A connection without a socket: answers in the order of the requests, however the input is cut and whatever waits."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.network import pipelines
from minibroker.broker.network.connection import BACKLOG_LIMIT_BYTES, Connection
from minibroker.broker.network.framing import OWN_BYTES, FrameBudget
from minibroker.broker.network.pipelines import ConnectionQueue
from tests.broker.delaying import Delaying
from tests.cases import for_each

SCRATCH_BYTES = 4096


class FakeOutlet:
    """A socket that takes everything at once, unless `is_congested` says otherwise."""

    def __init__(self) -> None:
        self.is_congested = False
        self.sent: list[Any] = []
        self.due: list[Callable[[], None]] = []
        self.reading = True
        self.closed = False
        self.fills = False  # what is sent next makes it congested

    def send(self, items: list[Any]) -> None:
        assert not self.closed, "what is sent after the close is lost"
        self.sent += items
        self.is_congested = self.is_congested or self.fills

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def turn(self) -> int:
        """Run what is due; how much that was."""
        due, self.due = self.due, []
        for callback in due:
            callback()
        return len(due)

    def run(self) -> None:
        while self.turn():
            pass


class DueAnswer:
    """An answer that leaves when the turn ends."""

    def __init__(self, number: bytes) -> None:
        self._number = number

    def list_answer_parts(self) -> list[Any]:
        if self._number == b"9999999":
            raise ValueError("it cannot be encoded")
        return [self._number]


class Conversation:
    """A connection whose requests are a kind (a letter) and a number, and whose answers are the number."""

    def __init__(self, limit_bytes: int = 1 << 20, pipelines: ConnectionQueue | None = None) -> None:
        self.outlet = FakeOutlet()
        self.ran: list[bytes] = []  # the kinds of the requests
        self.delayed: list[tuple[bytes, Delaying]] = []
        self.told: list[Connection] = []  # what waits for the end of the turn
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.budget = FrameBudget()
        self.connection = Connection(
            None,  # type: ignore[arg-type]  # no request here asks for its node
            "PLAINTEXT",
            self.outlet,
            self.execute,
            self.told.append,
            self.budget,
            limit_bytes,
            pipelines=pipelines,
        )

    def execute(self, connection: Connection, frame: memoryview) -> Any:
        kind, number = bytes(frame[:1]), bytes(frame[1:8])
        self.ran.append(kind)
        if kind in (b"p", b"l"):
            delaying = Delaying(connection.send_delayed_answer, is_at_work=kind == b"l")
            self.delayed.append((number, delaying))
            return delaying.operation
        if kind == b"d":
            return DueAnswer(number)
        if kind == b"x":
            connection.close_after_answers()
            return None
        return None if kind == b"0" else [number]

    def feed(self, data: bytes, cut: int = SCRATCH_BYTES) -> None:
        """Give the bytes as a socket would: at most `cut` at a time, and only into the room that there is."""
        while data and not self.connection.closed:
            room = self.connection.get_receive_buffer(self.scratch)
            count = min(len(data), len(room), cut)
            room[:count] = data[:count]
            self.connection.process_received_data(self.scratch, count)
            self.scratch[:] = bytes([255]) * SCRATCH_BYTES  # nobody may have kept a view of it
            data = data[count:]

    def end_turn(self) -> None:
        while self.told:
            self.told.pop(0).on_turn_ended()

    def complete(self) -> None:
        number, delaying = self.delayed.pop(0)
        delaying.complete(number)


def frame(kind: str, number: int, padding: int = 0) -> bytes:
    body = kind.encode() + b"%07d" % number + bytes(padding)
    return pack(">i", len(body)) + body


def numbers(items: list[Any]) -> list[int]:
    return [int(item) for item in items]


def test_requests_of_one_read_are_answered_in_order() -> None:
    talk = Conversation()
    talk.feed(b"".join(frame("a", number) for number in range(10)))
    assert numbers(talk.outlet.sent) == list(range(10))


@for_each("cut", range(1, 40))
def test_requests_split_at_any_byte_get_the_same_responses(cut: int) -> None:
    talk = Conversation()
    talk.feed(b"".join(frame("a", number, padding=number * 3) for number in range(12)), cut)
    assert numbers(talk.outlet.sent) == list(range(12))
    assert talk.budget.held_bytes == 0


def test_a_frame_larger_than_the_scratch_buffer_arrives_completely() -> None:
    talk = Conversation(limit_bytes=4 << 20)
    talk.feed(frame("a", 1, padding=3_000_000) + frame("a", 2))
    assert numbers(talk.outlet.sent) == [1, 2]


def test_a_request_without_a_response_sends_nothing() -> None:
    talk = Conversation()
    talk.feed(frame("0", 1) + frame("a", 2))
    assert numbers(talk.outlet.sent) == [2]


def test_requests_after_a_delayed_one_wait_for_it() -> None:
    talk = Conversation()
    talk.feed(frame("a", 1) + frame("p", 2) + frame("a", 3))
    talk.feed(frame("a", 4))
    assert numbers(talk.outlet.sent) == [1]
    talk.complete()
    assert numbers(talk.outlet.sent) == [1, 2]
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == [1, 2, 3, 4]


@pytest.mark.parametrize("cut", [5, SCRATCH_BYTES])
def test_a_connection_muted_from_the_start_runs_nothing_until_it_is_unmuted(cut: int) -> None:
    talk = Conversation()
    talk.connection.mute()
    talk.feed(frame("a", 1) + frame("a", 2), cut)
    assert talk.outlet.sent == []
    talk.connection.unmute()
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == [1, 2]
    assert talk.budget.held_bytes == 0


def test_a_connection_reads_up_to_a_limit_while_a_request_is_delayed() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1))
    talk.feed(frame("a", 2))
    assert talk.outlet.reading, "or a client that goes away would not be noticed"
    talk.feed(b"".join(frame("a", 3, padding=1000) for _ in range(BACKLOG_LIMIT_BYTES // 1000)))
    assert not talk.outlet.reading
    talk.complete()
    talk.outlet.run()
    assert talk.outlet.reading
    assert len(talk.outlet.sent) == 2 + BACKLOG_LIMIT_BYTES // 1000


def test_a_client_that_disconnects_cancels_its_delayed_request() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1))
    talk.connection.drop_lost_client()
    assert talk.delayed[0][1].is_closed
    talk.complete()
    assert talk.outlet.sent == []


def test_no_further_request_runs_while_the_output_is_congested() -> None:
    talk = Conversation()
    talk.outlet.is_congested = True
    talk.feed(frame("a", 1) + frame("a", 2))
    talk.feed(frame("a", 3))
    assert numbers(talk.outlet.sent) == [1, 2]
    talk.outlet.is_congested = False
    talk.connection.resume_requests()
    assert numbers(talk.outlet.sent) == [1, 2, 3]


def test_many_requests_in_one_read_yield_to_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "TURN_SECONDS", 1000.0)
    talk = Conversation()
    talk.feed(b"".join(frame("a", number) for number in range(200)))
    assert len(talk.outlet.sent) == pipelines.REQUESTS_PER_TURN
    talk.outlet.turn()
    assert len(talk.outlet.sent) == 2 * pipelines.REQUESTS_PER_TURN
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == list(range(200))


def test_slow_requests_yield_to_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "TURN_SECONDS", -1.0)
    talk = Conversation()
    talk.feed(b"".join(frame("a", number) for number in range(5)))
    assert numbers(talk.outlet.sent) == [0]
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == list(range(5))


def test_all_connections_of_an_event_loop_share_one_time_slice_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def slow(connection: Connection, frame: memoryview) -> Any:
        nonlocal now_s
        now_s += pipelines.TURN_SECONDS / 4
        return [bytes(frame[1:8])]

    monkeypatch.setattr(pipelines.time, "monotonic", lambda: now_s)
    loop = FakeOutlet()  # whose turns all share
    shared = ConnectionQueue(loop.call_soon)
    talks = [Conversation(pipelines=shared) for _ in range(20)]
    for talk in talks:
        talk.connection._execute = slow
        talk.feed(b"".join(frame("a", number) for number in range(50)))
    ran = sum(len(talk.outlet.sent) for talk in talks)
    assert ran <= 20 + 5, "the first request of each, and the others for one slice"
    while any(len(talk.outlet.sent) < 50 for talk in talks):
        began_s, before = now_s, [len(talk.outlet.sent) for talk in talks]
        assert loop.turn() == 1
        assert now_s - began_s <= 2 * pipelines.TURN_SECONDS
        assert sum(len(talk.outlet.sent) for talk in talks) > sum(before)
        assert max(before) - min(before) <= 12, "all of them go on at the same pace"
    assert all(numbers(talk.outlet.sent) == list(range(50)) for talk in talks)


def test_responses_before_a_request_that_closes_the_connection_are_still_sent() -> None:
    talk = Conversation()
    talk.feed(frame("a", 1) + frame("x", 2) + frame("a", 3))
    assert numbers(talk.outlet.sent) == [1]
    assert talk.outlet.closed


@for_each("size", [-5, 0, 7, (1 << 20) + 1])
@for_each("cut", [1, SCRATCH_BYTES])
def test_an_invalid_size_closes_the_connection_immediately(size: int, cut: int) -> None:
    talk = Conversation()
    talk.feed(frame("a", 1) + pack(">i", size), cut)
    assert numbers(talk.outlet.sent) == [1], "what was asked before is answered"
    assert talk.outlet.closed
    assert talk.connection.get_receive_buffer(talk.scratch), "a socket that still reads must have somewhere to put it"
    assert talk.budget.held_bytes == 0


def test_an_invalid_size_after_a_delayed_request_closes_the_connection_after_its_response() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2) + pack(">i", -1))
    assert not talk.outlet.closed
    talk.complete()
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == [1, 2]
    assert talk.outlet.closed


def test_an_invalid_size_after_many_requests_closes_the_connection_after_their_responses() -> None:
    talk = Conversation()
    talk.feed(b"".join(frame("a", number) for number in range(200)) + pack(">i", 0))
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == list(range(200))
    assert talk.outlet.closed


def test_no_request_runs_after_the_connection_closes() -> None:
    talk = Conversation()
    talk.feed(frame("x", 1))
    talk.scratch[: len(frame("a", 2))] = frame("a", 2)
    talk.connection.process_received_data(talk.scratch, len(frame("a", 2)))
    assert talk.outlet.sent == []


def test_a_lost_connection_releases_its_memory() -> None:
    talk = Conversation()
    talk.feed(frame("a", 1, padding=500_000)[:10_000])
    assert talk.budget.held_bytes > 0
    talk.connection.drop_lost_client()
    assert talk.budget.held_bytes == 0


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_arbitrary_bytes_close_the_connection_or_leave_an_incomplete_frame(data: bytes, cut: int) -> None:
    talk = Conversation(limit_bytes=100_000)
    talk.feed(data, cut)
    talk.outlet.run()
    assert talk.budget.held_bytes <= 100_004


@given(st.lists(st.sampled_from("a0p"), max_size=80), st.integers(1, 200), st.randoms(use_true_random=False))
def test_responses_keep_the_order_of_the_requests(kinds: list[str], cut: int, source: Any) -> None:
    talk = Conversation()
    data = b"".join(frame(kind, number) for number, kind in enumerate(kinds))
    for start in range(0, len(data), cut):
        talk.feed(data[start : start + cut])
        talk.outlet.is_congested = source.random() < 0.3
        if talk.delayed and source.random() < 0.5:
            talk.complete()
        talk.outlet.turn()
    talk.outlet.is_congested = False
    talk.connection.resume_requests()
    talk.outlet.run()
    while talk.delayed:
        talk.complete()
        talk.outlet.run()
    assert numbers(talk.outlet.sent) == [number for number, kind in enumerate(kinds) if kind != "0"]


def test_a_connection_reads_only_a_few_bytes_while_memory_is_exhausted() -> None:
    talk = Conversation()
    talk.budget.large.limit_bytes = 1
    talk.feed(frame("p", 1))
    assert len(talk.connection.get_receive_buffer(talk.scratch)) == SCRATCH_BYTES, "nothing is held"
    talk.feed(frame("a", 2))
    assert talk.budget.held_bytes == len(frame("a", 2))
    assert not talk.outlet.reading
    another = memoryview(bytearray(10 * OWN_BYTES))
    assert len(talk.connection.get_receive_buffer(another)) == OWN_BYTES
    talk.complete()
    talk.outlet.run()
    assert talk.outlet.reading and numbers(talk.outlet.sent) == [1, 2]
    assert talk.budget.held_bytes == 0 and len(talk.connection.get_receive_buffer(another)) == 10 * OWN_BYTES


def test_a_disconnect_releases_the_bytes_received_after_a_delayed_request() -> None:
    talk = Conversation()
    talk.feed(frame("p", 1) + frame("a", 2))
    talk.feed(frame("a", 3))
    assert talk.budget.held_bytes == 2 * len(frame("a", 2))
    talk.connection.drop_lost_client()
    assert talk.budget.held_bytes == 0


def test_a_frame_that_waits_for_memory_continues_once_memory_is_free() -> None:
    talk, other = Conversation(), Conversation()
    other.connection._budget = talk.budget
    talk.budget.large.limit_bytes = 1
    first, second = frame("a", 1, padding=100_000), frame("a", 2, padding=100_000)
    talk.feed(first[:50_000])
    other.feed(second[:4000])
    assert not other.outlet.reading
    assert talk.connection.has_partial_request and not other.connection.has_partial_request, (
        "it is we who do not read on"
    )
    talk.feed(first[50_000:])
    other.outlet.run()
    assert other.outlet.reading and other.connection.has_partial_request
    other.feed(second[4000:])
    assert numbers(other.outlet.sent) == [2] and not other.connection.has_partial_request


# --- answers that wait for the end of the turn ------------------------------------------------------------------------


def test_responses_deferred_to_the_end_of_the_event_loops_turn_are_sent_before_later_ones() -> None:
    talk = Conversation()
    talk.feed(b"".join(frame(kind, number) for number, kind in enumerate("adada")))
    talk.feed(frame("a", 5) + frame("p", 6) + frame("a", 7))
    talk.complete()
    assert talk.outlet.sent == []
    talk.end_turn()
    assert numbers(talk.outlet.sent) == [0, 1, 2, 3, 4, 5, 6]
    talk.outlet.run()
    assert numbers(talk.outlet.sent) == list(range(8))


@for_each("last", [b"\xff\xff\xff\xff", frame("x", 0)])
@for_each("cut", [1, 2, 3, 4, 4096])
def test_deferred_responses_are_sent_before_the_connection_closes(last: bytes, cut: int) -> None:
    talk = Conversation()
    talk.feed(frame("d", 0) + frame("a", 1) + last[:cut])
    talk.feed(last[cut:])
    assert (talk.connection.closed, talk.outlet.closed, talk.outlet.sent) == (True, False, [])
    talk.end_turn()
    assert (numbers(talk.outlet.sent), talk.outlet.closed) == ([0, 1], True)


def test_deferred_responses_are_not_sent_to_a_disconnected_client() -> None:
    talk = Conversation()
    talk.feed(frame("d", 0))
    talk.connection.drop_lost_client()
    talk.end_turn()
    assert talk.outlet.sent == []


def test_a_request_that_fails_at_the_end_of_a_loop_turn_closes_the_connection_after_earlier_responses() -> None:
    talk = Conversation()
    talk.feed(frame("d", 0) + frame("d", 9_999_999) + frame("d", 2))
    talk.end_turn()
    assert (numbers(talk.outlet.sent), talk.outlet.closed) == ([0], True)


def test_deferred_responses_that_congest_the_output_stop_further_requests() -> None:
    talk = Conversation()
    talk.outlet.fills = True
    talk.feed(frame("d", 0))
    talk.end_turn()
    talk.feed(frame("a", 1) + frame("d", 2))
    assert numbers(talk.outlet.sent) == [0]
    talk.outlet.fills = talk.outlet.is_congested = False
    talk.connection.resume_requests()
    talk.end_turn()
    assert numbers(talk.outlet.sent) == [0, 1, 2]


def test_closing_a_connection_after_a_failure_ends_its_delayed_request() -> None:
    talk = Conversation()
    talk.feed(frame("p", 0))
    talk.connection.close_after_failure()
    assert (talk.delayed[0][1].is_closed, talk.outlet.closed) == (True, True)
