"""What kafka-python's KafkaAdminClient asks of leaders, directories, features and the quorum, of three nodes.

Topics made, grown and deleted by every library are in `test_admin.py`; groups have files of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import KafkaError, SecurityDisabledError

from minibroker.protocol.errors import ErrorCode
from tests.running import RunningBroker, running_broker

PATIENCE_S = 30
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_broker(directory, f"log.dirs={directory}/one,{directory}/two", nodes=3) as running:
        yield running


@pytest.fixture
def admin(cluster: RunningBroker) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    yield made
    made.close()


@pytest.fixture
def partition(admin: KafkaAdminClient, topic_name: str) -> TopicPartition:
    """Partition 0 of a new topic, which lies on node 1 alone."""
    admin.create_topics([NewTopic(topic_name, -1, -1, replica_assignments={0: [1]})])
    return TopicPartition(topic_name, 0)


def eventually(look: Callable[[], Any], wanted: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)


def described(admin: KafkaAdminClient, partition: TopicPartition) -> dict[str, Any]:
    (topic,) = admin.describe_topics([partition.topic])
    (found,) = [one for one in topic["partitions"] if one["partition_index"] == partition.partition]
    return {name: found[name] for name in ("leader_id", "replica_nodes", "isr_nodes")}


def test_a_producer_continues_during_reassignments_and_elections(
    cluster: RunningBroker, admin: KafkaAdminClient, partition: TopicPartition, complaints: list[str]
) -> None:
    complaints.append("is led by node")  # how the producer learns of the new leader
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","))

    def send() -> int:
        future = producer.send(partition.topic, b"value", partition=0)
        offset: int = future.get(PATIENCE_S).offset
        return offset

    assert send() == 0
    assert admin.alter_partition_reassignments({partition: [2, 3]}) == {partition: None}
    assert admin.list_partition_reassignments() == {}
    assert described(admin, partition) == {"leader_id": 2, "replica_nodes": [2, 3], "isr_nodes": [2, 3]}
    assert send() == 1
    admin.alter_partition_reassignments({partition: [3, 2]})
    assert described(admin, partition)["leader_id"] == 2
    admin.elect_leaders(PREFERRED, {partition.topic: [0]})
    assert described(admin, partition)["leader_id"] == 3
    assert send() == 2
    producer.close()


def test_invalid_reassignments_and_elections_are_rejected(admin: KafkaAdminClient, partition: TopicPartition) -> None:
    (error,) = admin.alter_partition_reassignments({partition: [9]}).values()
    assert error is not None and error.errno == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    (error,) = admin.alter_partition_reassignments({partition: None}).values()
    assert error is not None and error.errno == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    for kind in (PREFERRED, UNCLEAN):
        answer = admin.elect_leaders(kind, {partition.topic: [0]}, raise_errors=False)
        ((result,),) = (topic.partition_result for topic in answer.replica_election_results)
        assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_a_log_moves_to_another_directory(
    cluster: RunningBroker, admin: KafkaAdminClient, partition: TopicPartition
) -> None:
    def place() -> list[str]:
        """The names of the directories in which the log lies, one once the move is done."""
        return [path.parent.name for path in cluster.directory.glob(f"*/{partition.topic}-0*") if path.suffix == ""]

    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","))
    producer.send(partition.topic, b"value", partition=0).get(PATIENCE_S)
    (present,) = place()
    target = "two" if present == "one" else "one"
    (answer,) = admin.alter_replica_log_dirs({(partition.topic, 0, 1): str(cluster.directory / target)}).values()
    assert answer.errno == ErrorCode.NONE
    eventually(place, [target])
    assert producer.send(partition.topic, b"value", partition=0).get(PATIENCE_S).offset == 1
    producer.close()
    (refusal,) = admin.alter_replica_log_dirs({(partition.topic, 0, 1): "/nowhere"}).values()
    assert refusal.errno == ErrorCode.LOG_DIR_NOT_FOUND


def test_log_directories_are_described_by_every_node(admin: KafkaAdminClient, partition: TopicPartition) -> None:
    told = admin.describe_log_dirs([partition.topic])
    assert len(told) == 3
    paths = {Path(found["log_dir"]).name for one in told for found in one["log_dirs"]}
    assert paths == {"one", "two"}


def test_the_quorum_and_features_are_described(admin: KafkaAdminClient) -> None:
    (topic,) = admin.describe_metadata_quorum()["topics"]
    (quorum,) = topic["partitions"]
    assert (quorum["leader_id"], [one["replica_id"] for one in quorum["current_voters"]]) == (1, [1])
    assert sorted(one["replica_id"] for one in quorum["observers"]) == [2, 3]
    version = admin.describe_features()["metadata.version"]
    assert (version["supported"], version["finalized"]) == ((7, 33), (33, 33))


def test_features_are_updated(admin: KafkaAdminClient) -> None:
    name = "streams.version"
    admin.update_features({name: ("SAFE_DOWNGRADE", 0)})
    assert "finalized" not in admin.describe_features()[name]
    admin.update_features({name: 1}, validate_only=True)
    assert "finalized" not in admin.describe_features()[name]
    admin.update_features({name: 1})
    assert admin.describe_features()[name]["finalized"] == (1, 1)
    with pytest.raises(KafkaError):
        admin.update_features({"metadata.version": 99})


def test_partitions_are_described_page_by_page(admin: KafkaAdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 3, 1)])
    page = admin.describe_topic_partitions([topic_name], response_partition_limit=2)
    assert [one["partition_index"] for one in page["topics"][0]["partitions"]] == [0, 1]
    page = admin.describe_topic_partitions([topic_name], cursor=page["next_cursor"])
    assert [one["partition_index"] for one in page["topics"][0]["partitions"]] == [2]
    assert page["next_cursor"] is None


def test_config_resources_are_listed(admin: KafkaAdminClient, partition: TopicPartition) -> None:
    found = admin.list_config_resources()
    assert partition.topic in found["topic"]
    assert sorted(found["broker"]) == sorted(found["broker_logger"]) == ["1", "2", "3"]


def test_acl_requests_without_an_authorizer_are_rejected(admin: KafkaAdminClient) -> None:
    everything = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(everything)
