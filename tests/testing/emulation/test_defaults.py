"""Defaults of settings that were others in older releases, as clients notice them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.testing import Broker
from minibroker.testing.emulation.releases import RELEASES, UNTIL, list_settings_of_release
from tests.testing.emulation.asking import asked

pytestmark = pytest.mark.usefixtures("leaves_sockets")

DAY_MS = 86_400_000


def reported(broker: Broker, value: str, timestamp_ms: int = 0) -> int | None:
    """The error code with which librdkafka reports a record."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "message.max.bytes": 2_000_000}
    producer = Producer({**settings, "retries": 0})
    codes: list[int | None] = []
    producer.produce(
        "t", value, timestamp=timestamp_ms, on_delivery=lambda error, _: codes.append(error and error.code())
    )
    assert producer.flush(20) == 0
    (code,) = codes
    return code


@pytest.mark.parametrize(("release", "code"), [("2.4", KafkaError.MSG_SIZE_TOO_LARGE), ("2.5", None)])
def test_batches_above_a_million_bytes_were_rejected_before_2_5(release: str, code: int | None) -> None:
    with Broker(emulate=release) as broker:
        assert reported(broker, "v" * 1_020_000) == code


@pytest.mark.parametrize(("release", "code"), [("3.9", None), ("4.0", KafkaError.INVALID_TIMESTAMP)])
def test_timestamps_in_the_future_are_rejected_since_4_0(release: str, code: int | None) -> None:
    with Broker(emulate=release) as broker:
        now_ms = broker.clock.now_ms()
        assert reported(broker, "v", now_ms + DAY_MS) == code


def test_message_timestamp_difference_max_ms_bounds_timestamps_in_releases_that_had_it() -> None:
    with Broker({"log.message.timestamp.difference.max.ms": DAY_MS}, emulate="2.0") as broker:
        now_ms = broker.clock.now_ms()
        assert reported(broker, "v", now_ms + 2 * DAY_MS) == KafkaError.INVALID_TIMESTAMP
        assert reported(broker, "v", now_ms - 2 * DAY_MS) == KafkaError.INVALID_TIMESTAMP


def test_the_newest_release_has_the_current_defaults() -> None:
    assert list_settings_of_release("4.4") == {}


@pytest.mark.parametrize("name", UNTIL)
def test_changes_of_a_default_are_listed_in_the_order_of_releases(name: str) -> None:
    positions = [RELEASES.index(until) for until, _ in UNTIL[name]]
    assert positions == sorted(positions)
    assert list_settings_of_release("0.8.2")[name] == UNTIL[name][0][1]


@pytest.mark.parametrize(("release", "code"), [("3.5", 0), ("3.6", ErrorCode.INVALID_TXN_STATE)])
def test_a_produce_to_a_partition_outside_its_transaction_is_rejected_since_3_6(release: str, code: int) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("t")
        while asked(broker, FindCoordinatorRequest(key="id", key_type=1), 1).error_code != 0:
            pass
        producer = asked(broker, InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 0)
        batch = build_batch(
            [Record(0, broker.clock.now_ms(), None, b"a")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        Data = ProduceRequest.TopicProduceData
        data = Data.PartitionProduceData(index=0, records=memoryview(bytes(batch)))
        topics = [Data(name="t", partition_data=[data])]
        request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=topics)
        (answer,) = asked(broker, request, 7).responses[0].partition_responses
        assert answer.error_code == code
