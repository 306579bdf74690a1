"""What confluent-kafka's AdminClient asks of topics, configs, the cluster and records, of three nodes in one process.

Topics made, grown and deleted by every library are in `test_admin.py`; groups have files of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.running import RunningBroker, running_broker

PATIENCE_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("cluster")
    with running_broker(directory, nodes=3) as running:
        yield running


@pytest.fixture
def admin(cluster: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers}, logger=logging.getLogger("librdkafka"))


def done(futures: Mapping[Any, Any]) -> Any:
    """The answer to a question about one thing."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def refused(futures: Mapping[Any, Any]) -> int:
    """The error code of a question about one thing."""
    with pytest.raises(KafkaException) as caught:
        done(futures)
    code: int = caught.value.args[0].code()
    return code


def create(admin: AdminClient, name: str, assignment: list[list[int]]) -> None:
    wanted = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment)
    done(admin.create_topics([wanted]))


def test_the_cluster_is_described_to_confluent_kafka(admin: AdminClient) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(PATIENCE_S)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.controller.id == 1
    assert AclOperation.ALTER in described.authorized_operations
    assert described.cluster_id == admin.list_topics(timeout=PATIENCE_S).cluster_id


def test_topics_are_described_with_their_replicas(admin: AdminClient, topic_name: str) -> None:
    create(admin, topic_name, [[2, 3], [3, 1]])
    described = done(admin.describe_topics(TopicCollection([topic_name]), include_authorized_operations=True))
    assert [
        (one.leader.id, [node.id for node in one.replicas], [node.id for node in one.isr])
        for one in described.partitions
    ] == [(2, [2, 3], [2, 3]), (3, [3, 1], [3, 1])]
    assert AclOperation.DELETE in described.authorized_operations
    unknown = admin.describe_topics(TopicCollection([f"{topic_name}-not"]))
    assert refused(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_preferred_leaders_are_elected(admin: AdminClient, topic_name: str) -> None:
    create(admin, topic_name, [[2, 3]])
    asked = [TopicPartition(topic_name, 0), TopicPartition(topic_name, 7)]
    found = admin.elect_leaders(ElectionType.PREFERRED, asked).result(PATIENCE_S)
    assert {partition.partition: error.code() for partition, error in found.items()} == {
        0: KafkaError.ELECTION_NOT_NEEDED,
        7: KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    everything = admin.elect_leaders(ElectionType.UNCLEAN, None).result(PATIENCE_S)
    assert everything == {}


@pytest.mark.parametrize(
    ("kind", "name", "key", "text", "source"),
    [
        (ResourceType.TOPIC, None, "retention.ms", "123456", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        (ResourceType.GROUP, "of-confluent", "consumer.session.timeout.ms", "50000", None),
    ],
)
def test_configs_are_changed_and_described(
    admin: AdminClient,
    topic_name: str,
    kind: ResourceType,
    name: str | None,
    key: str,
    text: str,
    source: ConfigSource | None,
) -> None:
    if name is None:
        create(admin, topic_name, [[1]])
    named = topic_name if name is None else name
    change = ConfigEntry(key, text, incremental_operation=AlterConfigOpType.SET)
    done(admin.incremental_alter_configs([ConfigResource(kind, named, incremental_configs=[change])]))
    found = done(admin.describe_configs([ConfigResource(kind, named)]))[key]
    assert (found.value, found.is_read_only) == (text, False)
    if source is not None:  # librdkafka knows no name for that of groups
        assert ConfigSource(found.source) is source
    back = ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
    done(admin.incremental_alter_configs([ConfigResource(kind, named, incremental_configs=[back])]))


def test_an_invalid_config_is_rejected(admin: AdminClient, topic_name: str) -> None:
    create(admin, topic_name, [[1]])
    change = ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic_name, incremental_configs=[change])
    assert refused(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG


def test_records_are_deleted_and_offsets_listed(cluster: RunningBroker, admin: AdminClient, topic_name: str) -> None:
    create(admin, topic_name, [[3]])
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(5):
        producer.produce(topic_name, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    partition = TopicPartition(topic_name, 0)
    assert done(admin.delete_records([TopicPartition(topic_name, 0, 2)])).low_watermark == 2
    assert done(admin.list_offsets({partition: OffsetSpec.earliest()})).offset == 2
    assert done(admin.list_offsets({partition: OffsetSpec.latest()})).offset == 5
    assert refused(admin.delete_records([TopicPartition(topic_name, 0, 9)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_scram_credentials_are_stored(cluster: RunningBroker, admin: AdminClient, topic_name: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion(topic_name, info, b"secret", b"salt")]))
    (described,) = done(admin.describe_user_scram_credentials([topic_name])).scram_credential_infos
    assert (described.mechanism, described.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialDeletion(topic_name, ScramMechanism.SCRAM_SHA_256)]))
    assert refused(admin.describe_user_scram_credentials([topic_name])) == KafkaError.RESOURCE_NOT_FOUND


def test_acl_requests_without_an_authorizer_are_rejected(admin: AdminClient) -> None:
    allowed = AclOperation.READ, AclPermissionType.ALLOW
    acl = AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", *allowed)
    assert refused(admin.create_acls([acl])) == KafkaError.SECURITY_DISABLED
