"""What requests leave behind: nothing that only a collection of cycles frees, as a busy broker has few of those."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from minibroker.broker.configs.listeners import Listener
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.server import Server, bind_listener
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.groups import DeleteGroupsRequest
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.groups.classic.driving import Driver
from tests.broker.groups.consumer.driving import Player
from tests.broker.handlers.fetching import fetch, fetch_of
from tests.broker.handlers.offset_requests import commit
from tests.broker.harness import Harness, Waiting, batch, frame_of
from tests.broker.transactions.producing import TransactionalProducer

HELLO = frame_of(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
NONSENSE = b"\xff" * 8
TIMES = 50
FEW = 1  # objects a request


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings={"offsets.topic.num.partitions": "1"}) as harness:
        harness.create_topic("t", 2)
        harness.coordinator("g")
        yield harness


@contextmanager
def little_garbage(times: int = TIMES) -> Iterator[None]:
    """Check that what is done here `times` leaves only what is freed at once."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert gc.collect() < FEW * times
    finally:
        gc.enable()


def wait_for_records(harness: Harness) -> None:
    waiting = waiting_fetch(harness)
    assert not waiting.done
    harness.produce("t", "x")
    assert waiting.response().error_code == 0


def wait_in_vain(harness: Harness) -> None:
    waiting = waiting_fetch(harness)
    harness.clock.advance(500)
    assert waiting.response().error_code == 0


def go_away(harness: Harness) -> None:
    waiting_fetch(harness).go_away()


def waiting_fetch(harness: Harness) -> Waiting:
    """Fetch from the end on, and wait half a second."""
    request = fetch_of(harness, {("t", 0): harness.partition("t").log.log_end_offset}, max_wait_ms=500)
    waiting: Waiting = harness.request(request)
    return waiting


def fetch_converted(harness: Harness) -> None:
    harness.produce("t", "x")
    assert fetch(harness, {("t", 0): 0}, version=3)["t", 0].error_code == 0


def fetch_out_of_range(harness: Harness) -> None:
    assert fetch(harness, {("t", 0): 1 << 40})["t", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(harness, {("t", 0): 1 << 40}, version=3)["t", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def be_refused(harness: Harness) -> None:
    corrupt = bytearray(batch("x"))
    corrupt[-1] ^= 1
    assert harness.produce_batch("t", bytes(corrupt)).error_code == ErrorCode.CORRUPT_MESSAGE
    transactional = batch("x", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    assert harness.produce_batch("t", transactional).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with suppress(UnanswerableRequest):
        harness.produce_batch("t", bytes(corrupt), acks=0)


def commit_offset(harness: Harness) -> None:
    assert commit(harness, "g", ("t", 0, 5)) == [0]


def transact(harness: Harness) -> None:
    producer = TransactionalProducer(harness)
    assert producer.init() == 0
    assert producer.send("x") == 0
    assert producer.finish() == 0


def rebalance(harness: Harness) -> None:
    driver = Driver(harness)
    (member_id,) = driver.stable()
    driver.leave(member_id)


def create_and_delete(harness: Harness) -> None:
    harness.create_topic("brief", 2)
    harness.produce("brief", "x")
    harness.request(DeleteTopicsRequest(topic_names=["brief"], timeout_ms=1000), 5)
    harness.clock.advance(60_000)
    assert "brief" not in harness.cluster.image.topics


def delete_group(harness: Harness) -> None:
    driver = Driver(harness, "brief")
    (member_id,) = driver.stable()
    driver.leave(member_id)
    answer = harness.request(DeleteGroupsRequest(groups_names=["brief"]))
    assert answer.results[0].error_code == 0


REQUESTS: dict[str, Callable[[Harness], object]] = {
    "a Produce": lambda harness: harness.produce("t", "x"),
    "a Produce that is refused": be_refused,
    "a Fetch": lambda harness: fetch(harness, {("t", 0): 0}),
    "a Fetch of converted records": fetch_converted,
    "a Fetch that is refused": fetch_out_of_range,
    "a Fetch that waits": wait_for_records,
    "a Fetch whose time is up": wait_in_vain,
    "a Fetch whose client goes": go_away,
    "a Metadata": lambda harness: harness.request(MetadataRequest()),
    "a ListOffsets": lambda harness: harness.request(ListOffsetsRequest(topics=[])),
    "an ApiVersions": lambda harness: harness.request(ApiVersionsRequest()),
    "a commit": commit_offset,
    "a transaction": transact,
    "a rebalance": rebalance,
    "a topic that is deleted": create_and_delete,
    "a group that is deleted": delete_group,
}


@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in REQUESTS.items()])
def test_a_request_leaves_no_reference_cycles(ask: Callable[[Harness], object], harness: Harness) -> None:
    ask(harness)
    with little_garbage():
        for _ in range(TIMES):
            ask(harness)


def test_heartbeats_leave_no_reference_cycles(harness: Harness) -> None:
    driver, player = Driver(harness, "classic"), Player(harness, "a", "t", group="consumer")
    (member_id,) = driver.stable()
    player.join()
    with little_garbage():
        for _ in range(TIMES):
            assert driver.heartbeat(member_id) == 0
            assert player.beat().error_code == 0


def test_a_connection_leaves_no_reference_cycles(harness: Harness) -> None:
    async def run() -> None:
        server = Server(asyncio.get_running_loop(), harness.cluster)
        bound = bind_listener(Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0, "", 0), harness.cluster.settings)
        await server.serve_listener(harness.cluster.nodes[1], bound)
        try:
            for data in (HELLO, HELLO + NONSENSE):
                await asyncio.to_thread(talk, bound.endpoint, data)
                with little_garbage():
                    for _ in range(TIMES):
                        await asyncio.to_thread(talk, bound.endpoint, data)
        finally:
            await server.close()

    uvloop = pytest.importorskip("uvloop")  # asyncio's own transports leave cycles
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def talk(address: tuple[str, int], data: bytes) -> None:
    """Connect, send this, and go once the broker has answered, or has closed the connection."""
    with socket.create_connection(address, timeout=10) as client:
        client.sendall(data)
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
        assert len(client.recv(size, socket.MSG_WAITALL)) == size
        if data is not HELLO:
            assert client.recv(1) == b""
