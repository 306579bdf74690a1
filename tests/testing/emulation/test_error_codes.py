"""Error codes of older releases: which there were, and what clients get where today's code came later."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import CorruptRecordError, InvalidRecordError

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import ElectLeadersRequest
from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.testing import Broker
from minibroker.testing.emulation.emulation import (
    BEFORE,
    OTHERWISE,
    Emulation,
    find_newest_error_code,
    translate_error_code_to_release,
)
from minibroker.testing.emulation.releases import RELEASES
from tests.testing.emulation.asking import asked

pytestmark = pytest.mark.usefixtures("leaves_sockets")


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_returns_an_error_code_it_did_not_have(release: str) -> None:
    assert all(translate_error_code_to_release(release, code) <= find_newest_error_code(release) for code in ErrorCode)
    assert all(
        translate_error_code_to_release(release, code) == code
        for code in ErrorCode
        if code <= find_newest_error_code(release)
    )


def test_the_newest_release_has_all_error_codes() -> None:
    assert find_newest_error_code("4.4") == max(ErrorCode)


@pytest.mark.parametrize("code", BEFORE)
def test_the_replacement_of_an_error_code_is_older(code: ErrorCode) -> None:
    assert BEFORE[code] < code


def test_an_error_code_without_a_replacement_is_an_unknown_error() -> None:
    assert (
        translate_error_code_to_release("2.0", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) == ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert (
        translate_error_code_to_release("2.1", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


@pytest.mark.parametrize(
    ("release", "code"),
    [
        ("0.10.2", KafkaError.INVALID_MSG),
        ("2.3", KafkaError.INVALID_MSG),
        ("2.4", KafkaError.INVALID_RECORD),
        ("4.3", KafkaError.INVALID_RECORD),
    ],
)
def test_librdkafka_reports_a_record_without_a_key_in_a_compacted_topic(release: str, code: int) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("compacted", cleanup_policy="compact")
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "retries": 0}
        producer = Producer(settings)
        reported: list[KafkaError] = []
        producer.produce("compacted", "a", on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(20) == 0
        assert [error.code() for error in reported] == [code]


@pytest.mark.parametrize(("release", "error"), [("2.3", CorruptRecordError), ("2.4", InvalidRecordError)])
def test_kafka_python_reports_a_record_without_a_key_in_a_compacted_topic(release: str, error: type[Exception]) -> None:
    with Broker(emulate=release) as broker:
        broker.create_topic("compacted", cleanup_policy="compact")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, enable_idempotence=False)
        with pytest.raises(error):
            producer.send("compacted", b"a").get(20)
        producer.close()


@pytest.mark.parametrize(("release", "code"), [("2.3", ErrorCode.NONE), ("2.4", ErrorCode.ELECTION_NOT_NEEDED)])
def test_an_unneeded_election_is_no_error_before_2_4(release: str, code: ErrorCode) -> None:
    with Broker(emulate=release) as broker:
        broker.produce("t", "a")
        wanted = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
        (topic,) = asked(broker, ElectLeadersRequest(topic_partitions=[wanted]), 0).replica_election_results
        assert [partition.error_code for partition in topic.partition_result] == [code]


@pytest.mark.parametrize(("release", "code"), [("4.3", ErrorCode.INVALID_RECORD_STATE), ("3.8", OTHERWISE)])
def test_a_share_fetch_keeps_the_error_of_its_acknowledgements(release: str, code: ErrorCode) -> None:
    topic = ShareFetchResponse.ShareFetchableTopicResponse
    partition = topic.PartitionData(partition_index=0, acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)
    call: Any = Mock(api_key=ApiKey.SHARE_FETCH)
    Emulation(release).alter_response(call, ShareFetchResponse(responses=[topic(partitions=[partition])]))
    assert (partition.error_code, partition.acknowledge_error_code) == (ErrorCode.NONE, code)


def test_a_fault_returns_an_error_code_that_the_release_had() -> None:
    with Broker(emulate="2.3") as broker:
        broker.produce("t", "a")
        fault = broker.faults.add(api="Produce", error="INVALID_RECORD")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "retries": 0})
        reported: list[KafkaError] = []
        producer.produce("t", "b", on_delivery=lambda error, _: reported.append(error))
        assert producer.flush(20) == 0
        assert [error.code() for error in reported] == [KafkaError.INVALID_MSG]
        assert fault.hits == 1
