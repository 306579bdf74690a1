"""The faults of the test kit, and what Kafka's own Java client makes of them: what it retries and what it reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from conformance.clients import CLIENTS, java_member, run
from minibroker.testing import Broker
from tests.clients.groups import Member
from tests.clients.interface import PATIENCE_S

REPLICATED = {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}

pytestmark = pytest.mark.minibroker_only
(JAVA,) = (client for client in CLIENTS if client.name == "java-4")


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Broker:
    started.reset()
    started.create_topic("t", 1)
    return started


def sent(broker: Broker) -> str:
    return run(JAVA, "send", broker.bootstrap_servers, "t", "v")


def values(broker: Broker) -> list[str | None]:
    return [record.text for record in broker.records("t")]


def has_more(member: Member, assignments: int) -> bool:
    return len(member.assignments) > assignments


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_java_producer_reports_a_non_retriable_error(broker: Broker) -> None:
    fault = broker.faults.add(api="Produce", topic="t", error="TOPIC_AUTHORIZATION_FAILED")
    assert sent(broker) == "TopicAuthorizationException"
    assert (fault.hits, values(broker)) == (1, [])


@pytest.mark.parametrize(
    "words",
    [
        {"error": "NOT_LEADER_OR_FOLLOWER", "times": 2},
        {"error": "REQUEST_TIMED_OUT", "when": "after", "once": True},
        {"close": "after", "once": True},
        {"answer": "half", "once": True},
    ],
    ids=["before", "after", "close", "half"],
)
def test_a_record_that_a_java_producer_retries_is_written_once(broker: Broker, words: dict[str, object]) -> None:
    fault = broker.faults.add(api="Produce", topic="t", **words)
    assert sent(broker) == "offset 0"
    assert fault.hits == words.get("times", 1)
    assert values(broker) == ["v"]


def test_a_consumer_stops_at_a_corrupt_batch_until_it_is_repaired(broker: Broker) -> None:
    broker.produce("t", "v")
    fault = broker.faults.add(api="Fetch", topic="t", corrupt="crc")
    reported = run(JAVA, "receive", broker.bootstrap_servers, "t")
    assert "t-0 at offset 0 is invalid, cause: Record is corrupt (stored crc" in reported, reported
    assert fault.hits >= 1
    fault.remove()
    assert run(JAVA, "receive", broker.bootstrap_servers, "t") == "value v"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("codec", "ZipException: Not in GZIP format"),
        ("length", "CorruptRecordException"),
        ("truncated", "KafkaException"),
        ("offsets", "value v"),
    ],
)
def test_a_java_consumer_reports_corruption_of_codec_or_length_but_not_of_offsets(
    broker: Broker, how: str, told: str
) -> None:
    broker.produce("t", "v")
    broker.produce("t", "w")
    fault = broker.faults.add(api="Fetch", topic="t", corrupt=how)
    assert told in run(JAVA, "receive", broker.bootstrap_servers, "t")
    assert fault.hits >= 1


def test_a_producer_fenced_by_a_test_reports_it(broker: Broker) -> None:
    fault = broker.faults.add(api="EndTxn", delay="20 s")
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(run, JAVA, "transact", broker.bootstrap_servers, "x")
        fault.wait_for_hits(1, "60 s")
        fault.remove()
        broker.fence("x-copier")
        broker.clock.advance("20 s")
        with pytest.raises(AssertionError, match="ProducerFencedException|InvalidProducerEpochException"):
            copying.result()
    assert {record.transaction for record in broker.records("x-target")} == {"aborted"}


def test_a_java_client_pushes_metrics_while_running_and_at_its_end(broker: Broker, tmp_path: Path) -> None:
    broker.journal.on()
    broker.collect_client_metrics("org.apache.kafka.consumer.", interval="100 ms")
    broker.produce("t", "first")
    member = Member("java", [*java_member(), broker.bootstrap_servers, "g", "t", "consumer:range"], tmp_path / "stderr")
    try:
        broker.wait_for_requests("PushTelemetry", 2, timeout="60 s")
        member.leave()
    finally:
        member.end()
    pushes = broker.requests("PushTelemetry")
    assert not any(push.errors for push in pushes)
    assert pushes[-1].request.terminating
    metrics = {metric.name for metric in broker.client_metrics()}
    assert "org.apache.kafka.consumer.coordinator.assigned.partitions" in metrics
    assert metrics == {point.name for push in pushes for point in push.client_metrics}


def test_a_producer_finds_a_leader_missing_from_metadata_by_the_current_leader_of_its_response() -> None:
    """KIP-951: no node tells of the move, but the one that leads no more."""
    with Broker(REPLICATED, nodes=3) as broker:
        broker.create_topic("t", 1)
        broker.journal.on()
        for node in (1, 2, 3):
            broker.make_stale(node)
        before = broker.leader("t") or 0
        after = before % 3 + 1
        broker.move_leader("t", after)
        assert sent(broker) == "offset 0"
        assert [each.node_id for each in broker.requests("Produce")] == [before, after]


def test_a_java_member_survives_a_moved_coordinator_an_eviction_a_rebalance_and_a_truncation(tmp_path: Path) -> None:
    with Broker({**REPLICATED, "group.min.session.timeout.ms": 1000}, nodes=3) as broker:
        broker.journal.on()
        broker.produce("t", "first")
        errors = tmp_path / "stderr"
        member = Member("java", [*java_member(), broker.bootstrap_servers, "g", "t", "range"], errors)
        try:
            assert broker.wait_for_commit("g", "t", timeout="60 s") == 1

            broker.move_coordinator((broker.coordinator(group="g") or 0) % 3 + 1, group="g")
            broker.produce("t", "lost")
            assert broker.wait_for_commit("g", "t", offset=2, timeout="60 s") == 2
            assert broker.requests(error="NOT_COORDINATOR")

            for verb in (broker.evict, broker.force_rebalance):
                assigned = len(member.assignments)
                broker.wait_for_group("g", 1, timeout="60 s")
                verb("g")
                until(partial(has_more, member, assigned))

            broker.truncate("t", 1)
            broker.produce("t", "other")
            until(lambda: "other" in member.read())
            assert broker.requests("OffsetForLeaderEpoch")
            member.leave()
        finally:
            member.end()
        assert member.read() == {"first", "lost", "other"}, errors.read_text()
