"""Records put in and looked at by a test: as clients write and read them, with what the log knows of them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.steps import run_all_steps
from minibroker.testing import Broker
from minibroker.testing.seen.log_reading import Record
from minibroker.testing.seen.waiting import Expired
from minibroker.testing.verbs.record_verbs import RecordVerbs
from tests.testing.support import settings

pytestmark = pytest.mark.usefixtures("leaves_sockets")


def test_produced_records_are_consumed_by_clients() -> None:
    with Broker() as broker:
        assert broker.produce("t", "a", b"b", None, key="k", headers={"h": "v"}, timestamp_ms=1234) == 0
        assert broker.produce("t", "c") == 3
        consumer = Consumer(settings(broker, **{"group.id": "g", "auto.offset.reset": "earliest"}))
        consumer.subscribe(["t"])
        read = consumer.consume(4, 20)
        consumer.close()
        assert [(m.key(), m.value(), m.headers()) for m in read[:3]] == [
            (b"k", value, [("h", b"v")]) for value in (b"a", b"b", None)
        ]
        assert read[0].timestamp()[1] == 1234 and read[3].value() == b"c"


def test_a_record_is_produced_to_a_topic_that_a_client_is_creating() -> None:
    with Broker() as broker:
        creating = broker.running.cluster.controller.create_topic_in_steps("t")

        def begin_and_finish_later() -> None:
            next(creating)
            asyncio.get_running_loop().call_later(0.05, run_all_steps, creating)

        broker.call_on_loop(begin_and_finish_later)
        assert broker.produce("t", "a") == 0


def test_records_of_clients_are_consumed_by_a_test() -> None:
    with Broker() as broker:
        producer = Producer(settings(broker, **{"enable.idempotence": True, "compression.type": "zstd"}))
        for number in range(3):
            producer.produce("t", f"v{number}", "k", headers=[("h", b"x"), ("h", None)])
        producer.flush(20)
        found = broker.records("t")
        assert [(r.offset, r.key, r.text, r.headers) for r in found] == [
            (number, b"k", f"v{number}", (("h", b"x"), ("h", None))) for number in range(3)
        ]
        assert [record.sequence for record in found] == [0, 1, 2]
        assert found[0].producer_id >= 0 and found[0].magic == 2 and found[0].transaction is None


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy"])
def test_records_of_old_formats_are_consumed(codec: str) -> None:
    with Broker({"log.message.format.version": "0.10.0"}) as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=codec, enable_idempotence=False
        )
        producer.send("t", b"a", b"k").get(20)
        producer.close()
        (record,) = broker.records("t")
        assert (record.magic, record.key, record.value) == (1, b"k", b"a")


def test_transactional_records_are_marked() -> None:
    with Broker() as broker:
        producer = Producer(settings(broker, **{"transactional.id": "x"}))
        producer.init_transactions(20)
        for value, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce("t", value)
            producer.flush(20)
            end(20)
        producer.begin_transaction()
        producer.produce("t", "c")
        producer.flush(20)
        broker.produce("t", "d")
        assert [(record.text, record.transaction) for record in broker.records("t")] == [
            ("a", "committed"),
            ("b", "aborted"),
            ("c", "open"),
            ("d", None),
        ]
        assert [record.text for record in broker.expect("t", 2)] == ["a", "d"]
        producer.abort_transaction(20)


def test_expect_waits_for_later_records() -> None:
    with Broker() as broker:
        producer = Producer(settings(broker))
        late = threading.Timer(0.1, lambda: (producer.produce("t", "a"), producer.flush(20)))
        late.start()
        assert [record.text for record in broker.expect("t", 1, "20 s")] == ["a"]
        late.join()


def test_a_nonexistent_partition_is_an_error() -> None:
    with Broker() as broker:
        broker.produce("t", "a")
        assert len(broker.records("t", 0)) == 1 and broker.records("not there", 0) == []
        with pytest.raises(KafkaError, match="there is no t-1"):
            broker.records("t", 1)


def test_a_failed_expect_shows_the_actual_records() -> None:
    with Broker() as broker:
        broker.produce("t", "only one")
        with pytest.raises(
            Expired,
            match="^after 0.05 s: 2 records were expected in t, and there is 1\n  t-0 offset 0: value 'only one'$",
        ):
            broker.expect("t", 2, "50 ms")
        with pytest.raises(Expired, match="1 record was expected in u, and there is no such topic, only t"):
            broker.expect("u", 1, 0.01)
        assert broker.expect("t", 0) == []


def test_expect_lists_ignored_records_separately() -> None:
    with Broker() as broker:
        producer = Producer(settings(broker, **{"transactional.id": "x"}))
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", "x" * 1000)
        producer.flush(20)
        with pytest.raises(Expired, match=r"(?s)are 0, besides 1 of open or aborted.*1000 bytes.*transaction open"):
            broker.expect("t", 1, "50 ms")
        producer.abort_transaction(20)


def test_waiting_for_many_records_reads_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = RecordVerbs.records

    def counted(records: RecordVerbs, topic: str) -> list[Record]:
        read.append(topic)
        return original(records, topic)

    monkeypatch.setattr(RecordVerbs, "records", counted)
    with Broker() as broker, ThreadPoolExecutor() as pool:
        waiting = pool.submit(broker.expect, "t", 100, "20 s")
        for number in range(100):
            broker.produce("t", str(number))
            broker.call_on_loop(broker.watch.check_conditions_soon)
        assert len(waiting.result()) == 100
    assert read == ["t"]


@pytest.mark.parametrize("words", [{"value": 5}, {"value": {"id": 1}}, {"value": "a", "key": 5}], ids=str)
def test_invalid_records_are_errors(words: dict[str, Any]) -> None:
    with Broker() as broker, pytest.raises(TypeError, match="keys and values of records are text, bytes or None"):
        broker.produce("t", words.pop("value"), **words)


def test_assert_nothing_produced_fails_if_a_record_arrives() -> None:
    with Broker() as broker:
        broker.produce("t", "before")
        broker.assert_nothing_produced("t", "50 ms")
        broker.assert_nothing_produced("unknown", "1 ms")
        late = threading.Timer(0.05, lambda: broker.produce("t", "late"))
        late.start()
        with pytest.raises(AssertionError, match="late"):
            broker.assert_nothing_produced("t", "1 s")
        late.join()


def test_a_new_record_in_another_partition_fails_assert_nothing_produced() -> None:
    with Broker({"num.partitions": 2}) as broker:
        broker.produce("t", "old", partition=1)
        late = threading.Timer(0.05, lambda: broker.produce("t", "late", partition=0))
        late.start()
        with pytest.raises(AssertionError, match="late") as raised:
            broker.assert_nothing_produced("t", "1 min")
        assert "old" not in str(raised.value)
        late.join()


def test_a_produce_by_a_test_gets_the_same_error_as_by_a_client() -> None:
    with Broker(auto_create=False) as broker, pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        broker.produce("t", "a")
    with Broker() as broker:
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.produce("t", "a", partition=7)
        with pytest.raises(ValueError):
            broker.produce("t")
        assert broker.records("unknown") == []


def test_all_record_methods_can_be_awaited() -> None:
    async def use() -> None:
        async with Broker() as broker:
            await broker.aproduce("t", "a")
            assert (await broker.aexpect("t"))[0].text == "a"
            await broker.aassert_nothing_produced("t", "10 ms")
            with pytest.raises(Expired):
                await broker.aexpect("t", 2, "10 ms")

    asyncio.run(use())


def test_a_leader_on_another_node_is_found() -> None:
    with Broker({"num.partitions": 6}, nodes=3) as broker:
        for partition in range(6):
            assert broker.produce("t", "a", partition=partition) == 0
        assert [record.partition for record in broker.records("t")] == list(range(6))
        assert [record.partition for record in broker.records("t", 4)] == [4]


def test_a_test_is_exempt_from_the_acls_of_its_clients() -> None:
    with Broker({"authorizer.class.name": STANDARD_AUTHORIZER}) as broker:
        broker.create_topic("t")
        assert broker.produce("t", "a") == 0
        errors: list[str] = []
        producer = Producer(settings(broker))
        producer.produce("t", b"b", on_delivery=lambda error, _: errors.append(error.name()))
        producer.flush(10)
        assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
        assert [record.value for record in broker.records("t")] == [b"a"]
        del producer


def test_a_record_shows_its_value_as_text_and_as_json() -> None:
    with Broker() as broker:
        broker.produce("t", '{"id": 7}', None, key="k")
        order, tombstone = broker.records("t")
    assert (order.text, order.json) == ('{"id": 7}', {"id": 7})
    assert f"{order}" == """t-0 offset 0: key 'k', value '{"id": 7}'"""
    assert repr(tombstone) == "<Record t-0 offset 1: key 'k', value null>"
    with pytest.raises(ValueError, match="t-0 offset 1: .* has no text: its value is null"):
        _ = tombstone.text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"", "''"),
        ("Grüße".encode(), "'Grüße'"),
        (b"\x00\x01", r"b'\x00\x01'"),
        (b"caf\xe9", r"b'caf\xe9'"),
        ("ü".encode() * 80, f"'{'ü' * 50}'... (160 bytes)"),
        (b"x" + "ü".encode() * 80, f"'x{'ü' * 49}'... (161 bytes)"),  # not cut within a character
    ],
)
def test_a_record_is_shown_in_one_line(value: bytes, shown: str) -> None:
    with Broker() as broker:
        broker.produce("t", value)
        (record,) = broker.records("t")
    assert f"{record}" == f"t-0 offset 0: value {shown}"


def test_a_value_that_is_not_text_or_not_json_is_an_error_of_one_line() -> None:
    with Broker() as broker:
        broker.produce("t", b"\xff", "no json")
        binary, text = broker.records("t")
    with pytest.raises(ValueError, match="^t-0 offset 0: .* has no text: its value is not UTF-8$"):
        _ = binary.text
    with pytest.raises(ValueError, match="^t-0 offset 1: value 'no json' is not JSON: Expecting value"):
        _ = text.json


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partition": 3}, "Unknown topic config name: partition; did you mean partitions?"),
        ({"retention_m": 3}, "Unknown topic config name: retention.m; did you mean retention_ms?"),
    ],
)
def test_a_misspelt_topic_argument_is_corrected_in_the_error(given: dict[str, int], said: str) -> None:
    with Broker() as broker, pytest.raises(KafkaError, match="INVALID_CONFIG") as caught:
        broker.create_topic("misspelt", **given)
    assert said in str(caught.value)
