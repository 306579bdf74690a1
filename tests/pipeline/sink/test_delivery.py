"""Both deliveries against a running broker, without Spark: what a reader of committed records sees, after each crash.

A task is a call here, and so is a commit; that they are processes of Spark's is shown in test_spark_sink.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from minibroker.client.client_errors import ClientError, ErrorReaction
from minibroker.client.cluster_client import SentRequest
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.schemas import HEADERS, TIMESTAMP
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import DeliveryResult
from minibroker.pipeline.sink.sink_settings import parse_settings
from minibroker.pipeline.sink.sink_transaction import RecordRefused, WriteFailed
from tests.clients.ports import free_ports
from tests.pipeline.sink.committed import read, values
from tests.pipeline.sink.scenarios import (
    PROMPT,
    SCENARIOS,
    Broker,
    batch_of,
    exactly_once,
    new_topic,
    set_generation,
    settings_for,
    sorted_values,
    wanted,
    write,
)
from tests.running import RunningBroker, running_broker


@pytest.fixture(scope="module")
def plain_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker"), PROMPT, "auto.create.topics.enable=false") as broker:
        yield broker


@pytest.fixture(scope="module", params=[2, 1], ids=["KIP-890", "classic"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with each of the two generations of transactions."""
    with running_broker(tmp_path_factory.mktemp("broker"), PROMPT) as broker:
        set_generation(broker, request.param)
        yield broker


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    return new_topic(broker)


def test_written_rows_are_consumed_by_another_client(plain_broker: RunningBroker) -> None:
    topic = new_topic(plain_broker)
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], None]
    times = [datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC), datetime(1970, 1, 1, tzinfo=UTC), None]
    batch = pa.record_batch(
        {
            "key": pa.array([b"k", None, b""]),
            "value": pa.array([b"v", b"", None]),
            "partition": pa.array([1, 1, 1], pa.int32()),
            "timestamp": pa.array(times, TIMESTAMP),
            "headers": pa.array(headers, HEADERS),
        }
    )
    before = int(time.time() * 1000)
    assert delivery.write_at_least_once(settings_for(plain_broker, topic), [batch], 0) == DeliveryResult(3)
    first, second, third = read(plain_broker.bootstrap_servers, topic)
    assert first == (1, 0, b"k", b"v", 1767323045678, [("a", b"1"), ("a", None)])
    assert second == (1, 1, None, b"", 0, None)
    assert third[:4] == (1, 2, b"", None) and before <= third.timestamp_ms <= time.time() * 1000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_rows_keep_their_order_in_each_partition(plain_broker: RunningBroker, codec: str) -> None:
    topic = new_topic(plain_broker, 3)
    options = {"kafka_compression_type": codec, "kafka_batch_size": "1000", "kafka_buffer_memory": "20000"}
    batches = [pa.record_batch({"value": [f"{part:03}-{row:04}" for row in range(500)]}) for part in range(6)]
    delivery.write_at_least_once(settings_for(plain_broker, topic, **options), batches, 0)
    records = read(plain_broker.bootstrap_servers, topic)
    for partition in range(3):
        of_partition = [record.value for record in records if record.partition == partition]
        assert of_partition and of_partition == sorted(of_partition, key=lambda value: value or b"")
    assert sorted(record.value or b"" for record in records) == sorted(
        value.as_py().encode() for batch in batches for value in batch.column("value")
    )


def test_a_lost_response_causes_no_duplicates(plain_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, lost = new_topic(plain_broker), iter([True, False, True])

    class LosingClient(Client):
        def wait(self, sent: SentRequest) -> Any:
            answer = super().wait(sent)
            if next(lost, False):
                raise ClientError("the answer is lost", ErrorReaction.FIND_BOTH)
            return answer

    monkeypatch.setattr(delivery, "Client", LosingClient)
    settings = settings_for(plain_broker, topic, kafka_batch_size="100", kafka_retry_backoff_ms="1")
    delivery.write_at_least_once(settings, [batch_of("a")], 0)
    assert sorted_values(plain_broker, topic) == wanted("a")


def test_too_large_batches_are_split_and_a_too_large_record_is_named(plain_broker: RunningBroker) -> None:
    topic = new_topic(plain_broker, 1, max_message_bytes="500")
    rows = pa.record_batch({"value": [b"%03d" % number + bytes(97) for number in range(40)]})
    delivery.write_at_least_once(settings_for(plain_broker, topic), [rows], 0)
    assert values(plain_broker.bootstrap_servers, topic) == [value.as_py() for value in rows.column("value")]
    large = pa.record_batch({"key": [b"a", b"b"], "value": [b"", bytes(600)]})
    with pytest.raises(RecordRefused, match=rf"row 1 to {topic}-0, key b'b': MESSAGE_TOO_LARGE"):
        delivery.write_at_least_once(settings_for(plain_broker, topic), [large], 0)


def test_the_error_names_an_unknown_topic_or_partition(plain_broker: RunningBroker) -> None:
    nowhere = settings_for(plain_broker, "nowhere", kafka_max_block_ms="150")
    with pytest.raises(WriteFailed, match="topic nowhere: UNKNOWN_TOPIC_OR_PARTITION after 150 ms"):
        delivery.write_at_least_once(nowhere, [batch_of("a")], 0)
    topic = new_topic(plain_broker, 2)
    rows = pa.record_batch({"value": ["a"], "partition": pa.array([2], pa.int32())})
    with pytest.raises(WriteFailed, match=f"partition 2 of topic {topic}, which has 2, is not present in metadata"):
        delivery.write_at_least_once(settings_for(plain_broker, topic, kafka_max_block_ms="0"), [rows], 0)


def test_a_topic_is_auto_created_if_the_broker_allows_it(broker: RunningBroker) -> None:
    delivery.write_at_least_once(settings_for(broker, "made"), [batch_of("a")], 0)
    assert sorted_values(broker, "made") == wanted("a")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_each_row_is_written_once_in_each_scenario_of_failures(
    broker: RunningBroker, topic: str, scenario: Callable[[Broker, str], None]
) -> None:
    scenario(broker, topic)


def test_a_task_without_rows_sends_no_request(tmp_path: Path) -> None:
    nowhere = parse_settings({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "delivery": "exactly-once"})
    assert delivery.write_exactly_once(nowhere, [batch_of("a", 0)], "t-0", 0, 0) == DeliveryResult(0)
    delivery.commit_transactions(nowhere, [])
    delivery.abort_transactions(nowhere, [])


def test_partitions_and_coordinators_of_several_nodes_are_found(tmp_path: Path) -> None:
    with running_broker(tmp_path, nodes=3) as broker:
        topic = new_topic(broker, 6)
        settings = exactly_once(broker, topic, kafka_batch_size="100")
        delivery.commit_transactions(settings, [write(settings, name, task=task) for task, name in enumerate("abcdef")])
        assert sorted_values(broker, topic) == wanted(*"abcdef")
        records = read(broker.bootstrap_servers, topic)
        assert {record.partition for record in records} == set(range(6))
        with Client(broker.bootstrap_servers) as client:
            assert {client.find_leader(partition).node_id for partition in client.list_partitions([topic])} == {1, 2, 3}


@contextmanager
def broker_of_one_address(directory: Path) -> Iterator[RunningBroker]:
    """A broker that has the same address after a restart."""
    with running_broker(directory, f"listeners=PLAINTEXT://127.0.0.1:{free_ports(1)}") as broker:
        yield broker


def test_a_commit_finds_its_coordinator_after_a_kill(tmp_path: Path) -> None:
    with broker_of_one_address(tmp_path) as broker:
        topic = new_topic(broker)
        settings = exactly_once(broker, topic)
        left = [write(settings, "a", task=0), write(settings, "b", task=1)]
        broker.kill()
        broker.start()
        delivery.commit_transactions(settings, left)
        assert sorted_values(broker, topic) == wanted("a", "b")


def test_a_commit_to_a_stopped_broker_can_be_repeated_later(tmp_path: Path) -> None:
    with broker_of_one_address(tmp_path) as broker:
        topic = new_topic(broker)
        settings = exactly_once(broker, topic)
        timeouts = ("kafka_request_timeout_ms", "kafka_delivery_timeout_ms", "kafka_max_block_ms")
        impatient = exactly_once(broker, topic, **dict.fromkeys(timeouts, "500"))
        left = write(settings, "a")
        broker.kill()
        with pytest.raises(WriteFailed, match=r"transactional id topic-\d+-0: committing: "):
            delivery.commit_transactions(impatient, [left])
        broker.start()
        delivery.commit_transactions(settings, [left])
        assert sorted_values(broker, topic) == wanted("a")
