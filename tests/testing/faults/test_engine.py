"""Faults at work, and what real clients make of them: what they retry and report, and what is in the log then."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.testing import Broker
from minibroker.testing.faults.rules import FaultError
from minibroker.testing.seen.waiting import Expired

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        yield broker


def librdkafka(broker: Broker, **more: object) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 20}
    return Producer({**settings, **more})


def sent(producer: Producer, value: str = "v", topic: str = "t", partition: int = 0) -> KafkaError | None:
    """Return what the producer reports."""
    reported: list[KafkaError | None] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: reported.append(error))
    producer.flush(20)
    (error,) = reported
    return error


def python_consumer(broker: Broker, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", retry_backoff_ms=20, **more
    )


def read(broker: Broker, **more: object) -> list[bytes | None | KafkaError]:
    """Return what librdkafka reads of the topic until its end, errors included."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer({**settings, "enable.partition.eof": True, "fetch.error.backoff.ms": 20, **more})
    consumer.assign([TopicPartition("t", 0, 0)])
    found: list[bytes | None | KafkaError] = []
    until = time.monotonic() + 20
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            break
        found.append(message.value() if error is None else error)
        if error is not None:
            break
    consumer.close()
    return found


# --- errors -----------------------------------------------------------------------------------------


def test_an_error_before_the_append_is_retried_without_a_duplicate(broker: Broker) -> None:
    fault = broker.faults.add(api="Produce", topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert sent(librdkafka(broker)) is None
    assert (fault.hits, fault.matches) == (2, 3)
    assert [record.text for record in broker.records("t")] == ["v"]


def test_an_error_after_the_append_duplicates_a_record_without_idempotence(broker: Broker) -> None:
    broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", when="after", once=True)
    assert sent(librdkafka(broker)) is None
    assert [record.text for record in broker.records("t")] == ["v", "v"]


def test_an_error_after_the_append_does_not_affect_an_idempotent_producer(broker: Broker) -> None:
    broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", when="after", once=True)
    assert sent(librdkafka(broker, **{"enable.idempotence": True})) is None
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20)
    broker.faults.add(api="Produce", error="REQUEST_TIMED_OUT", when="after", once=True)
    producer.send("t", b"w").get(20)
    producer.close()
    assert [record.text for record in broker.records("t")] == ["v", "w"]


def test_a_non_retriable_error_is_reported_to_the_client(broker: Broker) -> None:
    broker.faults.add(api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
    error = sent(librdkafka(broker))
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(PythonKafkaError, match="TopicAuthorizationFailed"):
        producer.send("t", b"v").get(20)
    producer.close()
    assert broker.records("t") == []


def test_only_the_faulty_partition_of_a_request_fails() -> None:
    with Broker({"num.partitions": 3}) as broker:
        broker.produce("t", "first")
        broker.journal.on()
        fault = broker.faults.add(api="Produce", topic="t", partition=1, error="MESSAGE_TOO_LARGE")
        reported: dict[int, KafkaError | None] = {}
        producer = librdkafka(broker, **{"linger.ms": 200})
        for partition in range(3):
            producer.produce(
                "t", "v", partition=partition, on_delivery=lambda e, m: reported.update({m.partition(): e})
            )
        producer.flush(20)
        assert {partition for partition, error in reported.items() if error} == {1}
        assert fault.hits >= 1
        assert [record.partition for record in broker.records("t") if record.text == "v"] == [0, 2]


def test_a_fetch_session_gets_an_error_immediately_and_continues(broker: Broker) -> None:
    broker.produce("t", "a")
    consumer = python_consumer(broker, fetch_max_wait_ms=10_000)
    assert next(consumer).value == b"a"
    consumer.poll(100)
    fault = broker.faults.add(api="Fetch", topic="t", error="NOT_LEADER_OR_FOLLOWER", once=True)
    broker.produce("t", "b")
    assert next(consumer).value == b"b"
    broker.produce("t", "c")
    assert next(consumer).value == b"c"
    consumer.close()
    assert fault.hits == 1 or fault.matches == 0


def test_an_unavailable_coordinator_is_looked_up_again(broker: Broker) -> None:
    broker.produce("t", "a")
    fault = broker.faults.add(api="FindCoordinator", group="g", error="COORDINATOR_NOT_AVAILABLE", times=2)
    other = broker.faults.add(api="JoinGroup", group="other", close="before")
    consumer = python_consumer(broker, group_id="g")
    assert next(consumer).value == b"a"
    consumer.close()
    assert (fault.hits, other.hits) == (2, 0)


def test_a_fenced_producer_reports_the_error(broker: Broker) -> None:
    producer = librdkafka(broker, **{"transactional.id": "x"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("t", "v")
    broker.faults.add(api="EndTxn", transactional_id="x", error="INVALID_PRODUCER_EPOCH")
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(20)
    assert raised.value.args[0].fatal()


# --- connections and answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        {"close": "before"},
        {"close": "after"},
        {"answer": "half"},
        {"answer": "wrong-correlation-id"},
        {"delay": "50 ms"},
        {"throttle": "20 ms"},
    ],
    ids=str,
)
def test_producers_survive_network_faults_without_duplicates(broker: Broker, words: dict[str, Any]) -> None:
    settings = {"enable.idempotence": True, "socket.timeout.ms": 1000, "reconnect.backoff.ms": 10}
    fault = broker.faults.add(api="Produce", once=True, **words)
    assert sent(librdkafka(broker, **settings)) is None
    assert fault.hits == 1
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        retry_backoff_ms=20,
        reconnect_backoff_ms=10,
        request_timeout_ms=2000,
    )
    broker.faults.add(api="Produce", once=True, **words)
    producer.send("t", b"w").get(20)
    producer.close()
    assert [record.text for record in broker.records("t")] == ["v", "w"]


def test_a_missing_response_causes_a_client_timeout(broker: Broker) -> None:
    fault = broker.faults.add(api="Produce", answer="silence")
    settings = {"message.timeout.ms": 300, "socket.timeout.ms": 200}
    error = sent(librdkafka(broker, **settings))
    assert error is not None and error.code() == KafkaError._MSG_TIMED_OUT
    assert broker.records("t") == []
    fault.remove()
    broker.faults.add(api="Produce", answer="silence", when="after", once=True)
    assert sent(librdkafka(broker, **{"socket.timeout.ms": 200, "enable.idempotence": True}), "w") is None
    assert [record.text for record in broker.records("t")] == ["w"]


def test_a_fault_counts_a_hit_while_it_still_holds_the_request(broker: Broker) -> None:
    broker.create_topic("t")
    fault = broker.faults.add(api="Produce", delay="1 hour")
    broker.clock.freeze()  # no chore of the broker's has it look again
    producer = librdkafka(broker)
    producer.produce("t", "v")
    fault.wait_for_hits(1, "3 s")
    fault.remove()
    broker.clock.advance("1 hour")
    assert producer.flush(20) == 0


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="before"),
        pytest.param({"when": "after"}, id="after", marks=pytest.mark.thorough),
        pytest.param({"delay": "10 ms"}, id="delayed", marks=pytest.mark.thorough),
    ],
)
def test_a_disconnected_silenced_client_leaves_no_trace(broker: Broker, more: dict[str, str]) -> None:
    broker.create_topic("t")
    fault = broker.faults.add(api="Produce", answer="silence", **more)
    producer = librdkafka(broker, **{"request.timeout.ms": 1000, "message.timeout.ms": 2500, "socket.timeout.ms": 1000})
    producer.produce("t", "v")
    fault.wait_for_hits(1, "20 s")
    while not fault.held:
        producer.poll(0.01)
    producer.flush(20)
    broker.wait_for_requests("Produce", fault.hits, where=lambda each: each.outcome == "lost", timeout="20 s")
    assert fault.held == 0


def test_a_restore_does_not_rerun_a_produce_that_got_no_response(broker: Broker) -> None:
    broker.create_topic("t")
    fault = broker.faults.add(api="Produce", answer="silence", when="after")
    producer = librdkafka(broker, retries=0)
    reported: list[KafkaError | None] = []
    producer.produce("t", "v", on_delivery=lambda error, _: reported.append(error))
    fault.wait_for_hits(1, "20 s")
    broker.restore(broker.snapshot())
    assert producer.flush(20) == 0
    (error,) = reported  # its connection was cut
    assert error is not None
    assert [record.text for record in broker.records("t")] == ["v"]


def test_a_delay_fault_is_measured_by_the_brokers_clock(broker: Broker) -> None:
    broker.produce("t", "first")
    fault = broker.faults.add(api="Produce", delay="1 hour")
    producer = librdkafka(broker)
    reported: list[object] = []
    producer.produce("t", "v", on_delivery=lambda error, _: reported.append(error))
    polling = threading.Thread(target=lambda: producer.flush(20))
    polling.start()
    fault.wait_for_hits(1, "20 s")
    assert len(broker.records("t")) == 1
    broker.clock.advance("1 hour")
    polling.join()
    assert reported == [None]


def test_an_error_disconnects_a_client_with_acks_0(broker: Broker) -> None:
    producer = librdkafka(broker, **{"acks": 0})
    broker.produce("t", "first")
    broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", once=True)
    sent(producer)
    broker.wait_for_requests("Produce", where=lambda exchange: exchange.outcome == "lost")


# --- damage -----------------------------------------------------------------------------------------


def test_a_consumer_with_check_crcs_stops_at_a_wrong_checksum(broker: Broker) -> None:
    broker.produce("t", "a")
    broker.produce("t", "b")
    broker.faults.add(api="Fetch", topic="t", corrupt="crc")
    (error,) = read(broker, **{"check.crcs": True})
    assert isinstance(error, KafkaError) and error.code() == KafkaError._BAD_MSG
    consumer = python_consumer(broker)
    with pytest.raises(PythonKafkaError):
        next(consumer)
    consumer.close()
    broker.faults.clear()
    assert read(broker, **{"check.crcs": True}) == [b"a", b"b"]
    assert [record.text for record in broker.records("t")] == ["a", "b"]


def test_corrupt_records_are_reported_by_the_consumer(broker: Broker) -> None:
    broker.produce("t", "a")
    broker.faults.add(api="Fetch", corrupt="codec")
    (error,) = read(broker)
    assert isinstance(error, KafkaError)
    consumer = python_consumer(broker)
    with pytest.raises(Exception, match="(?i)gzip|crc|corrupt|compress"):
        next(consumer)
    consumer.close()


def test_an_invalid_batch_length_stops_a_consumer(broker: Broker) -> None:
    broker.produce("t", "a")
    fault = broker.faults.add(api="Fetch", corrupt="length")
    consumer = python_consumer(broker)
    with pytest.raises(PythonKafkaError):
        next(consumer)
    consumer.close()
    fault.remove()
    assert read(broker) == [b"a"]


@pytest.mark.parametrize("how", ["truncated", "offsets", "crc"])
def test_consumers_survive_temporary_corruption(broker: Broker, how: str) -> None:
    broker.produce("t", "a")
    broker.produce("t", "b")
    fault = broker.faults.add(api="Fetch", corrupt=how, once=True)
    assert [each for each in read(broker) if isinstance(each, bytes)][:1] == [b"a"]
    assert fault.hits == 1


# --- triggers and handles -----------------------------------------------------------------------------


def test_faults_strike_the_configured_number_of_times(broker: Broker) -> None:
    nth = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", nth=2)
    producer = librdkafka(broker)
    assert [sent(producer) for _ in range(3)] == [None] * 3
    assert (nth.hits, nth.matches) == (1, 4)


def test_random_faults_are_determined_by_the_seed(broker: Broker) -> None:
    def hits(seed: int) -> list[int]:
        fault = broker.faults.add(api="Produce", delay=0.01, probability=0.5, seed=seed)
        producer = librdkafka(broker)
        struck = []
        for _ in range(12):
            assert sent(producer) is None
            struck.append(fault.hits)
        fault.remove()
        return struck

    first = hits(7)
    assert first == hits(7) and 0 < first[-1] < 12


def test_faults_match_requests_by_their_properties() -> None:
    with Broker(nodes=2) as broker:
        broker.journal.on()
        words: list[dict[str, Any]] = [
            {"client_id": "me"},
            {"version": "0+", "api": "Metadata"},
            {"where": lambda request: type(request).__name__ == "ApiVersionsRequest"},
        ]
        faults = [broker.faults.add(delay=0.01, **each) for each in words]
        nobody = [broker.faults.add(delay=0.01, **each) for each in ({"client_id": "x"}, {"node": 7}, {"version": 99})]
        assert sent(librdkafka(broker, **{"client.id": "me"})) is None
        assert all(fault.hits for fault in faults)
        assert not any(fault.matches for fault in nobody)
        exchange = broker.requests("ApiVersions")[0]
        assert exchange.faults and "delay 0.01 s" in str(exchange)


def test_hits_of_a_fault_can_be_awaited_and_a_removed_fault_intercepts_nothing(broker: Broker) -> None:
    fault = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", once=True)
    with pytest.raises(Expired, match="1 hit was expected of <fault 1: api Produce"):
        fault.wait_for_hits(1, "10 ms")
    assert sent(librdkafka(broker)) is None
    fault.wait_for_hits(1)
    assert broker.faults.all() == [fault]
    fault.remove()
    fault.remove()
    assert broker.faults.all() == []
    broker.journal.off()
    assert broker.interceptors == []


def test_faults_survive_a_restart_and_end_with_a_reset(broker: Broker) -> None:
    broker.faults.add(api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
    broker.restart()
    assert sent(librdkafka(broker)) is not None
    broker.reset()
    assert broker.faults.all() == []
    assert sent(librdkafka(broker)) is None


def test_several_faults_are_added_all_or_none(broker: Broker) -> None:
    with pytest.raises(FaultError):
        broker.faults.add_all([{"close": "before"}, {"close": "now"}])
    assert broker.faults.all() == []
    assert len(broker.faults.add_all([{"close": "before", "api": "Fetch"}, {"delay": 1, "api": "Fetch"}])) == 2


async def test_faults_affect_a_client_in_the_same_loop() -> None:
    async with Broker() as broker:
        fault = broker.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", once=True)
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        await fault.await_for_hits()
        await producer.stop()


def test_a_failing_predicate_is_raised_where_a_test_waits_for_the_fault(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fault = broker.faults.add(api="Produce", where=lambda request: request.no_such_field, close="before")
    assert sent(librdkafka(broker)) is None
    with pytest.raises(AttributeError, match="no_such_field"):
        fault.wait_for_hits(timeout="20 s")
    assert "`where` raised AttributeError" in repr(fault) and fault.hits == 0
    assert caplog.records[0].name == "minibroker.faults" and caplog.records[0].exc_info is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"eror": "NOT_LEADER_OR_FOLLOWER"}, "a fault has no 'eror'; it has .*where"),
        ({"close": "before", "partition": "0"}, "partition cannot be '0'"),
        ({"close": "before", "where": "x"}, "where cannot be 'x'"),
        ({"answer": "half", "when": "after"}, "when is for error and silence"),
        ({"api": "Produce", "error": "UNKNOWN_SERVER_ERROR", "level": "top"}, "Produce has no .* but at partition$"),
        ({"api": "Heartbeat", "error": "UNKNOWN_SERVER_ERROR", "level": "topic"}, "Heartbeat has no .* but at top$"),
    ],
)
def test_python_arguments_of_faults_are_validated(broker: Broker, words: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said):
        broker.faults.add(**words)
    assert broker.faults.add(api=("Produce", "Fetch"), topic=None, delay=timedelta(days=1)).rule.delay_ms == 86_400_000


def test_a_fault_with_a_topic_level_error_strikes_only_apis_with_such_errors(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    fault = broker.faults.add(error="UNKNOWN_SERVER_ERROR", level="topic", topic="t", times=1)
    assert sent(librdkafka(broker)) is None
    assert fault.hits == 1 and caplog.records == []
    assert [seen.api for seen in broker.requests(where=lambda seen: seen.faults)] == ["Metadata"]


def test_a_fetch_response_can_have_a_wrong_correlation_id(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.produce("t", "a")
    broker.faults.add(api="Fetch", answer="wrong-correlation-id", once=True)
    with socket.create_connection(tuple(broker.bootstrap_servers.split(":"))) as client:
        partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])])
        header = RequestHeader(request_api_key=1, request_api_version=4, correlation_id=7, client_id="c")
        frame = header.encode(get_request_header_version(ApiKey.FETCH, 4)) + request.encode(4)
        client.sendall(struct.pack(">i", len(frame)) + frame)
        size, correlation_id = struct.unpack(">ii", client.recv(8, socket.MSG_WAITALL))
        assert correlation_id == 7 + (1 << 30)  # not 8, which may be the next request of the client
        assert b"a" in client.recv(size - 4, socket.MSG_WAITALL)
    assert caplog.records == []
