"""The journal: what clients asked and got, the bytes of it, and why they were refused; bounded, and free when off."""

from __future__ import annotations

import gc
import json
import socket
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offsets import OffsetCommitRequest
from minibroker.testing import Broker
from minibroker.testing.reports.failure_report import format_report
from minibroker.testing.seen.journal import Journal
from minibroker.testing.verbs.own_requests import execute_request
from tests.broker.harness import frame_of

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.journal.on()
        yield broker


def produce(broker: Broker, *values: str, **more: object) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "client.id": "writer", **more}
    producer = Producer(settings)
    for value in values:
        producer.produce("t", value)
    assert producer.flush(20) == 0


def test_a_request_is_recorded_with_its_response_bytes_and_times(broker: Broker) -> None:
    produce(broker, "hello")
    (exchange,) = broker.wait_for_requests("Produce")
    assert (exchange.api, exchange.api_key, exchange.client_id) == ("Produce", ApiKey.PRODUCE, "writer")
    assert exchange.request.topic_data[0].name == "t" or exchange.request.topic_data[0].topic_id
    assert exchange.answer.responses[0].partition_responses[0].base_offset == 0
    assert b"hello" in exchange.request_bytes and b"writer" in exchange.request_bytes
    assert (exchange.outcome, exchange.errors, exchange.node_id) == ("answered", (), 1)
    assert exchange.duration_ms is not None and exchange.duration_ms >= 0
    assert exchange.ended_before is not None and exchange.ended_before > exchange.number
    assert "rdkafka" in exchange.software and exchange.connection.startswith("127.0.0.1:")
    assert "Produce" in str(exchange) and "writer" in str(exchange)


def test_a_long_or_multi_line_name_is_shown_in_one_short_line(broker: Broker) -> None:
    client_id = "x\n#1 127.0.0.1:1 admin: Produce 9 answered\x1b[2J" + 30_000 * "y"
    group = "g\nroup" + 30_000 * "z"
    broker.create_topic("t")
    partitions = [OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(committed_offset=0)]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)]
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(frame_of(FindCoordinatorRequest(coordinator_keys=[group]), 4, client_id=client_id))
        connection.sendall(frame_of(OffsetCommitRequest(group_id=group, topics=topics), 8))
        (exchange,) = broker.wait_for_requests("FindCoordinator")
        broker.wait_for_requests("OffsetCommit")
    assert exchange.client_id == client_id
    line = str(exchange)
    assert line.isprintable() and len(line) < 1_000 and "FindCoordinator 4 answered" in line
    lines = format_report(broker).split("\n")
    assert all(line.isprintable() and len(line) <= 1_000 for line in lines)
    assert any(line.startswith("group g\\nroup") for line in lines)


def test_the_journal_reads_fetched_records_from_the_log(broker: Broker) -> None:
    broker.produce("t", "from the file" * 2000)
    consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    next(consumer)
    consumer.close()
    exchange = broker.requests("Fetch", where=lambda each: b"from the file" in each.answer_bytes)[0]
    assert exchange.answer.responses[0].partitions[0].high_watermark == 1


def test_requests_are_filtered_by_their_properties(broker: Broker) -> None:
    produce(broker, "a")
    assert {exchange.api for exchange in broker.requests()} >= {"ApiVersions", "Metadata", "Produce"}
    assert broker.requests("Produce", client_id="nobody") == broker.requests(node=9) == []
    assert broker.requests(error="INVALID_TOPIC_EXCEPTION") == []
    created = broker.requests(error="UNKNOWN_TOPIC_OR_PARTITION")  # the answer to the request that has it created
    assert {exchange.api for exchange in created} == {"Metadata"}
    numbers = [exchange.number for exchange in broker.requests()]
    assert numbers == sorted(numbers)


def test_api_names_are_case_insensitive_and_unknown_ones_are_rejected(broker: Broker) -> None:
    produce(broker, "a")
    assert broker.requests("produce") == broker.requests("Produce") != []
    with pytest.raises(ValueError, match="'Prodcue' is not an API"):
        broker.requests("Prodcue")
    with pytest.raises(ValueError, match="'NO_LEADER' is not an error"):
        broker.requests(error="NO_LEADER")


def test_assertions_on_a_disabled_journal_are_errors() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="the journal is off"):
        broker.requests("Produce")


def test_an_exchange_contains_the_brokers_reason_for_an_error(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    broker.produce("t", "a")
    cluster = broker.running.cluster
    broker.loop.call_on_loop(lambda: cluster.controller.change_config(2, "t", {"max.message.bytes": "100"}))
    failed: list[object] = []
    producer.produce("t", "x" * 500, on_delivery=lambda error, _: failed.append(error))
    producer.flush(20)
    assert failed and failed[0] is not None
    (exchange,) = broker.wait_for_requests("Produce", error="MESSAGE_TOO_LARGE")
    assert exchange.refusals and "100" in exchange.refusals[0]
    assert exchange.refusals[0] in str(exchange)


def test_the_report_of_an_empty_broker_says_that_there_is_nothing() -> None:
    with Broker() as broker:
        assert format_report(broker) == "no topics, no groups, no requests"
        broker.create_topic("t")
        assert format_report(broker) == "topic t: partitions end at 0"


def test_the_journal_is_saved_as_json_lines(broker: Broker, tmp_path: Path) -> None:
    produce(broker, "hello")
    count = broker.journal.save(tmp_path / "journal.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert len(lines) == count
    produced = next(line for line in lines if line["api"] == "Produce")
    assert b"hello" in bytes.fromhex(produced["request_hex"])
    assert produced["request"]["acks"] == -1 and produced["client_id"] == "writer"


def test_the_journal_size_is_bounded(broker: Broker) -> None:
    broker.journal.off()
    small = Journal(broker, maximum_exchanges=3)
    small.on()
    produce(broker, "a")
    assert len(small.requests()) == 3 and small.dropped > 0
    small.off()
    tiny = Journal(broker, maximum_bytes=500)
    tiny.on()
    produce(broker, "x" * 1000)
    assert sum(exchange.size_bytes for exchange in tiny.requests()) <= 500
    tiny.off()


def test_a_disabled_journal_keeps_its_entries_and_intercepts_nothing(broker: Broker) -> None:
    produce(broker, "a")
    broker.journal.off()
    assert broker.interceptors == [] and not broker.journal.is_on
    kept = broker.requests()
    produce(broker, "b")
    assert broker.requests() == kept != []
    broker.journal.clear()
    assert broker.requests() == []


def test_the_journal_continues_after_a_restart_and_a_reset(broker: Broker) -> None:
    produce(broker, "a")
    broker.restart()
    produce(broker, "b")
    assert len(broker.requests("Produce")) == 2
    broker.reset()
    assert broker.requests() == []
    produce(broker, "c")
    assert len(broker.requests("Produce")) == 1


def test_a_disconnected_client_is_in_the_journal(broker: Broker) -> None:
    consumer = KafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, fetch_max_wait_ms=20_000)
    broker.produce("t", "a")
    until = time.monotonic() + 20
    while not broker.requests("Fetch", where=lambda each: each.outcome == "open"):
        assert time.monotonic() < until
        consumer.poll(50)
    consumer.close()
    broker.wait_for_requests("Fetch", where=lambda each: each.outcome == "lost")


def test_the_test_kits_own_requests_are_not_recorded(broker: Broker) -> None:
    async def own() -> None:
        cluster = broker.running.cluster
        await execute_request(cluster, next(iter(cluster.nodes.values())), MetadataRequest(topics=[]))

    broker.loop.run_on_loop(own())
    broker.produce("t", "a")
    assert broker.requests() == []


def test_two_brokers_in_one_process_have_separate_journals(broker: Broker) -> None:
    with Broker() as other:
        other.journal.on()
        produce(other, "a")
        produce(broker, "b")
        assert len(other.requests("Produce")) == len(broker.requests("Produce")) == 1


def test_a_group_explains_why_it_rejects_a_member(broker: Broker) -> None:
    broker.produce("t", "a")
    consumer = KafkaConsumer(
        "t",
        group_id="g",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=50,
    )
    next(consumer)
    (member,) = broker.evict("g")
    until = time.monotonic() + 20
    while not broker.requests(error="UNKNOWN_MEMBER_ID"):
        assert time.monotonic() < until
        consumer.poll(50)
    consumer.close()
    assert f"the group has no member {member!r}" in broker.requests(error="UNKNOWN_MEMBER_ID")[0].refusals[0]


def test_a_stopped_broker_is_not_kept_alive_by_its_journal() -> None:
    with Broker() as broker:
        broker.journal.on()
    gone = weakref.ref(broker)
    del broker
    gc.collect()
    assert gone() is None


def test_the_journal_contains_no_passwords() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_alice="alice-secret";',
    }
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    with Broker(settings) as broker:
        broker.journal.on()
        produce(broker, "v", **login, **{"sasl.password": "alice-secret"})
        (kept, *_) = broker.journal.requests("SaslAuthenticate")
        assert (kept.outcome, kept.request.auth_bytes) == ("answered", b"")
        assert all(b"secret" not in each.request_bytes for each in broker.journal.requests())


@pytest.mark.parametrize("incremental", [False, True])
def test_the_journal_contains_no_passwords_of_alter_configs_requests(incremental: bool) -> None:
    changes = {"listener.name.ssl.ssl.keystore.password": "the-secret", "log.cleaner.threads": "2"}
    with Broker() as broker:
        broker.journal.on()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        if incremental:
            entries = [ConfigEntry(*change, incremental_operation=AlterConfigOpType.SET) for change in changes.items()]
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
            (future,) = admin.incremental_alter_configs([resource]).values()
        else:
            resource = ConfigResource(ResourceType.BROKER, "1", set_config=changes)
            with pytest.deprecated_call():
                (future,) = admin.alter_configs([resource]).values()
        future.result(30)
        (exchange,) = broker.journal.requests("IncrementalAlterConfigs" if incremental else "AlterConfigs")
        kept = {config.name: config.value for config in exchange.request.resources[0].configs}
        assert kept == {**changes, "listener.name.ssl.ssl.keystore.password": "[hidden]"}
        assert broker.call_on_loop(lambda: broker.running.cluster.settings["log.cleaner.threads"]) == 2


def test_requests_are_filtered_by_user_and_mechanism() -> None:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "secret"}) as broker:
        broker.journal.on()
        client = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "secret"}
        admin = AdminClient(
            {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT"} | client
        )
        admin.list_topics(timeout=30)
        (seen, *_) = broker.wait_for_requests("Metadata", user="alice", mechanism="SCRAM-SHA-256")
        assert (seen.user, seen.mechanism) == ("alice", "SCRAM-SHA-256")
        assert seen.as_json()["user"] == "alice"
        before = broker.requests("ApiVersions", user="ANONYMOUS")
        assert before and before[0].user is None
        assert not broker.requests(user="bob") and not broker.requests("Metadata", mechanism="PLAIN")
