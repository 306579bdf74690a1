"""Hooks on requests whose work is done in slices: every one of them ends for the hooks once, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.delayed_operations import Promise, Slicer
from minibroker.broker.requests import routes
from minibroker.broker.requests.interceptors import Call
from minibroker.broker.requests.routes import Route
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.steps import RELEASED_ITEMS
from tests.broker.handlers.fetching import fetch_of
from tests.broker.harness import Harness, TopicData, batch, frame_of
from tests.broker.requests.test_interceptors import Watched, hold


@pytest.fixture
def watched(harness: Harness) -> Watched:
    return Watched(harness)


UNKNOWN = MetadataRequest(
    topics=[MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(3000)],
    allow_auto_topic_creation=False,
)


class Sliced:
    """A client of a watched harness whose work takes a step a turn; the turns are the test's."""

    def __init__(self, watched: Watched) -> None:
        self.soon: list[Callable[[], None]] = []
        self.slicer = Slicer(self.soon.append, now=iter(range(1_000_000)).__next__)
        watched.harness.dispatcher.slicer = self.slicer
        self.client = watched.harness.client()
        self.connection = self.client.connection

    def turns_until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.soon.pop(0)()

    def replace_state(self) -> None:
        self.slicer.drop_queued_operations()
        self.connection.rerun_delayed_request()
        self.turns_until(lambda: not self.soon)
        self.client.outlet.run_soon()


def test_hooks_see_a_large_fetch_completely_before_and_after_it_runs(watched: Watched) -> None:
    watched.harness.create_topic("t")
    seen: list[int] = []

    def count(call: Call, response: Any) -> Any:
        seen.append(len(call.request.topics[0].partitions))  # type: ignore[attr-defined]
        seen.append(len(list(response.responses[0].partitions)))
        return response

    watched.first.on_answer = watched.second.on_answer = count
    sliced = Sliced(watched)
    sliced.client.send(fetch_of(watched.harness, {("t", index): 0 for index in range(3000)}))
    sliced.turns_until(lambda: not sliced.soon)
    ((_, response),) = sliced.client.responses()
    assert seen == [3000] * 4
    assert len(response.responses[0].partitions) == 3000


def test_a_response_being_written_is_lost_if_the_client_disconnects(watched: Watched) -> None:
    sliced = Sliced(watched)
    sliced.client.send(UNKNOWN, 12)
    sliced.turns_until(lambda: ("first", "answer") in watched.hooks())
    sliced.connection.drop_lost_client()
    sliced.turns_until(lambda: not sliced.soon)
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]


def test_a_too_large_response_closes_the_connection_and_is_logged(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routes, "MAX_ANSWER_BYTES", 20_000)
    sliced = Sliced(watched)
    sliced.client.send(UNKNOWN, 12)
    sliced.turns_until(lambda: sliced.client.closed)
    before = sliced.slicer.steps
    sliced.turns_until(lambda: not sliced.soon)
    assert sliced.slicer.steps - before >= 3000 // RELEASED_ITEMS
    (line,) = [record for record in caplog.records if record.name == "minibroker.connections"]
    assert (line.levelname, line.exc_info) == ("WARNING", None)
    assert line.getMessage().endswith("an answer of more than 20000 bytes")
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]


def test_replacing_the_cluster_closes_connections_whose_response_is_being_written(watched: Watched) -> None:
    sliced = Sliced(watched)
    sliced.client.send(UNKNOWN, 12)
    sliced.turns_until(lambda: ("second", "answer") in watched.hooks())
    sliced.replace_state()
    assert sliced.client.closed and not sliced.connection.has_delayed_request and not sliced.client.sent_bytes()
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]


def test_replacing_the_cluster_closes_connections_whose_request_is_being_read(watched: Watched) -> None:
    sliced = Sliced(watched)
    sliced.client.send(UNKNOWN, 12)
    sliced.replace_state()
    assert sliced.client.closed and not sliced.connection.has_delayed_request
    assert watched.hooks() == [("first", "lost"), ("second", "lost")]


def test_replacing_the_cluster_closes_connections_whose_response_a_hook_holds(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    held: Promise[None] = Promise()

    async def hold_response(call: Call) -> Any:
        response = await call.run_hooks_and_handler()
        await held
        return response

    watched.first.on_before = hold_response
    sliced = Sliced(watched)
    sliced.client.send(MetadataRequest(topics=None), 12)
    sliced.replace_state()
    assert sliced.client.closed and not sliced.client.sent_bytes()
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]
    assert "a request failed" not in caplog.text, "nothing is thrown into the hook"


def test_a_produce_with_acks_0_that_a_hook_runs_is_appended_once(watched: Watched) -> None:
    watched.harness.create_topic("t")
    watched.first.on_before = lambda call: call.run_hooks_and_handler()
    records = TopicData.PartitionProduceData(index=0, records=memoryview(batch("v")))
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[TopicData(name="t", partition_data=[records])])
    watched.harness.client().send(request, 9)
    assert watched.harness.partition("t").log.log_end_offset == 1


def test_a_request_that_a_hook_holds_survives_the_next_use_of_its_buffer(watched: Watched) -> None:
    watched.harness.create_topic("t")
    held: Promise[None] = Promise()
    watched.first.on_before = lambda call: hold(held)
    records = TopicData.PartitionProduceData(index=0, records=memoryview(batch("v")))
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicData(name="t", partition_data=[records])])
    scratch = memoryview(bytearray(frame_of(request, 9)))
    watched.harness.client().connection.process_received_data(scratch, len(scratch))
    scratch[:] = bytes(len(scratch))
    held.resolve(None)
    watched.harness.end_turn()
    assert watched.harness.partition("t").log.log_end_offset == 1


def test_a_request_that_a_hook_holds_twice_is_copied_once(watched: Watched) -> None:
    held: list[Promise[None]] = [Promise(), Promise()]
    seen: list[Any] = []

    async def hold_twice(call: Call) -> None:
        for promise in held:
            await promise
            seen.append(call.request)

    watched.first.on_before = hold_twice
    watched.harness.client().send(MetadataRequest(topics=None), 12)
    for promise in held:
        promise.resolve(None)
    assert seen[0] is seen[1]


def test_a_hook_that_holds_a_large_request_does_not_have_it_decoded_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[memoryview] = []
    monkeypatch.setattr(Route, "decode_request", lambda route, frame: decoded.append(frame))
    held: Promise[None] = Promise()
    watched.first.on_before = lambda call: hold(held)
    sliced = Sliced(watched)
    sliced.client.send(UNKNOWN, 12)
    sliced.turns_until(lambda: not sliced.soon)
    held.resolve(None)
    sliced.turns_until(lambda: not sliced.soon)
    ((_, response),) = sliced.client.responses()
    assert (len(response.topics), decoded) == (3000, [])
