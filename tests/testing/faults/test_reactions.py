"""Each word of a fault, as two clients that have nothing in common take it: librdkafka and kafka-python.

What faults do besides, whoever asks, is in `test_engine`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as LibrdkafkaTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from minibroker.protocol.errors import ErrorCode
from minibroker.testing import Broker
from minibroker.testing.seen.waiting import Expired

pytestmark = pytest.mark.usefixtures("leaves_sockets")

REFUSED = "TOPIC_AUTHORIZATION_FAILED"


class Client(Protocol):
    """A client's calls in a test. Each returns the name of the error that the client reports, or None."""

    name: str

    def __init__(self, broker: Broker) -> None: ...

    def send(self, value: str, topic: str = "t", partition: int = 0, **more: object) -> str | None:
        """Send a record, with settings as kafka-python names them."""

    def receive(self) -> str:
        """The first value of t-0, or the error's name."""

    def commit(self, group: str, offset: int) -> str | None:
        """Commit an offset of t-0."""

    def create(self, topic: str) -> str | None:
        """Create a topic."""

    def begin(self, transactional_id: str) -> tuple[str | None, Callable[[], None]]:
        """Begin a transaction and send a record in it; what commits it."""


class Librdkafka:
    name = "librdkafka"

    def __init__(self, broker: Broker) -> None:
        self.settings: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
        }

    def send(self, value: str, topic: str = "t", partition: int = 0, **more: object) -> str | None:
        settings = {name.replace("_", "."): setting for name, setting in more.items()}
        if "request.timeout.ms" in settings:
            settings["socket.timeout.ms"] = settings.pop("request.timeout.ms")
        producer = Producer({**self.settings, **settings})
        reported: list[Any] = []
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: reported.append(error))
        producer.flush(30)
        (error,) = reported
        return None if error is None else _named(error)

    def receive(self) -> str:
        consumer = Consumer({**self.settings, "group.id": "g", "check.crcs": True, "fetch.error.backoff.ms": 20})
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        error, value = message.error(), message.value()
        return _named(error) if error is not None else (value or b"").decode()

    def commit(self, group: str, offset: int) -> str | None:
        consumer = Consumer({**self.settings, "group.id": group})
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        except KafkaException as refused:
            return _named(refused.args[0])
        finally:
            consumer.close()
        return None

    def create(self, topic: str) -> str | None:
        admin = AdminClient(self.settings)
        try:
            admin.create_topics([LibrdkafkaTopic(topic, 1)])[topic].result(30)
        except KafkaException as refused:
            return _named(refused.args[0])
        return None

    def begin(self, transactional_id: str) -> tuple[str | None, Callable[[], None]]:
        producer = Producer({**self.settings, "transactional.id": transactional_id})
        try:
            producer.init_transactions(30)
        except KafkaException as refused:
            return _named(refused.args[0]), _nothing
        producer.begin_transaction()
        producer.produce("t", "v")
        return None, lambda: producer.commit_transaction(30)


class KafkaPython:
    name = "kafka-python"

    def __init__(self, broker: Broker) -> None:
        self.settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 10,
        }

    def send(self, value: str, topic: str = "t", partition: int = 0, **more: object) -> str | None:
        producer = KafkaProducer(**{**self.settings, "enable_idempotence": False, **more})
        try:
            producer.send(topic, value.encode(), partition=partition).get(30)
        except PythonKafkaError as refused:
            return _named_by_code(refused)
        finally:
            producer.close()
        return None

    def receive(self) -> str:
        consumer = KafkaConsumer(**self.settings)
        where = PythonPartition("t", 0)
        consumer.assign([where])
        consumer.seek(where, 0)
        try:
            records = consumer.poll(30_000, max_records=1)
        except Exception as refused:
            return _named_by_code(refused)
        finally:
            consumer.close()
        (value,) = (record.value.decode() for each in records.values() for record in each)
        return str(value)

    def commit(self, group: str, offset: int) -> str | None:
        consumer = KafkaConsumer(group_id=group, enable_auto_commit=False, **self.settings)
        where = PythonPartition("t", 0)
        consumer.assign([where])
        try:
            consumer.commit({where: OffsetAndMetadata(offset, "", -1)})
        except PythonKafkaError as refused:
            return _named_by_code(refused)
        finally:
            consumer.close()
        return None

    def create(self, topic: str) -> str | None:
        admin = KafkaAdminClient(**self.settings)
        try:
            admin.create_topics([PythonTopic(topic, 1, 1)])
        except PythonKafkaError as refused:
            return _named_by_code(refused)
        finally:
            admin.close()
        return None

    def begin(self, transactional_id: str) -> tuple[str | None, Callable[[], None]]:
        producer = KafkaProducer(transactional_id=transactional_id, **self.settings)
        try:
            producer.init_transactions()
        except PythonKafkaError as refused:
            producer.close()
            return _named_by_code(refused), _nothing
        producer.begin_transaction()
        producer.send("t", b"v")

        def commit() -> None:
            producer.commit_transaction()
            producer.close()

        return None, commit


def _nothing() -> None:
    """There is no transaction to commit."""


def _named(error: Any) -> str:
    return str(error.name())


def _named_by_code(error: BaseException) -> str:
    code = getattr(error, "errno", None)
    return ErrorCode(code).name if code is not None and code > 0 else f"{type(error).__name__}: {error}"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture(params=[Librdkafka, KafkaPython], ids=["librdkafka", "kafka-python"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Client = request.param(broker)
    return made


def values(broker: Broker, topic: str = "t") -> list[str | None]:
    return [record.text for record in broker.records(topic)]


# --- whom it concerns -------------------------------------------------------------------------------


def test_a_fault_matches_an_api_version(broker: Broker, client: Client) -> None:
    assert client.send("a") is None
    version = broker.requests("Produce")[-1].version
    newer = broker.faults.add(api="Produce", version=f"{version + 1}+", error=REFUSED)
    assert client.send("b") is None
    broker.faults.add(api="Produce", version=version, error=REFUSED)
    assert client.send("c") == REFUSED
    assert (newer.matches, values(broker)) == (0, ["a", "b"])


@pytest.mark.parametrize("kind", [Librdkafka, KafkaPython])
def test_a_fault_matches_a_node(kind: type[Client]) -> None:
    with Broker({"num.partitions": 2}, nodes=2) as broker:
        broker.create_topic("t")
        for partition in (0, 1):
            broker.move_leader("t", partition + 1, partition)
        fault = broker.faults.add(api="Produce", node=2, error=REFUSED)
        client = kind(broker)
        assert [client.send("v", partition=partition) for partition in (0, 1)] == [None, REFUSED]
        assert (fault.hits, [record.partition for record in broker.records("t")]) == (1, [0])


def test_a_fault_matches_a_client(broker: Broker, client: Client) -> None:
    broker.faults.add(api="Produce", client_id="shop", error=REFUSED)
    assert client.send("a", client_id="shop") == REFUSED
    assert client.send("b", client_id="store") is None
    assert values(broker) == ["b"]


@pytest.mark.parametrize("about", [{"topic": "u"}, {"topic": "t", "partition": 1}], ids=["topic", "partition"])
def test_a_fault_matches_a_topic_or_a_partition(broker: Broker, client: Client, about: dict[str, Any]) -> None:
    broker.faults.add(api="Produce", error=REFUSED, **about)
    assert client.send("a") is None
    assert client.send("b", about["topic"], about.get("partition", 0)) == REFUSED
    assert values(broker) == ["a"] and values(broker, "u") == []


def test_a_fault_matches_a_group(broker: Broker, client: Client) -> None:
    broker.faults.add(api="OffsetCommit", group="a", error="GROUP_AUTHORIZATION_FAILED")
    assert client.commit("a", 7) == "GROUP_AUTHORIZATION_FAILED"
    assert client.commit("b", 7) is None
    assert broker.wait_for_commit("b", "t") == 7


def test_a_fault_matches_a_transactional_id(broker: Broker, client: Client) -> None:
    error = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    broker.faults.add(api="InitProducerId", transactional_id="a", error=error)
    assert client.begin("a")[0] == error
    refused, commit = client.begin("b")
    assert refused is None
    commit()
    assert [record.transaction for record in broker.records("t")] == ["committed"]


def test_a_fault_matches_by_a_predicate(broker: Broker, client: Client) -> None:
    broker.faults.add(api="Produce", where=lambda request: request.acks == 1, error=REFUSED)
    assert [client.send("a", acks=1), client.send("b", acks="all")] == [REFUSED, None]
    assert values(broker) == ["b"]


# --- errors, at each level, before the effect and after it --------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_returns_a_top_level_error(broker: Broker, client: Client, when: str) -> None:
    """The client retries the end of its transaction, which has ended already if the error came after it."""
    error = "COORDINATOR_LOAD_IN_PROGRESS"
    fault = broker.faults.add(api="EndTxn", error=error, level="top", when=when, once=True)
    refused, commit = client.begin("x")
    assert refused is None
    commit()
    assert fault.hits == 1 and len(broker.requests("EndTxn")) == 2
    assert [(record.text, record.transaction) for record in broker.records("t")] == [("v", "committed")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_returns_a_topic_error(broker: Broker, client: Client, when: str) -> None:
    broker.faults.add(api="CreateTopics", topic="new", error="POLICY_VIOLATION", level="topic", when=when)
    assert client.create("new") == "POLICY_VIOLATION"
    assert ("new" in broker.running.cluster.image.topics) is (when == "after")


def test_a_fault_returns_a_topic_error_in_metadata(broker: Broker, client: Client) -> None:
    fault = broker.faults.add(api="Metadata", topic="t", error="LEADER_NOT_AVAILABLE", level="topic", times=2)
    assert client.send("a") is None
    assert (fault.hits, values(broker)) == (2, ["a"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_returns_a_partition_error(broker: Broker, client: Client, when: str) -> None:
    error = "OFFSET_METADATA_TOO_LARGE"
    broker.faults.add(api="OffsetCommit", topic="t", partition=0, error=error, level="partition", when=when)
    assert client.commit("g", 7) == error
    if when == "after":
        assert broker.wait_for_commit("g", "t") == 7
    else:
        with pytest.raises(Expired):
            broker.wait_for_commit("g", "t", timeout="1 ms")


def test_a_fault_returns_a_top_level_error_of_a_fetch(broker: Broker, client: Client) -> None:
    broker.produce("t", "a")
    error = "FETCH_SESSION_ID_NOT_FOUND"
    fault = broker.faults.add(api="Fetch", error=error, level="top", once=True)
    if client.name == "librdkafka":  # it has no fetch sessions, and tells its user
        assert client.receive() == error
    assert client.receive() == "a"
    assert fault.hits == 1 and broker.requests("Fetch", error=error)


# --- connections, answers and time ---------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_suppresses_the_response(broker: Broker, client: Client, when: str) -> None:
    """The client gives up waiting and sends the record again; it is there once."""
    fault = broker.faults.add(api="Produce", answer="silence", when=when, once=True)
    assert client.send("a", request_timeout_ms=1000, enable_idempotence=True) is None
    assert (fault.hits, values(broker)) == (1, ["a"])


def test_a_delay_fault_is_measured_by_the_brokers_clock(broker: Broker, client: Client) -> None:
    fault = broker.faults.add(api="Produce", delay="1 min")
    reported: list[str | None] = []
    sending = threading.Thread(target=lambda: reported.append(client.send("a")))
    sending.start()
    fault.wait_for_hits(1, "20 s")
    assert (reported, values(broker)) == ([], [])
    broker.clock.advance("1 min")
    sending.join()
    assert (reported, values(broker)) == ([None], ["a"])


def test_a_client_reports_the_throttle_time_of_a_fault(broker: Broker) -> None:
    broker.faults.add(api="Produce", throttle="120 ms")
    events: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "throttle_cb": events.append})
    producer.produce("t", "a")
    assert producer.flush(30) == 0
    while not events:
        producer.poll(0.05)
    assert round(events[0].throttle_time, 3) == 0.12
    other = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    other.send("t", b"b").get(30)
    assert other.metrics()["producer-metrics"]["throttle-time-max"] == 120
    other.close()


# --- corrupt batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ("crc", {"librdkafka": "_BAD_MSG", "kafka-python": "CORRUPT_MESSAGE"}),
        ("codec", {"librdkafka": "_BAD_COMPRESSION", "kafka-python": "BadGzipFile"}),
        ("length", {"kafka-python": "CORRUPT_MESSAGE"}),
        ("truncated", {"kafka-python": "Failed to make progress"}),
        ("offsets", {"librdkafka": "a", "kafka-python": "a"}),
    ],
)
def test_a_fault_corrupts_a_batch(broker: Broker, client: Client, how: str, reported: dict[str, str]) -> None:
    """Librdkafka fetches again what it takes for the beginning of a batch, and reports nothing."""
    broker.produce("t", "a")
    broker.produce("t", "b")
    expected = reported.get(client.name)
    fault = broker.faults.add(api="Fetch", topic="t", corrupt=how, **({} if expected else {"times": 3}))
    assert (expected or "a") in client.receive()
    assert fault.hits >= (1 if expected else 3)
    fault.remove()
    assert client.receive() == "a"


# --- how often --------------------------------------------------------------------------------------------


def test_a_fault_strikes_only_the_second_request(broker: Broker, client: Client) -> None:
    fault = broker.faults.add(api="Produce", error=REFUSED, nth=2)
    assert [client.send(value) for value in "abc"] == [None, REFUSED, None]
    assert (fault.hits, fault.matches, values(broker)) == (1, 3, ["a", "c"])


def test_a_random_fault_strikes_as_determined_by_the_seed(broker: Broker, client: Client) -> None:
    def reported() -> list[str | None]:
        fault = broker.faults.add(api="Produce", error=REFUSED, probability=0.5, seed=3)
        found = [client.send("a") for _ in range(6)]
        fault.remove()
        assert fault.hits == found.count(REFUSED)
        return found

    first = reported()
    assert first == reported() and set(first) == {None, REFUSED}


def test_a_fault_strikes_until_it_is_removed(broker: Broker, client: Client) -> None:
    fault = broker.faults.add(api="Produce", error=REFUSED)
    assert [client.send("a") for _ in range(2)] == [REFUSED] * 2
    fault.wait_for_hits(2)
    fault.remove()
    assert client.send("b") is None
    assert (fault.hits, values(broker)) == (2, ["b"])
