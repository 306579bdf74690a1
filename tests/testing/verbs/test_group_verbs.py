"""Groups and transactions in the hand of a test: real members rebalance, real producers are fenced and wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.testing import Broker
from tests.clients.streams_members import streams_member
from tests.testing.support import settings, until

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        broker.produce("t", "a")
        yield broker


class Member:
    """A consumer, and how often it was given partitions and lost them."""

    def __init__(self, broker: Broker, protocol: str) -> None:
        more = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        if protocol == "classic":
            more["heartbeat.interval.ms"] = 50  # type: ignore[assignment]
        self.assigned = self.gone = 0
        self.consumer = Consumer(settings(broker, **more))
        self.consumer.subscribe(["t"], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.consumer.close()

    def _assign(self, *_: object) -> None:
        self.assigned += 1

    def _revoke(self, *_: object) -> None:
        self.gone += 1

    def _poll(self) -> None:
        while not self._stop.is_set():
            self.consumer.poll(0.02)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_evicted_by_a_test_rejoins(broker: Broker, protocol: str) -> None:
    with Member(broker, protocol) as member:
        until(lambda: member.assigned == 1)
        (member_id,) = broker.wait_for_group("g", 1, timeout="20 s")
        assert broker.evict("g", member_id) == [member_id]
        until(lambda: member.assigned == 2)
        assert member.gone >= 1
        (again,) = broker.wait_for_group("g", 1, timeout="20 s")
        assert broker.requests(error="UNKNOWN_MEMBER_ID") and (again != member_id or protocol == "consumer")


def test_a_rebalance_is_forced_on_classic_members(broker: Broker) -> None:
    with Member(broker, "classic") as member:
        until(lambda: member.assigned == 1)
        broker.wait_for_group("g", 1, timeout="20 s")
        broker.force_rebalance("g")
        until(lambda: member.assigned == 2)
        assert member.gone == 1
    consumer = KafkaConsumer(
        "t",
        group_id="k",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
        session_timeout_ms=6000,
    )
    next(consumer)
    joins = len(broker.requests("JoinGroup"))
    broker.force_rebalance("k")
    until(lambda: consumer.poll(50) or len(broker.requests("JoinGroup")) > joins)
    consumer.close()


def test_a_rebalance_is_forced_on_consumer_protocol_members(broker: Broker) -> None:
    with Member(broker, "consumer") as member:
        until(lambda: member.assigned == 1)
        (member_id,) = broker.wait_for_group("g", 1, timeout="20 s")
        before = broker.loop.call_on_loop(lambda: broker.running.cluster.groups.get_consumer_group("g").epoch)
        broker.force_rebalance("g")
        broker.wait_for_group("g", 1, timeout="20 s")
        assert broker.loop.call_on_loop(lambda: broker.running.cluster.groups.get_consumer_group("g").epoch) > before


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_slow_joins_leave_a_member_without_partitions_until_the_delay_is_over(broker: Broker, protocol: str) -> None:
    fault = broker.slow_joins("g", "1 hour")
    with Member(broker, protocol) as member:
        fault.wait_for_hits(1, "20 s")
        assert member.assigned == 0
        fault.remove()
        broker.clock.advance("1 hour")
        until(lambda: member.assigned)


def test_a_producer_fenced_by_a_test_cannot_commit(broker: Broker) -> None:
    for begun in (True, False):
        producer = Producer(settings(broker, **{"transactional.id": "x"}))
        producer.init_transactions(20)
        producer.begin_transaction()
        if begun:
            producer.produce("t", "lost")
            producer.flush(20)
        broker.fence("x")
        if not begun:
            producer.produce("t", "lost")
        with pytest.raises(KafkaException) as raised:
            producer.commit_transaction(20)
        assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()
    assert all(record.transaction == "aborted" for record in broker.records("t") if record.text == "lost")


def test_a_fenced_producer_cannot_continue_after_aborting(broker: Broker) -> None:
    """The epoch that aborts is not the next one, as the Java client would have it with the transactions of KIP-890."""
    producer = Producer(settings(broker, **{"transactional.id": "x"}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", "lost")
    producer.flush(20)
    transactions = broker.running.cluster.transactions
    before = transactions.get_transaction("x")
    broker.fence("x")
    until(lambda: broker.transaction_state("x") == "CompleteAbort")
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        broker.loop.call_on_loop(
            lambda: transactions.end_transaction("x", (before.producer_id, before.producer_epoch), False, 2)
        )


def test_a_transaction_is_held_before_its_markers_are_written(broker: Broker) -> None:
    producer = Producer(settings(broker, **{"transactional.id": "x"}))
    producer.init_transactions(20)
    broker.hold("x")
    producer.begin_transaction()
    producer.produce("t", "b")
    producer.commit_transaction(20)
    assert broker.transaction_state("x") == "PrepareCommit"
    assert broker.records("t")[-1].transaction == "open"
    consumer = Consumer(settings(broker, **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["t"])
    assert [message.value() for message in consumer.consume(2, 1.5)] == [b"a"]
    broker.release("x")
    assert [message.value() for message in consumer.consume(1, 20)] == [b"b"]
    consumer.close()
    until(lambda: broker.transaction_state("x") == "CompleteCommit")


def test_a_transaction_held_as_ongoing_is_not_ended_until_it_is_released(broker: Broker) -> None:
    producer = Producer(settings(broker, **{"transactional.id": "x"}))
    producer.init_transactions(20)
    broker.hold("x", "ongoing")
    producer.begin_transaction()
    producer.produce("t", "b")
    committing = threading.Thread(target=lambda: producer.commit_transaction(20))
    committing.start()
    broker.wait_for_requests("EndTxn", timeout="20 s")
    assert broker.transaction_state("x") == "Ongoing"
    broker.release("x")
    committing.join()
    broker.expect("t", 2)
    broker.journal.off()
    assert broker.interceptors == []


def test_unknown_groups_and_topics_are_errors(broker: Broker) -> None:
    for call in (
        lambda: broker.evict("g"),
        lambda: broker.force_rebalance("g"),
        lambda: broker.fence("x"),
        lambda: broker.transaction_state("x"),
    ):
        with pytest.raises(KafkaError):
            call()
    with pytest.raises(ValueError):
        broker.hold("x", "somehow")  # type: ignore[arg-type]


def test_a_kafka_streams_group_is_described_and_rebalanced(broker: Broker) -> None:
    with streams_member(broker.bootstrap_servers, "app", "t") as member:
        (member_id,) = broker.wait_for_group("app", 1)
        group = broker.streams_group("app")
        assert (group.state, group.topology_epoch, group.source_topics) == ("Stable", 1, ["t"])
        (told,) = group.members
        assert (told.member, told.client_id, told.process) == (member_id, "streams", "process")
        assert (told.active, told.standby, told.warmup) == ({"0": [0]}, {}, {})
        broker.force_rebalance("app")
        assert broker.streams_group("app").epoch == group.epoch + 1
        broker.wait_for_group("app", state="Assigning")
        assert member.beat().error_code == 0
        assert broker.streams_group("app").assignment_epoch == group.epoch + 1
        assert broker.evict("app") == [member_id]
        assert member.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.streams_group("app").members == []
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        broker.streams_group("no")


def test_committed_offsets_and_lag_are_returned(broker: Broker) -> None:
    broker.create_topic("counted", partitions=2)
    broker.produce("counted", "a", "b", "c")
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        broker.lag("counters", "counted")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "counters", "enable.auto.commit": False}
    )
    consumer.commit(offsets=[TopicPartition("counted", 0, 1)], asynchronous=False)
    consumer.close()
    assert broker.committed("counters") == {"counted": {0: 1}}
    assert broker.lag("counters", "counted") == {0: 2, 1: 0}
    with pytest.raises(KafkaError, match="there is no topic nothing"):
        broker.lag("counters", "nothing")
