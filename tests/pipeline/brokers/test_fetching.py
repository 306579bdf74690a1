"""Fetching a range from nodes that answer as they do on a bad day: what is asked for next, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.broker_source import Fetcher, FetchSettings
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import DataLoss, OffsetRange, TopicPartition
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.message import MIN_MESSAGE_BYTES
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.client.scripted import Answer, Hang, Script, ScriptedNodes, partition_data, scripted
from tests.protocol.records.samples import T

PARTITION = TopicPartition("t", 0)
QUICK = {"request.timeout.ms": "300", "default.api.timeout.ms": "1500", "retry.backoff.ms": "1"}


def batch(first: int, last: int) -> bytes:
    """A batch with these offsets."""
    records = [Record(offset, T, None, b"v%d" % offset) for offset in range(first, last + 1)]
    return bytes(build_batch(records, base_offset=first))


def log(*spans: tuple[int, int], end: int | None = None) -> Callable[[int, int], Answer]:
    """A log that gives one batch an answer."""

    def fetch(node: int, offset: int) -> Answer:
        limit = spans[-1][1] + 1 if end is None else end
        found = next((span for span in spans if span[1] >= offset), None)
        return partition_data(b"" if found is None else batch(*found), end=limit)

    return fetch


def fetched(
    nodes: ScriptedNodes, start: int, end: int, *, committed: bool = False, fail: bool = True, most: int = 8 << 20
) -> list[tuple[bytes, Sequence[tuple[int, int]]]]:
    with Client(nodes.bootstrap_servers, QUICK) as client:
        offsets = OffsetRange(PARTITION, start, end)
        fetcher = Fetcher(client, offsets, FetchSettings(partition_bytes=most), committed, fail)
        return [(bytes(each.data), each.aborted) for each in fetcher]


def test_a_range_is_fetched_exactly_to_its_end() -> None:
    script = Script(log((0, 9), (10, 19), (20, 29)))
    with scripted(script) as nodes:
        assert fetched(nodes, 3, 20) == [(batch(0, 9), ()), (batch(10, 19), ())]
    assert script.offsets == [3, 10]


def test_an_empty_range_fetches_nothing() -> None:
    script = Script()
    with scripted(script) as nodes:
        assert fetched(nodes, 5, 5) == []
    assert script.offsets == []


def test_the_next_fetch_is_sent_before_a_response_is_processed() -> None:
    script = Script(log((0, 9), (10, 19)))
    with scripted(script) as nodes, Client(nodes.bootstrap_servers, QUICK) as client:
        fetcher = iter(Fetcher(client, OffsetRange(PARTITION, 0, 20), FetchSettings()))
        next(fetcher)
        client.list_partitions(["t"])  # an exchange, after which the earlier request has arrived for sure
        assert script.offsets == [0, 10]
        assert bytes(next(fetcher).data) == batch(10, 19)


def test_offsets_removed_by_compaction_are_skipped() -> None:
    script = Script(log((0, 4), (50, 59), (90, 99)))
    with scripted(script) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 95)] == [batch(0, 4), batch(50, 59), batch(90, 99)]
    assert script.offsets == [0, 5, 60]


def test_a_range_ends_where_its_last_offsets_were_removed_by_compaction() -> None:
    with scripted(Script(log((0, 9), end=100))) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 100)] == [batch(0, 9)]


def test_the_end_of_committed_records_is_the_last_stable_offset() -> None:
    data = partition_data(batch(0, 9), end=20, stable=10, aborted=[(7, 3)])
    script = Script(lambda node, offset: data if offset < 10 else partition_data(end=20, stable=20))
    with scripted(script) as nodes:
        assert fetched(nodes, 0, 20, committed=True) == [(batch(0, 9), ((7, 3),))]
    assert {request.isolation_level for _, request in script.fetched} == {1}


def test_a_torn_batch_at_the_end_is_fetched_again() -> None:
    def fetch(node: int, offset: int) -> Answer:
        return partition_data(batch(0, 9) + batch(10, 19)[:-1] if offset < 10 else batch(10, 19), end=20)

    script = Script(fetch)
    with scripted(script) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 20)] == [batch(0, 9), batch(10, 19)]
    assert script.offsets == [0, 10]


def test_more_bytes_are_fetched_if_no_complete_batch_arrived() -> None:
    whole = batch(0, 99)
    script = Script()
    script.fetch = lambda node, offset: partition_data(whole[: _asked(script)], end=100)
    with scripted(script) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 100, most=100)] == [whole]
    sizes = [request.topics[0].partitions[0].partition_max_bytes for _, request in script.fetched]
    assert sizes == [100 << step for step in range(len(sizes))] and sizes[-1] >= len(whole) > sizes[-2]


def _asked(script: Script) -> int:
    return script.fetched[-1][1].topics[0].partitions[0].partition_max_bytes


def test_a_moved_leader_is_looked_up() -> None:
    script = Script()

    def fetch(node: int, offset: int) -> Answer:
        if node == 1 and offset >= 10:
            script.leader, script.epoch = 2, 5
            return partition_data(None, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log((0, 9), (10, 19))(node, offset)

    script.fetch = fetch
    with scripted(script, nodes=2) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 20)] == [batch(0, 9), batch(10, 19)]
    asked = [(node, request.topics[0].partitions[0].current_leader_epoch) for node, request in script.fetched]
    assert asked == [(1, 0), (1, 0), (2, 5)]


@pytest.mark.parametrize(
    "error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_a_retriable_error_is_retried(error: ErrorCode) -> None:
    script = Script()

    def fetch(node: int, offset: int) -> Answer:
        return partition_data(None, error=error) if len(script.fetched) < 3 else log((0, 9))(node, offset)

    script.fetch = fetch
    with scripted(script) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 10)] == [batch(0, 9)]


def test_a_broken_connection_is_reopened() -> None:
    script = Script()

    def fetch(node: int, offset: int) -> Answer:
        if len(script.fetched) == 2:
            raise Hang
        return log((0, 9), (10, 19))(node, offset)

    script.fetch = fetch
    with scripted(script) as nodes:
        assert [data for data, _ in fetched(nodes, 0, 20)] == [batch(0, 9), batch(10, 19)]
    assert script.offsets == [0, 10, 10]


def test_a_permanent_error_is_reported_in_one_line() -> None:
    refused = partition_data(None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with scripted(Script(lambda node, offset: refused)) as nodes:
        with pytest.raises(ClientError) as failure:
            fetched(nodes, 7, 20)
        assert str(failure.value) == f"{nodes.bootstrap_servers}: reading t-0 at 7: TOPIC_AUTHORIZATION_FAILED"


def out_of_range(earliest: int, latest: int, then: Callable[[int, int], Answer]) -> Script:
    def fetch(node: int, offset: int) -> Answer:
        if not earliest <= offset <= latest:
            return partition_data(None, error=ErrorCode.OFFSET_OUT_OF_RANGE)
        return then(node, offset)

    return Script(fetch, bounds=(earliest, latest))


def test_deleted_records_are_a_data_loss() -> None:
    with scripted(out_of_range(10, 20, log((10, 19)))) as nodes:
        with pytest.raises(DataLoss, match="t-0: offsets 3 to 9 are missing: the partition begins at 10"):
            fetched(nodes, 3, 20)
        assert [data for data, _ in fetched(nodes, 3, 20, fail=False)] == [batch(10, 19)]
        assert fetched(nodes, 3, 8, fail=False) == []


def test_a_truncated_log_is_a_data_loss() -> None:
    with scripted(out_of_range(0, 10, log((0, 9)))) as nodes:
        with pytest.raises(DataLoss, match="t-0: offsets 12 to 19 are missing: the partition ends at 10"):
            fetched(nodes, 12, 20)
        assert fetched(nodes, 12, 20, fail=False) == []


def test_missing_offsets_are_a_data_loss() -> None:
    with scripted(Script(log((0, 9)))) as nodes:
        with pytest.raises(DataLoss, match="t-0: offsets 10 to 19 are missing: the partition ends at 10"):
            fetched(nodes, 0, 20)
        assert [data for data, _ in fetched(nodes, 0, 20, fail=False)] == [batch(0, 9)]


def test_a_deleted_topic_is_a_data_loss() -> None:
    script = Script()

    def fetch(node: int, offset: int) -> Answer:
        script.exists = False
        return partition_data(None, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    script.fetch = fetch
    with scripted(script) as nodes:
        with pytest.raises(DataLoss, match="t-0: offsets 0 to 9 are missing: the partition is gone"):
            fetched(nodes, 0, 10)
        script.exists = True
        assert fetched(nodes, 0, 10, fail=False) == []


def test_a_fetched_batch_of_one_message_of_the_smallest_size_is_complete() -> None:
    smallest = bytes(build_message_set([Record(0, -1, None, None)], 0))
    assert len(smallest) == min(MIN_MESSAGE_BYTES)
    with scripted(Script(lambda node, offset: partition_data(smallest, end=1))) as nodes:
        assert fetched(nodes, 0, 1) == [(smallest, ())]
