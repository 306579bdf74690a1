"""A Produce that is known by its first bytes is answered, and written, exactly as one that is decoded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.handlers.produce_template import ProduceTemplate, RefusalTemplate
from minibroker.broker.security.acls import Permission
from minibroker.broker.security.operations import WRITE_TOPIC
from minibroker.broker.security.principals import Principal
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.security import DeleteAclsRequest
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.broker.handlers import cluster_changes
from tests.broker.harness import Client, Harness, TopicData, batch, count_handled, frame_of
from tests.broker.transactions.producing import CLASSIC, TransactionalProducer
from tests.storage.support import FailingDisk

PartitionData = TopicData.PartitionProduceData
VERSIONS = (0, 2, 3, 5, 8, 9, 12, 13)
FIRST_TRANSACTIONAL = 3
NOW = 1_700_000_000_000


def produce(
    harness: Harness, records: bytes, *, acks: int = -1, partition: int = 0, transactional_id: str | None = None
) -> ProduceRequest:
    topic = harness.cluster.image.topics.get("t")
    topic_id = bytes(16) if topic is None else topic.topic_id
    data = TopicData(name="t", topic_id=topic_id, partition_data=[PartitionData(index=partition, records=records)])
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data])


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, disk=FailingDisk()) as harness:
        harness.create_topic("t", 3)
        yield harness


def answer(client: Client) -> Any:
    ((_, response),) = client.responses()
    return response.responses[0].partition_responses[0]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 3])
def test_the_third_produce_of_the_same_shape_uses_the_cached_template(
    harness: Harness, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    for number in range(6):
        client.send(produce(harness, batch(number * 70 * "v")), version)
        assert answer(client).base_offset == number
        assert isinstance(client.connection.template, ProduceTemplate) == (number > 0)
    assert len(handled) == 2
    assert [value for _, value in records(harness)] == [number * 70 * b"v" for number in range(6)]


def test_a_cached_template_is_used_for_records_of_every_length(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, lengths = harness.client(), (1, 1, 10, 200, 20_000, 10)
    handled = count_handled(harness.dispatcher, monkeypatch)
    for number, length in enumerate(lengths):  # the length field has 1, 2 or 3 bytes from version 9 on
        client.send(produce(harness, batch(length * "v")), 9)
        assert answer(client).base_offset == number
    assert len(handled) == 2
    assert [len(value) for _, value in records(harness)] == list(lengths)


ALICE = Principal("User", "alice")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 3])
def test_a_cached_rejection_of_a_produce_ends_once_it_is_authorized(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    with Harness(tmp_path, settings=AUTHORIZER) as harness:
        harness.create_topic("t")
        harness.add_acl(WRITE_TOPIC, "t", user="bob")
        client = harness.client()
        client.connection.principal, client.connection.host = ALICE, "127.0.0.1"
        told, handled = [], count_handled(harness.dispatcher, monkeypatch)
        for number in range(4):
            caplog.clear()
            client.send(produce(harness, batch(number * 70 * "v")), version)
            refused = answer(client)
            assert (refused.error_code, refused.base_offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
            assert isinstance(client.connection.template, RefusalTemplate) == (number > 0)
            told.append([record.getMessage() for record in caplog.records])
        assert told == [
            [
                "User:alice from 127.0.0.1 is denied WRITE on TOPIC t",
                "Produce from test refused for t-0: TOPIC_AUTHORIZATION_FAILED",
            ]
        ] * len(told)
        assert len(handled) == 2
        harness.add_acl(WRITE_TOPIC, "t", user="alice")
        for number in range(3):
            client.send(produce(harness, batch("v")), version)
            assert (answer(client).error_code, harness.partition("t").log.log_end_offset) == (0, number + 1)
        assert isinstance(client.connection.template, ProduceTemplate)


def test_produces_to_alternating_partitions_use_cached_templates(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, handled = harness.client(), count_handled(harness.dispatcher, monkeypatch)
    for number in range(4):
        for partition in range(3):
            client.send(produce(harness, batch(f"{partition}"), partition=partition), 9)
            told = answer(client)
            assert (told.index, told.base_offset, told.error_code) == (partition, number, 0)
    assert isinstance(client.connection.template, ProduceTemplate)
    assert len(client.connection.template.others) == 3
    assert len(handled) < 12


def test_a_transactional_produce_is_cached_while_its_transaction_is_open(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = TransactionalProducer(harness, versions=CLASSIC)
    producer.init()
    client = harness.client()

    def send(sequence: int) -> Any:
        made = batch(
            "v", transactional=True, producer_id=producer.producer_id, producer_epoch=0, base_sequence=sequence
        )
        client.send(produce(harness, made, transactional_id="tx"), 9)
        return answer(client)

    assert producer.add(("t", 0)) == [0]
    handled = count_handled(harness.dispatcher, monkeypatch)
    assert [send(sequence).base_offset for sequence in range(4)] == [0, 1, 2, 3]
    assert len(handled) == 2
    assert isinstance(client.connection.template, ProduceTemplate)
    assert producer.finish() == 0
    assert send(4).error_code == ErrorCode.INVALID_TXN_STATE
    assert producer.add(("t", 0)) == [0]
    assert send(4).base_offset == 5
    assert producer.finish(commit=False) == 0
    assert harness.partition("t").log.last_stable_offset == 7


def records(harness: Harness) -> list[tuple[int, bytes | None]]:
    region = harness.partition("t").log.read(0, 1 << 20)
    assert region is not None
    found: list[tuple[int, bytes | None]] = []
    for position, header in iterate_batches(data := region.read()):
        found += [
            (record.offset, record.value) for record in iterate_records_of_batch(data[position:][: header.size_bytes])
        ]
    return found


def test_many_produces_in_one_read_are_answered_in_order(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    client = harness.client()
    for _ in range(2):
        client.send(produce(harness, batch("first")), 9)
        answer(client)
    client._asked += [(0, 9)] * 5
    handled = count_handled(harness.dispatcher, monkeypatch)
    client.send_bytes(b"".join(frame_of(produce(harness, batch(f"{n}")), 9, n) for n in range(5)))
    assert [(number, one.responses[0].partition_responses[0].base_offset) for number, one in client.responses()] == [
        (number, number + 2) for number in range(5)
    ]
    assert not handled


def test_a_failed_write_fails_all_produces_that_waited_for_it(harness: Harness) -> None:
    client = harness.client()
    for _ in range(2):
        client.send(produce(harness, batch("first")), 9)
        answer(client)
    harness.disk.failing = {"write"}
    client.send(produce(harness, batch("lost")), 9)
    refused = answer(client)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    harness.disk.failing = set()
    client.send(produce(harness, batch("kept")), 9)
    assert answer(client).base_offset == 2


CHANGES = (*cluster_changes.CHANGES, "add", "add", "end", "deny", "deny", "permit")
CONFIGS = (
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.type", "CreateTime"),
    ("max.message.bytes", "100"),
    ("max.message.bytes", "1000"),
    ("compression.type", "gzip"),
    ("compression.type", "producer"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("flush.messages", "1"),
    ("min.insync.replicas", "2"),
)
KINDS = (
    "good",
    "good",
    "good",
    "crc",
    "cut",
    "offset",
    "idempotent",
    "again",
    "gzip",
    "transactional",
    "transactional",
)
BATCHES = st.tuples(
    st.integers(1, 3),  # records
    st.sampled_from((0, 5, 60, 200)),  # bytes of a value
    st.booleans(),  # whether there are keys
    st.sampled_from(KINDS),
    st.integers(0, 1),  # the partition
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(0, 1), BATCHES, st.sampled_from((-1, 1, -1, 0, 7))),
        st.tuples(st.just("produce"), st.integers(0, 1), BATCHES, st.just(-1)),
        st.tuples(st.sampled_from(CHANGES), st.sampled_from(CONFIGS)),
    ),
    min_size=5,
    max_size=16,
)


class Side(cluster_changes.Side):
    """A side with producers."""

    def __init__(self, directory: str, version: int, *, knows: bool) -> None:
        harness = Harness(Path(directory), settings={"transaction.state.log.num.partitions": "1", **AUTHORIZER})
        harness.create_topic("t", 2)
        super().__init__(harness, version, "t", knows=knows)
        self.clients = [self.new_client(), self.new_client()]
        self.transactions = TransactionalProducer(self.harness, versions=CLASSIC)
        self.transactions.init()
        self.sequence = 0

    def step(self, what: str, *arguments: Any) -> Any:
        if what == "produce":
            return self.produce(*arguments)
        getattr(self, what)(*arguments)
        self.harness.end_turn()
        return None

    def produce(self, client: int, wanted: tuple[int, int, bool, str, int], acks: int) -> bytes:
        asked = self.client(client)
        before = len(asked.sent_bytes())
        *of_batch, partition = wanted
        transactional_id = "tx" if self.version >= FIRST_TRANSACTIONAL else None
        made = self.batch(*of_batch, partition)
        made_request = produce(self.harness, made, acks=acks, partition=partition, transactional_id=transactional_id)
        asked.send_bytes(frame_of(made_request, self.version))
        told = asked.sent_bytes()[before:]
        if asked.closed:
            self.clients[client] = self.new_client()
        return told

    def new_client(self) -> Client:
        client = self.harness.client()
        client.connection.principal = ALICE
        return client

    def batch(self, count: int, size: int, keyed: bool, kind: str, partition: int) -> bytes:
        made = [Record(0, NOW + index, b"k" if keyed else None, bytes(size), ()) for index in range(count)]
        more: dict[str, Any] = {"compression": 1} if kind == "gzip" else {}
        if kind in ("idempotent", "again"):
            self.sequence += count if kind == "idempotent" else 0
            more = {"producer_id": 5, "producer_epoch": 0, "base_sequence": self.sequence}
        if kind == "transactional":
            told = self.transactions
            sequence = told.sequences.get(("t", partition), 0)
            told.sequences["t", partition] = sequence + count
            more = {"producer_id": told.producer_id, "producer_epoch": told.epoch, "base_sequence": sequence}
            more["transactional"] = True
        data = bytearray(build_batch(made, **more))
        if kind == "crc":
            data[-1] ^= 1
        if kind == "offset":
            data[7] = 1
        return bytes(data[:-1] if kind == "cut" else data)

    def add(self, _: object) -> None:
        self.transactions.add(("t", 0), ("t", 1))

    def deny(self, _: object) -> None:
        self.harness.add_acl(WRITE_TOPIC, "t", permission=Permission.DENY)

    def permit(self, _: object) -> None:
        every = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        self.harness.request(DeleteAclsRequest(filters=[every]))

    def end(self, _: object) -> None:
        self.transactions.end()
        self.harness.clock.advance(0)


@given(st.sampled_from(VERSIONS), STEPS)
def test_cached_and_decoded_produces_give_the_same_responses_and_logs(version: int, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        knowing, decoding = Side(one, version, knows=True), Side(other, version, knows=False)
        with knowing.harness, decoding.harness:
            for step in steps:
                assert knowing.step(*step) == decoding.step(*step), step
            assert contents(one) == contents(other)


def contents(directory: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(Path(directory).glob("data/t-*/*.log"))]
