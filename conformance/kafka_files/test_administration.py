"""What administrators have changed at minibroker is recorded as by Apache Kafka, and Apache Kafka goes on with it.

Two nodes, of which one is forgotten in the end; replicas, leaders, features, quotas, credentials and configs change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.kafka_files.conftest import METADATA, OUR_SETTINGS, Brokers, complaints, copied
from conformance.kafka_files.dumping import dump
from conformance.kafka_files.test_dump_log import RECORD
from conformance.kafka_files.test_there_and_back import objections
from conformance.wire.connection import Connection
from conformance.wire.requests import create_request, metadata_of, repeated, topic
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.cluster import ApiVersionsRequest, UnregisterBrokerRequest, UpdateFeaturesRequest
from minibroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from minibroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from minibroker.protocol.messages.replicas import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from tests.running import running_broker

GROUP, METRICS = 32, 16
ELR = "eligible.leader.replicas.version"
NAME = "moved"


def reassignment(*replicas: int) -> Message:
    shape = AlterPartitionReassignmentsRequest.ReassignableTopic
    partition = shape.ReassignablePartition(partition_index=0, replicas=list(replicas))
    made: Message = AlterPartitionReassignmentsRequest(topics=[shape(name=NAME, partitions=[partition])])
    return made


def config(kind: int, name: str, key: str, value: str) -> Message:
    shape = IncrementalAlterConfigsRequest.AlterConfigsResource
    line = shape.AlterableConfig(name=key, config_operation=0, value=value)
    made: Message = IncrementalAlterConfigsRequest(
        resources=[shape(resource_type=kind, resource_name=name, configs=[line])]
    )
    return made


def changes() -> Iterator[tuple[Message, int]]:
    """The requests of the administrator, each in the version it is sent in."""
    yield create_request(topic(NAME, partitions=-1, replication_factor=-1, assignments=[(0, [1])])), 7
    yield reassignment(0, 1), 1
    yield reassignment(1, 0), 1
    yield ElectLeadersRequest(election_type=0, topic_partitions=None), 2
    yield reassignment(0), 1
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=ELR, max_version_level=1)
    yield UpdateFeaturesRequest(feature_updates=[update]), 2
    entry = AlterClientQuotasRequest.EntryData
    for key, value, remove in (("producer_byte_rate", 5.0, False), ("request_percentage", 9.5, False)):
        change = entry.OpData(key=key, value=value, remove=remove)
        entity = [entry.EntityData(entity_type="user", entity_name="ann")]
        yield AlterClientQuotasRequest(entries=[entry(entity=entity, ops=[change])]), 1
    gone = entry.OpData(key="request_percentage", remove=True)
    yield AlterClientQuotasRequest(entries=[entry(entity=entity, ops=[gone])]), 1
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    for name in ("ann", "bob"):
        wanted = upsertion(name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"x" * 32)
        yield AlterUserScramCredentialsRequest(upsertions=[wanted]), 0
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="bob", mechanism=1)
    yield AlterUserScramCredentialsRequest(deletions=[deletion]), 0
    yield config(GROUP, "g", "consumer.session.timeout.ms", "50000"), 1
    yield config(METRICS, "m", "interval.ms", "1000"), 1


def assert_done(answer: Any) -> None:
    """That there is no error code in an answer, however deep."""
    assert "error_code=" not in str(answer).replace("error_code=0", ""), answer


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("administered")
    with running_broker(directory, *OUR_SETTINGS, nodes=2) as broker:
        with Connection(broker.bootstrap_servers.split(",")[0]) as connection:
            for request, version in changes():
                assert_done(connection.ask(request, version))
        broker.stop()
    with running_broker(directory, *OUR_SETTINGS) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert_done(connection.ask(UnregisterBrokerRequest(broker_id=1), 0))
        broker.stop()
    return directory / "data"


def test_kafkas_tool_reads_every_metadata_record(administered: Path) -> None:
    dumped = dump((administered / METADATA).glob("*.log"), "--cluster-metadata-decoder")
    assert dumped.complaints == ""
    (lines,) = dumped.lines.values()
    records: list[dict[str, Any]] = [json.loads(match[1]) for match in map(RECORD.match, lines) if match]
    kinds = Counter(record["type"] for record in records)
    assert kinds["UNREGISTER_BROKER_RECORD"] == kinds["REMOVE_USER_SCRAM_CREDENTIAL_RECORD"] == 1
    assert (kinds["CLIENT_QUOTA_RECORD"], kinds["USER_SCRAM_CREDENTIAL_RECORD"]) == (3, 2)
    moves = [record["data"] for record in records if record["type"] == "PARTITION_CHANGE_RECORD"]
    assert [move["addingReplicas"] for move in moves if move.get("addingReplicas")] == [[0]]
    assert [move["leader"] for move in moves if move.get("leader", -2) >= 0] == [0]
    features = [record["data"] for record in records if record["type"] == "FEATURE_LEVEL_RECORD"]
    assert features[-1] == {"name": ELR, "featureLevel": 1}


def seen(connection: Connection) -> dict[str, Any]:
    """Return what a client sees of what was changed."""
    partition = metadata_of(connection, NAME).partitions[0]
    quotas = connection.ask(DescribeClientQuotasRequest(), 1).entries
    users = connection.ask(DescribeUserScramCredentialsRequest(users=None), 0).results
    features = connection.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = [
        resource(resource_type=GROUP, resource_name="g", configuration_keys=["consumer.session.timeout.ms"]),
        resource(resource_type=METRICS, resource_name="m", configuration_keys=["interval.ms"]),
    ]
    results = connection.ask(DescribeConfigsRequest(resources=asked), 4).results
    return {
        "partition": (partition.replica_nodes, partition.isr_nodes, partition.leader_id),
        "quotas": [(value.key, value.value) for one in quotas for value in one.values],
        "users": [(one.user, one.credential_infos[0].iterations) for one in users],
        "features": {one.name: one.max_version_level for one in features.finalized_features}[ELR],
        "configs": [(one.value, one.config_source) for result in results for one in result.configs],
    }


def test_kafka_and_minibroker_describe_the_directory_alike(
    administered: Path, brokers: Brokers, tmp_path: Path
) -> None:
    logs = copied(administered, tmp_path / "logs")
    expected = {
        "partition": ([0], [0], 0),
        "quotas": [("producer_byte_rate", 5.0)],
        "users": [("ann", 4096)],
        "features": 1,
        "configs": [("50000", 8), ("1000", 7)],
    }
    with brokers.kafka(logs) as kafka:
        with Connection(kafka.bootstrap_servers) as connection:
            assert repeated(lambda: seen(connection), lambda found: found == expected) == expected
        kafka.stop()
        assert objections(kafka) == []
    with brokers.minibroker(logs) as broker:
        with Connection(broker.bootstrap_servers) as connection:
            assert seen(connection) == expected
        assert complaints(broker) == []
