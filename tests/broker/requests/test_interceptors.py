"""Hooks on requests: what each may do, in which order they are called, and that every request ends for them once."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.configs.listeners import Listener
from minibroker.broker.delayed_operations import Promise, sleep
from minibroker.broker.network.framing import PREFIX
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.server import Server, bind_listener
from minibroker.operating_system import make_event_loop
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest
from tests.broker.harness import Harness, TopicData, answer_in, batch, frame_of
from tests.loops import LOOPS

METADATA = MetadataRequest(topics=[])
ANY_PORT = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0, "", 0)


class Witness(Interceptor):
    """An interceptor that notes its calls as (name, hook, ...), and does what the test says."""

    def __init__(self, name: str, told: list[tuple[Any, ...]]) -> None:
        self.name = name
        self.told = told
        self.on_before: Callable[[Call], Any] = lambda call: None
        self.on_answer: Callable[[Call, Message], Message] = lambda call, response: response
        self.on_encoded: Callable[[Call, list[Any]], list[Any]] = lambda call, items: items

    def before_request(self, call: Call) -> Any:
        self.told.append((self.name, "before", call.api_key))
        return self.on_before(call)

    def alter_response(self, call: Call, response: Message) -> Message:
        self.told.append((self.name, "answer", type(response).__name__))
        return self.on_answer(call, response)

    def alter_frame(self, call: Call, items: list[Any]) -> list[Any]:
        return self.on_encoded(call, items)

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        self.told.append((self.name, "sent", sent_bytes, duration_ms))

    def on_lost(self, call: Call) -> None:
        self.told.append((self.name, "lost"))


async def hold(held: Promise[None]) -> None:
    await held


class Watched:
    """A harness whose dispatcher has two witnesses, `first` and `second`."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.told: list[tuple[Any, ...]] = []
        self.first, self.second = Witness("first", self.told), Witness("second", self.told)
        harness.dispatcher.interceptors += [self.first, self.second]

    def hooks(self) -> list[tuple[str, str]]:
        return [(name, hook) for name, hook, *_ in self.told]


@pytest.fixture
def watched(harness: Harness) -> Watched:
    return Watched(harness)


def produce(topic: str, value: str, acks: int = 1) -> ProduceRequest:
    data = TopicData.PartitionProduceData(index=0, records=memoryview(batch(value)))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicData(name=topic, partition_data=[data])])


def waiting_fetch(harness: Harness, topic: str) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic_id = harness.cluster.image.topics[topic].topic_id
    topics = [FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics)


def test_hooks_are_called_around_the_handler_in_order(watched: Watched) -> None:
    client = watched.harness.client()
    client.send(METADATA, 12)
    size = len(client.sent_bytes())
    assert watched.told == [
        ("first", "before", ApiKey.METADATA),
        ("second", "before", ApiKey.METADATA),
        ("second", "answer", "MetadataResponse"),
        ("first", "answer", "MetadataResponse"),
        ("first", "sent", size, 0.0),
        ("second", "sent", size, 0.0),
    ]


def test_the_call_given_to_a_hook_describes_its_request(watched: Watched) -> None:
    calls: list[Call] = []
    watched.first.on_before = calls.append
    watched.harness.clock.advance(40)
    watched.harness.client().send(METADATA, 9, correlation_id=99)
    (call,) = calls
    assert call.request == METADATA
    assert (call.api_key, call.context.version, call.correlation_id) == (ApiKey.METADATA, 9, 99)
    assert (call.context.client_id, call.context.connection.peer) == ("test", "test:1")
    assert call.received_bytes == len(frame_of(METADATA, 9))
    assert call.started_ms == 40


def test_an_interceptor_that_overrides_nothing_changes_nothing(harness: Harness) -> None:
    class Idle(Interceptor):
        pass

    plain = harness.request(METADATA)
    harness.dispatcher.interceptors.append(Idle())
    assert harness.request(METADATA) == plain
    harness.create_topic("t")
    assert harness.request(produce("t", "v", acks=0), 9) is None
    fetch = harness.request(waiting_fetch(harness, "t"), 13)
    assert not isinstance(fetch, MetadataResponse)


def test_a_hook_can_respond_instead_of_the_handler(watched: Watched) -> None:
    answer = MetadataResponse(cluster_id="mine", error_code=ErrorCode.NOT_CONTROLLER)
    watched.first.on_before = lambda call: answer
    assert watched.harness.request(METADATA, 13) == answer
    assert watched.hooks() == [
        ("first", "before"),
        ("second", "answer"),
        ("first", "answer"),
        ("first", "sent"),
        ("second", "sent"),
    ]


def test_a_hook_can_replace_the_response_for_the_hooks_before_it(watched: Watched) -> None:
    seen = []
    watched.second.on_answer = lambda call, response: MetadataResponse(cluster_id="second")

    def replace(call: Call, response: Message) -> Message:
        assert isinstance(response, MetadataResponse)
        seen.append(response.cluster_id)
        return MetadataResponse(cluster_id="first")

    watched.first.on_answer = replace
    assert watched.harness.request(METADATA).cluster_id == "first"
    assert seen == ["second"]


def test_a_hook_can_replace_the_response_bytes_for_the_hooks_before_it(watched: Watched) -> None:
    seen = []

    def see(call: Call, items: list[Any]) -> list[Any]:
        seen.append(items[0])
        return items

    watched.second.on_encoded = lambda call, items: [b"half", None]
    watched.first.on_encoded = see
    client = watched.harness.client()
    client.send(METADATA, 12)
    assert client.sent_bytes() == b"half" == seen[0]
    assert client.closed
    assert watched.told[-2:] == [("first", "sent", 4, 0.0), ("second", "sent", 4, 0.0)]


def test_a_call_contains_the_bytes_of_its_request(watched: Watched) -> None:
    frames = []
    watched.first.on_before = lambda call: frames.append(bytes(call.frame))
    watched.harness.client().send(METADATA, 9)
    assert frames == [frame_of(METADATA, 9)[PREFIX.size :]]


def test_sent_hooks_of_a_request_without_a_response_are_called_with_0_bytes(watched: Watched) -> None:
    watched.harness.create_topic("t")
    watched.told.clear()
    assert watched.harness.request(produce("t", "v", acks=0), 9) is None
    assert [told[:2] for told in watched.told] == [
        ("first", "before"),
        ("second", "before"),
        ("first", "sent"),
        ("second", "sent"),
    ]
    assert watched.told[-1] == ("second", "sent", 0, 0.0)


def test_the_response_of_a_delayed_request_passes_the_hooks_on_completion(watched: Watched) -> None:
    harness = watched.harness
    harness.create_topic("t")
    watched.told.clear()
    client = harness.client()
    client.send(waiting_fetch(harness, "t"), 13)
    assert watched.hooks() == [("first", "before"), ("second", "before")]
    harness.clock.advance(500)
    client.sent_bytes()
    assert watched.hooks()[2:] == [("second", "answer"), ("first", "answer"), ("first", "sent"), ("second", "sent")]
    assert watched.told[-1][3] == 500.0


def test_a_delayed_request_whose_client_disconnects_is_reported_as_lost(watched: Watched) -> None:
    harness = watched.harness
    harness.create_topic("t")
    watched.told.clear()
    client = harness.client()
    client.send(waiting_fetch(harness, "t"), 13)
    client.connection.drop_lost_client()
    assert watched.hooks()[2:] == [("first", "lost"), ("second", "lost")]
    assert not harness.partition("t").waiters


def test_a_hook_can_hold_a_request_and_release_it_with_its_own_bytes(watched: Watched) -> None:
    """The frame's buffer is used for other requests meanwhile."""
    harness = watched.harness
    harness.create_topic("t")

    watched.first.on_before = lambda call: sleep(harness.clock, 100)
    client = harness.client()
    client.send(produce("t", "held"), 9)
    client.send(produce("t", "next"), 9)
    assert list(client.responses()) == []
    harness.clock.advance(100)
    harness.clock.advance(100)
    client.outlet.run_soon()
    harness.clock.advance(100)
    answers = [answer.responses[0].partition_responses[0] for _, answer in client.responses()]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1)]
    data = (harness.directory / "data" / "t-0" / "00000000000000000000.log").read_bytes()
    assert b"held" in data and b"next" in data
    assert watched.hooks().count(("second", "before")) >= 2


def test_a_hook_may_hold_a_request_that_has_no_response(watched: Watched) -> None:
    harness = watched.harness
    harness.create_topic("t")
    watched.told.clear()
    held: Promise[None] = Promise()
    watched.first.on_before = lambda call: hold(held) if call.api_key == ApiKey.PRODUCE else None
    client = harness.client()
    client.send(produce("t", "v", acks=0), 9)
    held.resolve(None)
    client.outlet.run_soon()
    assert client.sent_bytes() == b""
    assert watched.told[-1] == ("second", "sent", 0, 0.0)
    client.send(METADATA, 12)
    assert PREFIX.unpack_from(client.sent_bytes())[0] > 0


def test_a_request_that_a_hook_held_may_then_be_delayed_by_its_handler(watched: Watched) -> None:
    harness = watched.harness
    harness.create_topic("t")
    watched.told.clear()
    held: list[Promise[None]] = [Promise(), Promise()]
    waiting = iter(held)
    watched.first.on_before = lambda call: hold(next(waiting))
    clients = [harness.client(), harness.client()]
    for client in clients:
        client.send(waiting_fetch(harness, "t"), 13)
    for each in held:
        each.resolve(None)
    assert len(harness.partition("t").waiters) == 2
    clients[0].connection.drop_lost_client()
    assert len(harness.partition("t").waiters) == 1
    harness.clock.advance(500)
    assert clients[0].sent_bytes() == b""
    assert answer_in(clients[1].sent_bytes(), ApiKey.FETCH, 13)[1].error_code == 0
    assert watched.hooks().count(("first", "lost")) == watched.hooks().count(("first", "sent")) == 1


def test_a_disconnecting_client_ends_its_held_request(watched: Watched) -> None:
    held: Promise[None] = Promise()
    watched.first.on_before = lambda call: hold(held)
    client = watched.harness.client()
    client.send(METADATA)
    client.connection.drop_lost_client()
    held.resolve(None)
    assert watched.hooks() == [("first", "before"), ("first", "lost"), ("second", "lost")]


def test_a_hook_may_be_a_coroutine_that_returns_at_once(watched: Watched) -> None:
    async def complete(call: Call) -> MetadataResponse:
        return MetadataResponse(cluster_id="at once")

    watched.first.on_before = complete
    client = watched.harness.client()
    client.send(METADATA, 12)
    client.send(METADATA, 12)
    assert [answer.cluster_id for _, answer in client.responses()] == ["at once", "at once"]


def test_a_hook_that_runs_the_handler_itself_need_not_return_a_response(watched: Watched) -> None:
    async def run(call: Call) -> None:
        await call.run_hooks_and_handler()

    watched.first.on_before = watched.second.on_before = run
    assert watched.harness.request(METADATA).cluster_id == watched.harness.cluster.cluster_id
    assert watched.hooks()[:2] == [("first", "before"), ("second", "before")]
    assert watched.hooks().count(("second", "before")) == 1


def test_a_request_whose_hook_fails_ends_as_lost_for_all_hooks(watched: Watched) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    watched.second.on_before = fail
    with pytest.raises(ZeroDivisionError):
        watched.harness.request(METADATA)
    assert watched.hooks() == [("first", "before"), ("second", "before"), ("first", "lost"), ("second", "lost")]
    watched.told.clear()
    watched.second.on_before = lambda call: None
    watched.second.on_answer = fail
    with pytest.raises(ZeroDivisionError):
        watched.harness.request(METADATA)
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]


def test_a_failure_of_a_delayed_request_closes_only_its_connection(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    harness = watched.harness
    harness.create_topic("t")

    def fail(call: Call, response: Message) -> Message:
        if call.api_key == ApiKey.FETCH:
            raise ZeroDivisionError
        return response

    watched.second.on_answer = fail
    client = harness.client()
    client.send(waiting_fetch(harness, "t"), 13)
    harness.produce("t", "v")
    assert client.closed and client.sent_bytes() == b""
    assert "closing test:1 (client id 'test'): a request failed" in caplog.text
    assert ("first", "lost") in watched.hooks()


def test_a_held_request_that_cannot_run_closes_its_connection(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    held: Promise[None] = Promise()

    def fail(call: Call) -> None:
        raise ZeroDivisionError

    watched.first.on_before, watched.second.on_before = lambda call: hold(held), fail
    client = watched.harness.client()
    client.send(METADATA)
    held.resolve(None)
    assert client.closed
    assert "a request failed" in caplog.text
    assert watched.hooks()[-2:] == [("first", "lost"), ("second", "lost")]


def test_a_failing_end_hook_is_logged_and_the_others_are_called(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Interceptor):
        def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
            raise ZeroDivisionError

    told: list[tuple[Any, ...]] = []
    harness.dispatcher.interceptors += [Failing(), Witness("other", told)]
    harness.request(METADATA)
    assert told[-1][:2] == ("other", "sent")
    assert "Failing failed at the end of a request" in caplog.text


def test_records_sent_by_file_region_count_as_sent_bytes(watched: Watched) -> None:
    harness = watched.harness
    harness.create_topic("t")
    harness.produce("t", "x" * 1000)
    client = harness.client()
    client.send(waiting_fetch(harness, "t"), 13)
    assert len(client.sent_bytes()) > 1000
    assert watched.told[-1][2] == len(client.sent_bytes())


@pytest.mark.parametrize("loop_factory", LOOPS.values(), ids=LOOPS)
def test_sent_hooks_are_called_in_order_after_the_bytes_are_sent(
    harness: Harness, caplog: pytest.LogCaptureFixture, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    caplog.set_level(logging.WARNING)
    told: list[tuple[Any, ...]] = []

    async def talk() -> bytes:
        loop = asyncio.get_running_loop()
        bound = bind_listener(ANY_PORT, harness.cluster.settings)
        server = Server(loop, harness.cluster, [Witness("one", told)])
        await server.serve_listener(harness.cluster.nodes[1], bound)
        reader, writer = await asyncio.open_connection(*bound.endpoint)
        for correlation_id in range(20):
            writer.write(frame_of(METADATA, 12, correlation_id))
        answers = b""
        for _ in range(20):
            size = await reader.readexactly(4)
            answers += size + await reader.readexactly(PREFIX.unpack(size)[0])
        writer.close()
        await server.close()
        return answers

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        answers = runner.run(talk())
    sent = [each for each in told if each[1] == "sent"]
    assert len(sent) == 20 and sum(each[2] for each in sent) == len(answers)
    assert not any(each[1] == "lost" for each in told)


def test_a_lost_connection_loses_its_queued_responses(harness: Harness) -> None:
    told: list[tuple[Any, ...]] = []
    harness.create_topic("t")
    harness.produce("t", "x" * 900_000)
    fetch = waiting_fetch(harness, "t")
    fetch.max_bytes = fetch.topics[0].partitions[0].partition_max_bytes = 1 << 20

    async def talk() -> None:
        loop = asyncio.get_running_loop()
        bound = bind_listener(ANY_PORT, harness.cluster.settings)
        server = Server(loop, harness.cluster, [Witness("one", told)])
        await server.serve_listener(harness.cluster.nodes[1], bound)
        client = socket.create_connection(bound.endpoint)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_sendall(client, frame_of(fetch, 13) * 60)
        await loop.sock_recv(client, 1)
        client.close()
        while not any(each[1] == "lost" for each in told):
            await asyncio.sleep(0)
        await server.close()

    with asyncio.Runner(loop_factory=make_event_loop) as runner:
        runner.run(talk())
    began = sum(each[1] == "before" for each in told)
    assert began == sum(each[1] in ("sent", "lost") for each in told)
