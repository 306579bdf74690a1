"""What must hold of the delivery that writes each row once, as scenarios: they are asked of several brokers.

A task is a call here, and so is a commit; the test files say of which broker a scenario is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import pyarrow as pa
import pytest

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.sink import delivery
from minibroker.pipeline.sink.delivery import DeliveryResult, OpenTransaction
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from minibroker.pipeline.sink.sink_transaction import ProducerFenced, WriteFailed
from minibroker.protocol.messages.cluster import ApiVersionsRequest, UpdateFeaturesRequest
from tests.pipeline.sink.committed import create_topic, values

NUMBERS = count()
SAFE_DOWNGRADE = 2
PATIENCE_S = 30
# Transactions that time out are looked for soon enough for a test.
PROMPT = "transaction.abort.timed.out.transaction.cleanup.interval.ms=100"


class Broker(Protocol):
    """Any Kafka."""

    bootstrap_servers: str


def new_topic(broker: Broker, partitions: int = 2, **config: str) -> str:
    name = f"topic-{next(NUMBERS)}"
    create_topic(broker.bootstrap_servers, name, partitions, **config)
    return name


def set_generation(broker: Broker, generation: int) -> None:
    """Set the generation of transactions: the second, as in a new cluster, or the first."""
    with Client(broker.bootstrap_servers) as client:
        if generation != find_generation(client):
            update = UpdateFeaturesRequest.FeatureUpdateKey(
                feature="transaction.version", max_version_level=generation, upgrade_type=SAFE_DOWNGRADE
            )
            answer = client.request(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]))
            client.check(answer.error_code, "transaction.version")
        deadline = time.monotonic() + PATIENCE_S
        while find_generation(client) != generation:  # Apache Kafka's brokers learn of it after its controller
            assert time.monotonic() < deadline


def find_generation(client: Client) -> int:
    answer = client.request(ApiVersionsRequest(client_software_name="tests", client_software_version="1"))
    return {each.name: each.max_version_level for each in answer.finalized_features or []}.get("transaction.version", 1)


def settings_for(broker: Broker, topic: str, **options: str) -> SinkSettings:
    """Settings that give up soon; names have `_` for `.` after `kafka_`."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    return parse_settings(given | {name.replace("_", "."): value for name, value in options.items()})


def exactly_once(broker: Broker, topic: str, **options: str) -> SinkSettings:
    return settings_for(broker, topic, delivery="exactly-once", **options)


def batch_of(name: str, rows: int = 10) -> pa.RecordBatch:
    keys = [str(number) for number in range(rows)]
    return pa.record_batch({"value": [f"{name}-{key}" for key in keys], "key": keys})


def wanted(*names: str) -> list[bytes]:
    """The values of these batches, sorted."""
    return sorted(f"{name}-{number}".encode() for name in names for number in range(10))


def sorted_values(broker: Broker, topic: str, isolation: str = "read_committed") -> list[bytes]:
    return sorted(value or b"" for value in values(broker.bootstrap_servers, topic, isolation))


def assert_committed(broker: Broker, topic: str, expected: list[bytes]) -> None:
    """Look until these values are there: Apache Kafka writes the markers of a transaction after it has answered."""
    deadline = time.monotonic() + PATIENCE_S
    while (seen := sorted_values(broker, topic)) != expected and time.monotonic() < deadline:
        pass
    assert seen == expected


def write(settings: SinkSettings, name: str, number: int = 0, task: int = 0) -> OpenTransaction:
    """A task that leaves its transaction open."""
    delivered = delivery.write_exactly_once(settings, [batch_of(name)], f"{settings.topic}-{task}", number, task)
    assert delivered.transaction is not None and delivered.rows == 10
    return delivered.transaction


def rows_are_seen_when_the_transactions_of_all_tasks_are_committed(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    left = [write(settings, "a", task=0), write(settings, "b", task=1)]
    assert sorted_values(broker, topic) == []
    delivery.commit_transactions(settings, left)
    assert_committed(broker, topic, wanted("a", "b"))
    delivery.commit_transactions(settings, [write(settings, "c", number=1)])
    assert_committed(broker, topic, wanted("a", "b", "c"))


def a_commit_can_be_done_again(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    left = [write(settings, "a")]
    delivery.commit_transactions(settings, left)
    delivery.commit_transactions(settings, left)
    delivery.abort_transactions(settings, left)  # as Spark does when a commit failed half-way
    assert_committed(broker, topic, wanted("a"))


def a_batch_done_again_writes_only_what_was_not_committed(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    left = [write(settings, "a", task=0), write(settings, "b", task=1)]
    delivery.commit_transactions(settings, left[:1])  # the driver dies here
    again = delivery.write_exactly_once(settings, [batch_of("a")], f"{topic}-0", 0, 0)
    assert again == DeliveryResult(10)
    delivery.commit_transactions(settings, [write(settings, "b", task=1)])
    assert_committed(broker, topic, wanted("a", "b"))
    assert len(sorted_values(broker, topic, "read_uncommitted")) == 30


def a_task_done_again_aborts_what_it_had_written(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    write(settings, "a")
    delivery.commit_transactions(settings, [write(settings, "a")])
    assert_committed(broker, topic, wanted("a"))


def a_driver_that_was_replaced_commits_nothing(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    zombies = write(settings, "zombie")
    mine = write(settings, "mine")
    with pytest.raises(ProducerFenced, match="the rows of this task are not committed"):
        delivery.commit_transactions(settings, [zombies])
    delivery.abort_transactions(settings, [zombies])
    delivery.commit_transactions(settings, [mine])
    delivery.commit_transactions(settings, [zombies])  # its rows are there by now, though it was not he who wrote them
    assert_committed(broker, topic, wanted("mine"))


def an_aborted_batch_is_not_seen(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    left = [write(settings, "a", task=0), write(settings, "b", task=1)]
    delivery.commit_transactions(settings, left[:1])
    delivery.abort_transactions(settings, left)
    assert_committed(broker, topic, wanted("a"))


def a_task_that_fails_aborts_at_once(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic, kafka_buffer_memory="1")

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch_of("a")
        raise OSError("the rows cannot be read")

    with pytest.raises(OSError, match="the rows cannot be read"):
        delivery.write_exactly_once(settings, failing(), f"{topic}-0", 0, 0)
    delivery.write_at_least_once(settings_for(broker, topic), [batch_of("b")], 0)
    assert_committed(broker, topic, wanted("b"))  # the last stable offset does not wait


def a_transaction_that_took_too_long_is_said_to_have(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic, kafka_transaction_timeout_ms="2000")
    left = write(settings, "a")
    _wait_until_aborted(broker, topic)
    with pytest.raises(ProducerFenced, match=r"took longer than kafka\.transaction\.timeout\.ms=2000"):
        delivery.commit_transactions(settings, [left])
    assert_committed(broker, topic, [b"behind-0"])


def _wait_until_aborted(broker: Broker, topic: str) -> None:
    """Until the transaction is gone, a record behind it is not seen."""
    delivery.write_at_least_once(settings_for(broker, topic), [batch_of("behind", 1)], 0)
    deadline = time.monotonic() + 30
    while not sorted_values(broker, topic):
        assert time.monotonic() < deadline


def a_timeout_above_the_brokers_maximum_is_named(broker: Broker, topic: str) -> None:
    with pytest.raises(WriteFailed, match=r"kafka\.transaction\.timeout\.ms=900001 is above the broker's maximum"):
        write(exactly_once(broker, topic, kafka_transaction_timeout_ms="900001"), "a")


def other_rows_than_those_committed_are_refused(broker: Broker, topic: str) -> None:
    settings = exactly_once(broker, topic)
    delivery.commit_transactions(settings, [write(settings, "a", number=3)])
    with pytest.raises(WriteFailed, match="Each task must write the same rows when Spark repeats a batch"):
        delivery.write_exactly_once(settings, [batch_of("a", 9)], f"{topic}-0", 3, 0)
    with pytest.raises(WriteFailed, match="batch 3 is committed, but batch 2 was to be"):
        delivery.write_exactly_once(settings, [batch_of("a")], f"{topic}-0", 2, 0)
    assert_committed(broker, topic, wanted("a"))


SCENARIOS: tuple[Callable[[Broker, str], None], ...] = (
    rows_are_seen_when_the_transactions_of_all_tasks_are_committed,
    a_commit_can_be_done_again,
    a_batch_done_again_writes_only_what_was_not_committed,
    a_task_done_again_aborts_what_it_had_written,
    a_driver_that_was_replaced_commits_nothing,
    an_aborted_batch_is_not_seen,
    a_task_that_fails_aborts_at_once,
    a_transaction_that_took_too_long_is_said_to_have,
    a_timeout_above_the_brokers_maximum_is_named,
    other_rows_than_those_committed_are_refused,
)
