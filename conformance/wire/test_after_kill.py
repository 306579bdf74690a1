"""What a broker still knows after a kill -9: topics and their ids, configs, records, leader epochs, sequences.

Every literal is what Apache Kafka 4.4 answers. The broker is killed once, for all tests of this file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conformance.conftest import Broker
from conformance.wire.batches import batch
from conformance.wire.connection import Connection
from conformance.wire.requests import (
    LATEST,
    Fetched,
    Outcome,
    asked,
    create_request,
    fetch_request,
    fetched,
    list_offset,
    metadata_of,
    produce,
    repeated,
    stored,
    topic,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.log_offsets import OffsetForLeaderEpochRequest

NOW_MS = int(time.time() * 1000)
NAME = "survivor"
PRODUCER_ID = 1 << 40
TOPIC_RESOURCE = 2


def sequenced(sequence: int, count: int = 1) -> bytes:
    return batch([b"v"] * count, timestamp=NOW_MS, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)


class Before(NamedTuple):
    """The state before the kill: partition 0 has offsets 0 to 4, of one producer; partition 1 is for writing."""

    topic_id: bytes
    records: list[Any]


@pytest.fixture(scope="module")
def killed(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Before]]:
    """A broker that was killed and started again, and how it was before."""
    with start_broker(tmp_path_factory.mktemp("killed")) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            before = filled(connection)
        broker.kill()
        broker.start()
        yield broker, before


def filled(connection: Connection) -> Before:
    wanted = topic(NAME, 2, configs={"retention.ms": "-1", "segment.ms": "77"})
    assert connection.ask(create_request(wanted), 7).topics[0].error_code == 0
    for partition in (0, 1):
        await_leader(connection, partition)
    for sequence, count in ((0, 2), (2, 3)):
        assert produce(connection, NAME, sequenced(sequence, count)).error_code == 0
    return Before(metadata_of(connection, NAME).topic_id, stored(connection, NAME))


def await_leader(connection: Connection, partition: int) -> None:
    answer = repeated(lambda: list_offset(connection, NAME, LATEST, partition), lambda seen: seen.error_code == 0)
    assert answer.error_code == 0


@pytest.fixture
def connection(killed: tuple[Broker, Before]) -> Iterator[Connection]:
    with Connection(killed[0].bootstrap_servers) as opened:
        for partition in (0, 1):
            await_leader(opened, partition)
        yield opened


@pytest.fixture
def before(killed: tuple[Broker, Before]) -> Before:
    return killed[1]


@pytest.fixture
def epoch(connection: Connection) -> int:
    """The leader epoch of now. Only that it rose is known: Kafka raises it by as many elections as it holds."""
    current: int = metadata_of(connection, NAME).partitions[0].leader_epoch
    assert current > 0
    return current


def test_topics_and_records_survive_a_kill(connection: Connection, before: Before) -> None:
    known = metadata_of(connection, NAME)
    assert (known.error_code, known.topic_id, len(known.partitions)) == (0, before.topic_id, 2)
    assert stored(connection, NAME) == before.records
    assert list_offset(connection, NAME, LATEST).offset == 5


def test_configs_survive_a_kill(connection: Connection) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=NAME, configuration_keys=["retention.ms", "segment.ms"]
    )
    (answer,) = connection.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert {each.name: each.value for each in answer.configs} == {"retention.ms": "-1", "segment.ms": "77"}


def test_a_consumer_with_the_old_leader_epoch_is_fenced(connection: Connection, epoch: int) -> None:
    expected = {
        epoch - 1: Fetched(ErrorCode.FENCED_LEADER_EPOCH),
        epoch: Fetched(0, 5, 0, (0, 2)),
        epoch + 1: Fetched(ErrorCode.UNKNOWN_LEADER_EPOCH),
    }
    for each, answer in expected.items():
        request = fetch_request({NAME: [asked(current_leader_epoch=each)]})
        assert fetched(connection.ask(request, 12)) == {(NAME, 0): answer}
        assert list_offset(connection, NAME, LATEST, current_leader_epoch=each).error_code == answer.error_code


def test_the_end_offset_of_the_leader_epoch_before_the_kill_is_found(connection: Connection, epoch: int) -> None:
    listed = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    wanted = listed.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[listed(topic=NAME, partitions=[wanted])])
    (answer,) = connection.ask(request, 4).topics[0].partitions
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 5)


def test_new_batches_have_the_new_leader_epoch(connection: Connection, epoch: int) -> None:
    assert produce(connection, NAME, batch([b"a"], timestamp=NOW_MS), partition=1).error_code == 0
    assert stored(connection, NAME, 1)[-1].leader_epoch == epoch
    assert list_offset(connection, NAME, LATEST, 1).leader_epoch == epoch


def test_a_producers_sequence_survives_a_kill(connection: Connection) -> None:
    duplicate = Outcome(0, 2, log_append_time_ms=NOW_MS, log_start_offset=0)
    assert produce(connection, NAME, sequenced(2, 3)) == duplicate
    assert produce(connection, NAME, sequenced(7)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert list_offset(connection, NAME, LATEST).offset == 5
