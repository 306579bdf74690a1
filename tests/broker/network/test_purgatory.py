"""Requests that wait share a limit, whatever they are: beyond it the connections of the largest ones are closed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from minibroker.broker.delayed_operations import Slicer
from minibroker.broker.network.framing import SPARE_BYTES, FrameBudget
from minibroker.broker.network.purgatory import OWN_BYTES, Purgatory
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.broker.harness import Client, Harness, TopicData, batch
from tests.storage.support import FailingDisk

KIB = 1 << 10
GZIP = 1
PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol
SLACK_BYTES = 1 << 20
WITHOUT_MEMBER_ID = 3  # of JoinGroup: a new member joins at once


class Waiter:
    """A client that notes that it was given up."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def disconnect_unless_answered(self, reason: str) -> None:
        self.reasons.append(reason)


def test_the_largest_and_then_oldest_delayed_requests_are_closed_beyond_the_memory_limit() -> None:
    purgatory = Purgatory(100 * KIB)
    first, second, largest, last = (Waiter() for _ in range(4))
    for client, size in (first, 20), (second, 20), (largest, 60):
        purgatory.add_delayed_request(client, size * KIB)
    assert purgatory.held_bytes == 100 * KIB
    purgatory.add_delayed_request(last, 10 * KIB)
    assert purgatory.held_bytes == 50 * KIB
    assert [bool(each.reasons) for each in (first, second, largest, last)] == [False, False, True, False]
    assert "61440 bytes" in largest.reasons[0] and "102400" in largest.reasons[0]
    purgatory.limit_bytes = 50 * KIB
    purgatory.add_delayed_request(last, 11 * KIB)
    assert [bool(each.reasons) for each in (first, second, last)] == [True, False, False]


def test_small_or_completed_requests_do_not_count_towards_the_memory_limit() -> None:
    purgatory = Purgatory(0)
    small = Waiter()
    purgatory.add_delayed_request(small, OWN_BYTES)
    assert purgatory.held_bytes == 0 and not small.reasons
    purgatory.limit_bytes = KIB * KIB
    purgatory.add_delayed_request(small, KIB * KIB)
    purgatory.remove_delayed_request(small)
    purgatory.remove_delayed_request(small)
    assert purgatory.held_bytes == 0


def joining(harness: Harness, budget: FrameBudget, group: str, size_bytes: int, timeout_ms: int = 60_000) -> Client:
    """A client whose JoinGroup carries so many bytes; from the second member of a group on it waits."""
    client = harness.client(budget=budget)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=timeout_ms,
        protocol_type="consumer",
        protocols=[PROTOCOL(name="range", metadata=bytes(size_bytes))],
    )
    client.send(request, WITHOUT_MEMBER_ID)
    return client


def test_the_memory_of_delayed_large_join_group_requests_is_limited(harness: Harness) -> None:
    harness.coordinator("group")
    budget = FrameBudget()
    budget.purgatory.limit_bytes = 1000 * KIB
    leader = joining(harness, budget, "group", KIB)
    harness.clock.advance(1)
    assert [answer.error_code for _, answer in leader.responses()] == [ErrorCode.NONE]
    tracemalloc.start()
    crowd: list[Client] = []
    for _ in range(50):
        crowd.append(joining(harness, budget, "group", 100 * KIB))
        for client in crowd:
            client.outlet.run_soon()
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held_bytes < 1000 * KIB + SPARE_BYTES + SLACK_BYTES, "their members are gone, too"
    assert budget.purgatory.held_bytes <= 1000 * KIB
    assert [client.closed for client in crowd] == [True] * 41 + [False] * 9, "those that have waited longest go"
    members = harness.cluster.groups.groups["group"].members
    assert len(members) == 1 + 9, "who is closed leaves the group"
    harness.clock.advance(61_000)
    answers = [answer for client in crowd[41:] for _, answer in client.responses()]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 9
    assert budget.purgatory.held_bytes == 0


def test_a_produce_that_waits_for_the_fsync_no_longer_holds_its_records(tmp_path: Path) -> None:
    with Harness(tmp_path, disk=FailingDisk()) as harness:
        harness.create_topic("every", flush_messages="1")
        harness.clock.holds_aside = True
        client = harness.client()
        records = TopicData.PartitionProduceData(index=0, records=memoryview(batch(bytes(800 * KIB))))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicData(name="every", partition_data=[records])]
        )
        client.connection._budget.get_buffer(1, SPARE_BYTES)  # somebody has the shared one
        tracemalloc.start()
        client.send(request, 9)
        held_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert client.connection.has_delayed_request
        assert client.connection._budget.purgatory.held_bytes == 0
        assert held_bytes < 600 * KIB
        harness.clock.do_aside()
        ((_, answer),) = client.responses()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_requests_of_a_disconnected_client_no_longer_count_towards_the_memory_limit(harness: Harness) -> None:
    harness.coordinator("group")
    budget = FrameBudget()
    joining(harness, budget, "group", KIB)
    harness.clock.advance(1)
    client = joining(harness, budget, "group", 100 * KIB)
    assert budget.purgatory.held_bytes > 100 * KIB
    client.connection.drop_lost_client()
    assert budget.purgatory.held_bytes == 0


def test_a_delayed_request_beyond_the_memory_limit_keeps_its_connection_if_answered_in_time(harness: Harness) -> None:
    harness.coordinator("group")
    budget = FrameBudget()
    budget.purgatory.limit_bytes = 150 * KIB
    joining(harness, budget, "group", KIB)
    harness.clock.advance(1)
    client = joining(harness, budget, "group", 100 * KIB)
    budget.purgatory.add_delayed_request(Waiter(), 100 * KIB)
    harness.clock.advance(61_000)
    client.outlet.run_soon()
    ((_, answer),) = client.responses()
    assert isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NONE
    assert not client.closed


def large_produce(acks: int = -1) -> ProduceRequest:
    """A Produce whose batch is validated in steps, while its frame is kept."""
    records = bytes(build_batch([Record(0, 0, None, Random(1).randbytes(200 * KIB), ())], compression=GZIP))
    data = TopicData.PartitionProduceData(index=0, records=memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicData(name="t", partition_data=[data])])


def test_a_large_request_processed_in_one_time_slice_releases_its_frame_memory(harness: Harness) -> None:
    harness.create_topic("t")
    client = harness.client()
    client.send(large_produce(), 9)
    ((_, answer),) = client.responses()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert client.connection._budget.held_bytes == 0


def test_a_large_request_processed_in_several_time_slices_releases_its_frame_memory(harness: Harness) -> None:
    harness.create_topic("t")
    turns: list[Callable[[], None]] = []
    harness.dispatcher.slicer = Slicer(turns.append, now=count().__next__)
    client = harness.client()
    client.send(large_produce(), 9)
    assert client.connection._budget.held_bytes > 0
    while turns:
        turns.pop(0)()
    harness.end_turn()
    ((_, answer),) = client.responses()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert client.connection._budget.held_bytes == 0


def test_a_large_request_that_cannot_be_answered_releases_its_frame_memory(harness: Harness) -> None:
    harness.create_topic("t", max_message_bytes="1000")
    client = harness.client()
    client.send(large_produce(acks=0), 9)
    assert client.closed and client.failure
    assert client.connection._budget.held_bytes == 0


def test_a_large_request_whose_connection_fails_meanwhile_releases_its_frame_memory(harness: Harness) -> None:
    harness.create_topic("t")
    soon: list[Callable[[], None]] = []
    harness.dispatcher.slicer = Slicer(soon.append, now=count().__next__)
    client = harness.client()
    client.send(large_produce(), 9)
    assert client.connection.has_delayed_request and client.connection._budget.held_bytes > 0
    client.connection.close_after_failure()
    assert client.connection._budget.held_bytes == 0
