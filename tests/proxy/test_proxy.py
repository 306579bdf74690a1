"""A proxy in front of our broker: clients work through it and never leave it; its faults and its journal are ours."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minibroker.broker.lifecycle import StartError
from minibroker.client.blocking import Client
from minibroker.client.client_errors import ClientError, SettingError
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.messages.cluster import ApiVersionsResponse, DescribeClusterRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from minibroker.proxy.proxy import Proxy
from minibroker.testing import Broker
from minibroker.testing.faults.rules import FaultError
from tests.certificates import Authority
from tests.proxy.upstreams import PATIENCE_S, answer, client_of, exactly, request, to_the_end

SESSION_MS = 60_000
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "wonderland",
}
UNKNOWN_API = 500

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=2) as broker:
        yield broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(first_of(broker)) as proxy:
        proxy.journal.on()
        yield proxy


def first_of(broker: Broker) -> str:
    return broker.bootstrap_servers.split(",")[0]


def produced(servers: str, *values: str, partitions: int = 1, **more: object) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "client.id": "writer", **more})
    for index, value in enumerate(values):
        partition = index % partitions
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(PATIENCE_S) == 0
    if failed:
        raise KafkaException(failed[0])


def consumed(servers: str, count: int, **more: object) -> list[str]:
    config = {"bootstrap.servers": servers, "log_level": 0, "group.id": "g", "auto.offset.reset": "earliest", **more}
    consumer = Consumer(config)
    consumer.subscribe(["t"])
    try:
        found = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None, message and message.error()
            found.append(message.value().decode())
        return found
    finally:
        consumer.close()


def ports_of(servers: str) -> set[int]:
    return {int(server.rpartition(":")[2]) for server in servers.split(",")}


def test_clients_connect_only_to_the_proxys_addresses(broker: Broker, proxy: Proxy) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers})
    admin.create_topics([NewTopic("t", 4)])["t"].result(PATIENCE_S)
    produced(proxy.bootstrap_servers, *map(str, range(40)), partitions=4)
    assert sorted(consumed(proxy.bootstrap_servers, 40), key=int) == [str(each) for each in range(40)]
    assert set(proxy.ports) == set(broker.bootstrap_servers.split(","))
    assert {each.port for each in admin.list_topics(timeout=PATIENCE_S).brokers.values()} == set(proxy.ports.values())
    assert {each.port for each in admin.describe_cluster().result(PATIENCE_S).nodes} == set(proxy.ports.values())
    assert {each.node_id for each in proxy.journal.requests("Produce")} == {1, 2}


@pytest.mark.parametrize(
    ("request_class", "given"),
    [
        (MetadataRequest, {}),
        (DescribeClusterRequest, {}),
        (FindCoordinatorRequest, {"key": "g", "coordinator_keys": ["g"]}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_responses_with_addresses_differ_only_in_the_addresses(
    broker: Broker, proxy: Proxy, request_class: type, given: dict[str, object]
) -> None:
    broker.create_topic("t", partitions=2)
    translated = {}
    with (
        Client(ClientSettings({"bootstrap.servers": proxy.bootstrap_servers})) as through,
        Client(ClientSettings({"bootstrap.servers": first_of(broker)})) as direct,
    ):
        for version in request_class.versions:  # type: ignore[attr-defined]
            request = request_class(**given)
            if request_class is MetadataRequest:
                request.topics = [] if version == 0 else None
            seen = through.request(request, lowest=version, highest=version)
            plain = direct.request(request, lowest=version, highest=version)
            translated = proxy.ports
            for each in (*getattr(plain, "brokers", ()), *getattr(plain, "coordinators", ()), plain):
                if getattr(each, "host", ""):
                    each.host, each.port = "127.0.0.1", translated[f"{each.host}:{each.port}"]
            assert seen == plain
    assert translated


def test_a_client_that_follows_a_moved_leader_stays_with_the_proxy(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t")
    produced(proxy.bootstrap_servers, "before")
    leader = broker.leader("t")
    assert leader is not None
    broker.move_leader("t", 3 - leader)
    produced(proxy.bootstrap_servers, "after")
    assert consumed(proxy.bootstrap_servers, 2) == ["before", "after"]
    assert {each.node_id for each in proxy.journal.requests("Produce")} == {1, 2}


def test_responses_without_addresses_are_forwarded_byte_for_byte(broker: Broker, proxy: Proxy) -> None:
    broker.journal.on()
    produced(proxy.bootstrap_servers, "a", "b")
    consumed(proxy.bootstrap_servers, 2)
    rewritten = ("Metadata", "FindCoordinator", "DescribeCluster")
    seen = {(each.connection, each.correlation_id): each for each in proxy.journal.requests()}
    asked = {each.request_bytes for each in broker.journal.requests()}
    answered = {each.answer_bytes for each in broker.journal.requests()}
    ended = [each for each in seen.values() if each.outcome == "answered"]
    assert len(ended) > 10
    assert all(each.request_bytes in asked for each in ended)  # a client may go before its last request is forwarded
    assert all(each.answer_bytes in answered for each in ended if each.api not in rewritten)


def test_faults_affect_one_partition_as_in_the_test_kit(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t", partitions=2)
    fault = proxy.faults.add(api="Produce", topic="t", partition=1, error="NOT_LEADER_OR_FOLLOWER", times=2)
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0, "linger.ms": 20})
    for partition in (0, 1):
        producer.produce("t", "v", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    fault.wait_for_hits(2, timeout=PATIENCE_S)
    assert len(broker.records("t", 0)) == len(broker.records("t", 1)) == 1
    assert proxy.journal.requests("Produce", error="NOT_LEADER_OR_FOLLOWER")[0].faults


def test_a_request_whose_response_is_lost_still_takes_effect(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t")
    proxy.faults.add(api="Produce", close="after", once=True)
    produced(proxy.bootstrap_servers, "v", **{"enable.idempotence": True})
    assert [each.outcome for each in proxy.journal.requests("Produce")] == ["lost", "answered"]
    assert len(broker.records("t")) == 1  # the broker has recognised the duplicate


@pytest.mark.parametrize(
    "words",
    [
        {"api": "Produce", "close": "before"},
        {"api": "Produce", "answer": "half"},
        {"api": "Produce", "delay": "100 ms"},
        {"api": "Produce", "throttle": "10 ms"},
        {"api": "Produce", "error": "REQUEST_TIMED_OUT", "when": "after"},
    ],
    ids=lambda words: "-".join(map(str, words.values())),
)
def test_a_producer_survives_each_kind_of_fault(broker: Broker, proxy: Proxy, words: dict[str, str]) -> None:
    broker.create_topic("t")
    fault = proxy.faults.add(**words, once=True)
    produced(proxy.bootstrap_servers, "v", **{"enable.idempotence": True})
    fault.wait_for_hits(1, timeout=PATIENCE_S)
    assert len(broker.records("t")) == 1


def test_a_wrong_correlation_id_is_sent_only_to_the_client(proxy: Proxy) -> None:
    proxy.faults.add(api="DescribeCluster", answer="wrong-correlation-id", once=True)
    with Client(ClientSettings({"bootstrap.servers": proxy.bootstrap_servers})) as client:
        with pytest.raises(ClientError, match="an answer to request"):
            client.request(DescribeClusterRequest())
        assert client.request(DescribeClusterRequest()).brokers


def test_a_topic_fault_affects_fetch_sessions_that_omit_the_topic(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t")
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    broker.produce("t", "first")
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"first"
    fault = proxy.faults.add(api="Fetch", topic="t", error="KAFKA_STORAGE_ERROR", times=1)
    fault.wait_for_hits(1, timeout=PATIENCE_S)
    broker.produce("t", "second")
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.value() == b"second"
    consumer.close()


def test_a_consumer_reports_a_batch_that_the_proxy_corrupted(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t")
    produced(proxy.bootstrap_servers, "v")
    proxy.faults.add(api="Fetch", corrupt="crc", once=True)
    consumer = Consumer(
        {"bootstrap.servers": proxy.bootstrap_servers, "group.id": "g", "log_level": 0, "check.crcs": True}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.error() is not None
    assert message.error().code() == KafkaError._BAD_MSG
    consumer.close()


def test_removing_a_silence_fault_disconnects_the_client_that_waits(broker: Broker, proxy: Proxy) -> None:
    broker.create_topic("t")
    fault = proxy.faults.add(api="Produce", answer="silence", once=True)
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0})
    producer.produce("t", "v")
    producer.poll(0)
    fault.wait_for_hits(1, timeout=PATIENCE_S)
    assert fault.held == 1 and len(broker.records("t")) == 0
    fault.remove()
    assert producer.flush(PATIENCE_S) == 0
    assert len(broker.records("t")) == 1


def test_faults_on_authentication_are_rejected_by_a_proxy() -> None:
    proxy = Proxy("127.0.0.1:1")
    for words in ({"authentication": "refuse"}, {"user": "alice", "close": "before"}):
        with pytest.raises(FaultError, match="does not see who logs in"):
            proxy.faults.add(**words)


def test_clients_and_the_proxy_may_use_tls(tmp_path: Path) -> None:
    authority = Authority()
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.sign().write(tmp_path, "server"))}
    trusted = tmp_path / "ca.pem"
    trusted.write_text(authority.pem)
    with (
        Broker(security="SASL_SSL", users={"alice": "secret"}) as broker,
        Proxy(
            broker.bootstrap_servers,
            listener_config=stores,
            upstream_config=broker.client_config("confluent", user="alice"),
        ) as proxy,
    ):
        broker.acls.allow("alice", "all", topic="t")
        broker.acls.allow("alice", "all", group="g")
        tls = {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}
        produced(proxy.bootstrap_servers, "v", **tls)
        assert consumed(proxy.bootstrap_servers, 1, **tls) == ["v"]


def test_forwarded_sasl_logins_leave_no_secrets_in_the_journal(tmp_path: Path) -> None:
    with (
        Broker(security="SASL_PLAINTEXT", users={"alice": "wonderland"}) as broker,
        Proxy(broker.bootstrap_servers) as proxy,
    ):
        proxy.journal.on()
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "alice", "sasl.password": "wonderland"}
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0, **login})
        assert admin.list_topics(timeout=PATIENCE_S).brokers
        kept = proxy.journal.requests()
        assert proxy.journal.requests("SaslAuthenticate")
        assert not any(b"wonderland" in each.request_bytes + each.answer_bytes for each in kept)


def test_a_wrong_password_of_the_proxy_disconnects_its_clients(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "wonderland"}) as broker:
        config = {**broker.client_config("confluent", user="alice"), "sasl.password": "wrong"}
        with Proxy(broker.bootstrap_servers, upstream_config=config) as proxy, client_of(proxy) as client:
            assert to_the_end(client) == b""
    assert "cannot connect" in caplog.text and "authentication" in caplog.text and "wrong" not in caplog.text


def test_impossible_proxy_settings_are_rejected_immediately(broker: Broker) -> None:
    for arguments in ({"upstream": "nowhere"}, {"upstream": "a:1", "listen": "9092"}):
        with pytest.raises((SettingError, ValueError)):
            Proxy(**arguments)
    with pytest.raises(SettingError):
        Proxy("a:1", upstream_config={"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"})
    with pytest.raises(StartError, match="cannot listen"), Proxy("a:1", first_of(broker)):
        pass


def test_a_proxy_on_all_addresses_advertises_the_one_each_client_uses(broker: Broker) -> None:
    with Proxy(first_of(broker), ":0") as proxy:
        address = f"127.0.0.1:{proxy.bootstrap_servers.rpartition(':')[2]}"
        brokers = AdminClient({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_S).brokers
        assert {each.host for each in brokers.values()} == {"127.0.0.1"}
    with Proxy(first_of(broker), ":0", advertised_host="localhost") as proxy:
        brokers = AdminClient({"bootstrap.servers": proxy.bootstrap_servers}).list_topics(timeout=PATIENCE_S).brokers
        assert {each.host for each in brokers.values()} == {"localhost"}


def test_nodes_get_the_ports_after_that_of_the_first_node(broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Proxy(first_of(broker), f"127.0.0.1:{port}") as proxy:
        AdminClient({"bootstrap.servers": proxy.bootstrap_servers}).list_topics(timeout=PATIENCE_S)
        first, second = proxy.ports.values()
        assert first == port and second > port


async def test_the_proxy_runs_in_the_callers_event_loop(broker: Broker) -> None:
    async with Proxy(first_of(broker)) as proxy:
        assert proxy.bootstrap_servers.startswith("127.0.0.1:")
    assert not proxy.is_running


def test_a_client_keeps_its_connection_beyond_the_session_expiry() -> None:
    settings = {"connections.max.reauth.ms": str(SESSION_MS)}
    with (
        Broker(security="SASL_PLAINTEXT", users={"alice": "wonderland"}, settings=settings) as broker,
        Proxy(broker.bootstrap_servers, upstream_config=broker.client_config("confluent", user="alice")) as proxy,
        Client(ClientSettings({"bootstrap.servers": proxy.bootstrap_servers})) as client,
    ):
        proxy.journal.on()
        broker.journal.on()
        client.request(DescribeClusterRequest())
        logins = len(broker.journal.requests("SaslAuthenticate"))
        broker.clock.advance("50 s")
        pass_time(proxy, 52_000)
        broker.wait_for_requests("SaslAuthenticate", logins + len(proxy.ports), timeout=PATIENCE_S)
        broker.clock.advance("50 s")
        client.request(DescribeClusterRequest())
        first, *_, last = proxy.journal.requests("DescribeCluster")
        assert first.connection == last.connection
        assert not proxy.journal.requests("SaslAuthenticate")


def pass_time(proxy: Proxy, by_ms: float) -> None:
    proxy.call_on_loop(lambda: proxy.moving_clock.move_ahead(by_ms))
    proxy.call_on_loop(lambda: None)  # behind the task that was woken


class Node:
    """A node that asks for a login, and whose answers are those of the test."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def frame(self) -> bytes:
        """The next request."""
        (size,) = struct.unpack(">i", exactly(self.connection, 4))
        return exactly(self.connection, size)

    def next_is(self, key: ApiKey, response: Message) -> None:
        """Answer the next request, which is one of this API."""
        frame = self.frame()
        header, _ = RequestHeader.decode_from(
            frame, get_request_header_version(key, struct.unpack_from(">h", frame, 2)[0])
        )
        assert header.request_api_key == key
        version = header.request_api_version
        tags = b"\0" if version in get_request_class(key).flexible and key != ApiKey.API_VERSIONS else b""
        self.connection.sendall(answer(header.correlation_id, tags + response.encode(version)))

    def log_in(self, error_code: int = 0) -> None:
        """Answer a whole login."""
        self.begin_login()
        self.end_login(error_code)

    def begin_login(self) -> None:
        self.next_is(ApiKey.SASL_HANDSHAKE, SaslHandshakeResponse(mechanisms=["PLAIN"]))

    def end_login(self, error_code: int = 0) -> None:
        response = SaslAuthenticateResponse(session_lifetime_ms=SESSION_MS, error_code=error_code)
        self.next_is(ApiKey.SASL_AUTHENTICATE, response)


@contextmanager
def logged_in() -> Iterator[tuple[Proxy, socket.socket, Node]]:
    """A proxy that has logged in for its client, and both ends."""
    versions = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=get_request_class(key).versions[-1])
        for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        upstream = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            Proxy(upstream, upstream_config=LOGIN) as proxy,
            client_of(proxy) as client,
            server.accept()[0] as connection,
        ):
            connection.settimeout(PATIENCE_S)
            node = Node(connection)
            node.next_is(ApiKey.API_VERSIONS, ApiVersionsResponse(api_keys=versions))
            node.log_in()
            client.sendall(question := request(UNKNOWN_API, 0))
            assert node.frame() == question[4:]
            node.connection.sendall(answer(1))
            assert exactly(client, 8) == answer(1)
            yield proxy, client, node


def test_requests_wait_for_a_reauthentication_and_responses_do_not() -> None:
    first, second = request(UNKNOWN_API, 0, 1, b"first"), request(UNKNOWN_API, 0, 2, b"second")
    with logged_in() as (proxy, client, node):
        for _ in range(2):
            client.sendall(first)
            assert node.frame() == first[4:]
            pass_time(proxy, SESSION_MS)
            client.sendall(second)
            node.connection.sendall(answer(1, b"one"))
            assert exactly(client, 11) == answer(1, b"one")
            node.log_in()
            assert node.frame() == second[4:]
            node.connection.sendall(answer(2, b"two"))
            assert exactly(client, 11) == answer(2, b"two")


def test_a_request_forwarded_in_pieces_is_not_interrupted_by_a_reauthentication() -> None:
    large, small = request(UNKNOWN_API, 0, 1, bytes(100_000)), request(UNKNOWN_API, 0, 2)
    with logged_in() as (proxy, client, node):
        client.sendall(large[:50_000])
        assert exactly(node.connection, 50_000) == large[:50_000]
        pass_time(proxy, SESSION_MS)
        client.sendall(large[50_000:] + small)
        assert exactly(node.connection, len(large) - 50_000) == large[50_000:]
        node.connection.sendall(answer(1))
        node.log_in()
        assert node.frame() == small[4:]


def test_a_request_held_by_a_fault_is_sent_after_the_reauthentication() -> None:
    held = request(ApiKey.HEARTBEAT, 0, 1, struct.pack(">hih", 0, 0, 0))
    with logged_in() as (proxy, client, node):
        fault = proxy.faults.add(api="Heartbeat", delay="90 s", once=True)
        client.sendall(held)
        fault.wait_for_hits(1, timeout=PATIENCE_S)
        pass_time(proxy, SESSION_MS)
        node.begin_login()
        pass_time(proxy, SESSION_MS)
        node.end_login()
        assert node.frame() == held[4:]
        client.shutdown(socket.SHUT_WR)
        assert to_the_end(node.connection) == b""


def test_a_client_is_disconnected_if_the_reauthentication_fails(caplog: pytest.LogCaptureFixture) -> None:
    with logged_in() as (proxy, client, node):
        pass_time(proxy, SESSION_MS)
        node.log_in(error_code=58)
        assert to_the_end(client) == b""
    assert "cannot log in again" in caplog.text and "SASL_AUTHENTICATION_FAILED" in caplog.text
