"""Nodes that go and come, leaders and coordinators that move, logs that lose their ends: how real clients take it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from minibroker.protocol.errors import KafkaError as Refusal
from minibroker.testing import Broker
from tests.testing.support import until

pytestmark = pytest.mark.usefixtures("leaves_sockets")

REPLICATED = {"default.replication.factor": 3, "offsets.topic.replication.factor": 3}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(REPLICATED, nodes=3) as broker:
        broker.journal.on()
        broker.produce("t", "first")
        yield broker


def settings(broker: Broker, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "reconnect.backoff.ms": 20, **more}


def producer_of(broker: Broker) -> Producer:
    return Producer(settings(broker, **{"retry.backoff.ms": 20, "topic.metadata.refresh.interval.ms": 500}))


def produced(producer: Producer, value: str) -> bool:
    producer.produce("t", value)
    return producer.flush(20) == 0


def leader(broker: Broker) -> int:
    found = broker.leader("t")
    assert found is not None
    return found


def port(broker: Broker, node: int) -> int:
    return int(broker.bootstrap_servers.split(",")[node - 1].rpartition(":")[2])


@pytest.mark.parametrize("end", ["stop_node", "kill_node"])
def test_another_node_leads_while_one_is_stopped(broker: Broker, end: str) -> None:
    producer, gone = producer_of(broker), leader(broker)
    assert produced(producer, "a")
    getattr(broker, end)(gone)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port(broker, gone)))
    assert leader(broker) != gone
    assert produced(producer, "b")
    broker.start_node(gone)
    socket.create_connection(("127.0.0.1", port(broker, gone))).close()
    assert produced(producer, "c")
    assert [record.text for record in broker.records("t")] == ["first", "a", "b", "c"]
    epochs = [record.leader_epoch for record in broker.records("t")]
    assert epochs == sorted(epochs) and epochs[-1] > epochs[0]


@pytest.mark.parametrize("end", ["stop_node", "kill_node"])
def test_kafka_python_survives_a_stopped_node(broker: Broker, end: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, reconnect_backoff_ms=20)
    producer.send("t", b"a").get(20)
    gone = leader(broker)
    getattr(broker, end)(gone)
    producer.send("t", b"b").get(20)
    broker.start_node(gone)
    broker.move_leader("t", gone)
    producer.send("t", b"c").get(20)
    producer.close()
    assert broker.requests("Produce")[-1].node_id == gone
    assert [record.text for record in broker.records("t")] == ["first", "a", "b", "c"]


def test_a_paused_node_answers_when_it_resumes(broker: Broker) -> None:
    producer, paused = producer_of(broker), leader(broker)
    assert produced(producer, "a")
    broker.pause_node(paused)
    reported: list[object] = []
    producer.produce("t", "b", on_delivery=lambda error, _: reported.append(error))
    producer.poll(0.3)
    assert reported == [] and len(broker.records("t")) == 2
    broker.resume_node(paused)
    producer.flush(20)
    assert reported == [None]
    assert [record.text for record in broker.records("t")] == ["first", "a", "b"]


def test_a_paused_node_holds_the_responses_of_waiting_requests(broker: Broker) -> None:
    patient = {"group.id": "g", "fetch.wait.max.ms": 30_000, "socket.timeout.ms": 60_000}
    consumer, paused = Consumer(settings(broker, **patient)), leader(broker)
    consumer.assign([TopicPartition("t", 0, 1)])
    assert consumer.poll(0.1) is None
    (waiting,) = broker.wait_for_requests("Fetch", where=lambda each: each.outcome == "open", timeout="20 s")
    broker.pause_node(paused)
    broker.produce("t", "second")  # which is what the request waits for
    assert consumer.poll(0.5) is None and waiting.outcome == "open"
    broker.resume_node(paused)
    message = consumer.poll(20)
    assert message is not None and message.value() == b"second" and waiting.outcome == "answered"
    consumer.close()


def test_a_producer_follows_a_moved_leader(broker: Broker) -> None:
    producer, before = producer_of(broker), leader(broker)
    assert produced(producer, "a")
    after = before % 3 + 1
    broker.move_leader("t", after)
    assert leader(broker) == after
    assert produced(producer, "b")
    (refused,) = broker.requests("Produce", error="NOT_LEADER_OR_FOLLOWER")
    hint = refused.answer.responses[0].partition_responses[0].current_leader
    assert hint is not None and (hint.leader_id, refused.node_id) == (after, before)
    assert {node.node_id for node in refused.answer.node_endpoints} == {after}


def test_moving_leadership_to_a_node_without_a_replica_gives_it_one() -> None:
    with Broker(nodes=2) as broker:
        broker.produce("t", "a")
        other = 3 - leader(broker)
        broker.move_leader("t", other)
        partition = broker.running.cluster.image.topics["t"].partitions[0]
        assert partition.leader_id == other and other in partition.isr
        assert broker.produce("t", "b") == 1


def test_a_producer_waits_while_its_partition_has_no_leader(broker: Broker) -> None:
    producer = producer_of(broker)
    assert produced(producer, "a")
    broker.leave_leaderless("t")
    assert broker.leader("t") is None
    late = threading.Timer(0.3, broker.elect_leaders)
    late.start()
    assert produced(producer, "b")
    late.join()
    assert [record.text for record in broker.records("t")] == ["first", "a", "b"]


def test_a_coordinator_moves_and_its_members_find_it(broker: Broker) -> None:
    """Its heartbeat learns of the move. A commit would wait for the next coordinator, and librdkafka 2.16 fails what
    waits when it learns the address, takes that for the coordinator's failure, and forgets it again (its issue 3645):
    with commits at short intervals that can go on for minutes."""
    more = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 100}
    consumer = Consumer(settings(broker, **more))
    consumer.subscribe(["t"])
    assert consumer.consume(1, 20)[0].value() == b"first"
    before = broker.coordinator(group="g")
    assert before is not None
    after = before % 3 + 1
    broker.move_coordinator(after, group="g")
    assert broker.coordinator(group="g") == after
    broker.produce("t", "a")
    assert consumer.consume(1, 20)[0].value() == b"a"
    until(lambda: consumer.poll(0.05) or broker.requests("Heartbeat", node=after, where=lambda each: not each.errors))
    assert broker.requests("Heartbeat", node=before, error="NOT_COORDINATOR")
    consumer.commit(asynchronous=False)
    assert broker.wait_for_commit("g", "t") == 2
    consumer.close()


def test_a_transactional_producer_finds_its_coordinator(broker: Broker) -> None:
    producer = Producer(settings(broker, **{"transactional.id": "x"}))
    producer.init_transactions(20)
    before = broker.coordinator(transactional_id="x")
    assert before is not None
    broker.move_coordinator(before % 3 + 1, transactional_id="x")
    producer.begin_transaction()
    producer.produce("t", "a")
    producer.commit_transaction(20)
    assert broker.records("t")[-1].transaction == "committed"
    with pytest.raises(ValueError):
        broker.coordinator()


def test_stale_metadata_misleads_a_client_and_leader_hints_correct_it(broker: Broker) -> None:
    for node in (1, 2, 3):
        broker.make_stale(node)
    before = leader(broker)
    broker.move_leader("t", before % 3 + 1)
    producer = producer_of(broker)
    producer.produce("t", "a")
    broker.wait_for_requests("Produce", error="NOT_LEADER_OR_FOLLOWER", timeout="20 s")
    for node in (1, 2, 3):
        broker.refresh(node)
    assert producer.flush(20) == 0
    assert [record.text for record in broker.records("t")] == ["first", "a"]


def test_a_consumer_fetches_from_a_follower_in_its_rack() -> None:
    rack_aware = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with Broker({**REPLICATED, **rack_aware, "broker.rack": "a,b,c"}, nodes=3) as broker:
        broker.journal.on()
        broker.produce("t", "first")
        broker.move_leader("t", 1)
        consumer = Consumer(settings(broker, **{"group.id": "g", "client.rack": "b"}))
        consumer.assign([TopicPartition("t", 0, 0)])
        assert consumer.consume(1, 20)[0].value() == b"first"
        with_records = broker.requests("Fetch", where=lambda each: b"first" in each.answer_bytes)
        assert {each.node_id for each in with_records} == {2}
        broker.kill_node(2)
        broker.produce("t", "second")
        assert consumer.consume(1, 20)[0].value() == b"second"
        consumer.close()


def test_a_consumer_detects_lost_records_by_the_leader_epoch(broker: Broker) -> None:
    broker.produce("t", "lost", "lost too")
    consumer = Consumer(
        settings(broker, **{"group.id": "g", "auto.offset.reset": "earliest", "enable.partition.eof": True})
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in consumer.consume(3, 20)] == [b"first", b"lost", b"lost too"]
    assert broker.truncate("t", 1) > 0
    broker.produce("t", "other")
    found: list[Any] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() != KafkaError._PARTITION_EOF:
                found.append(error.code())
        return b"other" in found

    until(read)
    assert b"lost" not in found
    consumer.close()
    assert [record.text for record in broker.records("t")] == ["first", "other"]


def test_a_fetch_after_a_truncation_gets_the_diverging_epoch(broker: Broker) -> None:
    broker.produce("t", "lost", "lost too")
    consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    assert [next(consumer).value for _ in range(3)] == [b"first", b"lost", b"lost too"]
    broker.truncate("t", 1)
    broker.produce("t", "other")
    assert next(consumer).value == b"other"
    assert broker.requests("Fetch", error="FENCED_LEADER_EPOCH") and broker.requests("OffsetForLeaderEpoch")
    consumer.close()


def test_consumers_continue_in_a_new_leader_epoch(broker: Broker) -> None:
    """They learn that their epoch is fenced, ask where it ended, and find that they have lost nothing."""
    consumer = Consumer(settings(broker, **{"group.id": "g"}))
    consumer.assign([TopicPartition("t", 0, 0)])
    assert consumer.consume(1, 20)[0].value() == b"first"
    other = KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    assert next(other).value == b"first"
    epoch = broker.begin_epoch("t")
    broker.produce("t", "second")
    assert consumer.consume(1, 20)[0].value() == b"second"
    assert next(other).value == b"second"
    for seen in (broker.requests("Fetch", error="FENCED_LEADER_EPOCH"), broker.requests("OffsetForLeaderEpoch")):
        assert {str(each.client_id).partition("-")[0] for each in seen} == {"rdkafka", "kafka"}
    assert broker.records("t")[-1].leader_epoch == epoch
    consumer.close()
    other.close()


def test_librdkafka_finds_a_leader_by_hints_missing_in_metadata(broker: Broker) -> None:
    """KIP-951: no node tells of the move, but the one that leads no more."""
    for node in (1, 2, 3):
        broker.make_stale(node)
    before = leader(broker)
    after = before % 3 + 1
    broker.move_leader("t", after)
    assert produced(producer_of(broker), "a")
    assert [each.node_id for each in broker.requests("Produce")] == [before, after]


def test_a_reset_restarts_all_nodes(broker: Broker) -> None:
    broker.kill_node(2)
    broker.pause_node(3)
    broker.make_stale(1)
    broker.reset()
    assert sorted(broker.running.cluster.nodes) == [1, 2, 3]
    assert produced(producer_of(broker), "a")
    socket.create_connection(("127.0.0.1", port(broker, 2))).close()
    broker.journal.off()
    assert broker.interceptors == []


def test_an_error_says_that_no_node_is_running(broker: Broker) -> None:
    for node in (1, 2, 3):
        broker.kill_node(node)
    for call in (lambda: broker.produce("t", "a"), lambda: broker.create_topic("u")):
        with pytest.raises(Refusal, match="all nodes are away"):
            call()
    broker.start_node(3)  # the last one in sync
    assert broker.produce("t", "a") == 1


def test_unknown_nodes_and_topics_are_errors(broker: Broker) -> None:
    calls: list[Callable[[], object]] = [
        lambda: broker.stop_node(9),
        lambda: broker.pause_node(9),
        lambda: broker.start_node(1),
        lambda: broker.move_leader("t", 9),
        lambda: broker.move_leader("unknown", 1),
        lambda: broker.leader("t", 5),
    ]
    for call in calls:
        with pytest.raises(Refusal):
            call()
