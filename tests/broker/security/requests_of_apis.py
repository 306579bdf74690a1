"""A request of each API that is served, to which the rights of a client matter."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.messages import (
    cluster,
    configs,
    consumer_groups,
    delegation_tokens,
    groups,
    log_offsets,
    metadata,
    offsets,
    quotas,
    replicas,
    security,
    share_fetch,
    share_groups,
    share_state,
    streams_groups,
    telemetry,
    topics,
    transactions,
)
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import Harness, TopicData, batch

TOPIC, GROUP, ID = "t", "g", "id"
_SHARE_GROUP = share_groups.DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
_SHARE_GROUP_TOPIC = _SHARE_GROUP.DescribeShareGroupOffsetsRequestTopic
_ALTERED = share_groups.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
_DELETED = share_groups.DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic


def _produce(records: bytes, **more: Any) -> ProduceRequest:
    data = TopicData(name=TOPIC, partition_data=[TopicData.PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data], **more)


def _fetch(replica_id: int = -1) -> FetchRequest:
    asked = FetchRequest.FetchTopic(topic=TOPIC, partitions=[FetchRequest.FetchTopic.FetchPartition(partition=0)])
    return FetchRequest(
        replica_id=replica_id, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[asked]
    )


def streams_heartbeat_request(group: str, *changelogs: str) -> streams_groups.StreamsGroupHeartbeatRequest:
    kind = streams_groups.StreamsGroupHeartbeatRequest
    subtopology = kind.Topology.Subtopology(
        subtopology_id="0",
        source_topics=[TOPIC],
        state_changelog_topics=[kind.TopicInfo(name=name) for name in changelogs],
    )
    return kind(
        group_id=group,
        member_id="m",
        rebalance_timeout_ms=1000,
        topology=kind.Topology(subtopologies=[subtopology]),
        process_id="p",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def commit_request() -> offsets.OffsetCommitRequest:
    shape = offsets.OffsetCommitRequest.OffsetCommitRequestTopic
    partition = shape.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return offsets.OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, topics=[shape(name=TOPIC, partitions=[partition])]
    )


def _topic_id(harness: Harness) -> bytes:
    topic = harness.cluster.image.topics.get(TOPIC)
    return ZERO_UUID if topic is None else topic.topic_id


def _share_fetch(harness: Harness) -> share_fetch.ShareFetchRequest:
    Topic = share_fetch.ShareFetchRequest.FetchTopic
    topic_id = _topic_id(harness)
    return share_fetch.ShareFetchRequest(
        group_id="s",
        member_id="n",
        max_bytes=1 << 20,
        max_records=1,
        topics=[Topic(topic_id=topic_id, partitions=[Topic.FetchPartition(partition_index=0)])],
    )


def _share_acknowledge(harness: Harness) -> share_fetch.ShareAcknowledgeRequest:
    harness.request(_share_fetch(harness), user="alice")  # which begins the session, if it may
    Topic = share_fetch.ShareAcknowledgeRequest.AcknowledgeTopic
    batch = Topic.AcknowledgePartition.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partition = Topic.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic_id = _topic_id(harness)
    return share_fetch.ShareAcknowledgeRequest(
        group_id="s",
        member_id="n",
        share_session_epoch=-1,
        topics=[Topic(topic_id=topic_id, partitions=[partition])],
    )


def _share_state(kind: type[Any], topic: type[Any]) -> Any:
    return lambda harness: kind(
        group_id="s",
        topics=[topic(topic_id=_topic_id(harness), partitions=[topic.PartitionData(partition=0)])],
    )


def _commit_in_transaction() -> transactions.TxnOffsetCommitRequest:
    shape = transactions.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = shape.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    asked = [shape(name=TOPIC, partitions=[partition])]
    return transactions.TxnOffsetCommitRequest(transactional_id=ID, group_id=GROUP, topics=asked)


def _fetch_offsets() -> offsets.OffsetFetchRequest:
    shape = offsets.OffsetFetchRequest.OffsetFetchRequestGroup
    topic = shape.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    return offsets.OffsetFetchRequest(groups=[shape(group_id=GROUP, topics=[topic])])


def _create() -> topics.CreateTopicsRequest:
    shape = topics.CreateTopicsRequest.CreatableTopic
    return topics.CreateTopicsRequest(topics=[shape(name="new", num_partitions=1, replication_factor=1)])


def add_partitions_request(version: int) -> transactions.AddPartitionsToTxnRequest:
    request = transactions.AddPartitionsToTxnRequest
    asked = [request.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    if version <= 3:
        return request(v3_and_below_transactional_id=ID, v3_and_below_topics=asked)
    return request(transactions=[request.AddPartitionsToTxnTransaction(transactional_id=ID, topics=asked)])


def _write_markers() -> transactions.WriteTxnMarkersRequest:
    shape = transactions.WriteTxnMarkersRequest.WritableTxnMarker
    topic = shape.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    return transactions.WriteTxnMarkersRequest(markers=[shape(producer_id=1, topics=[topic])])


def _describe_configs() -> configs.DescribeConfigsRequest:
    shape = configs.DescribeConfigsRequest.DescribeConfigsResource
    named = [(2, TOPIC), (4, "1"), (8, "1"), (16, "metrics"), (32, GROUP)]
    return configs.DescribeConfigsRequest(
        resources=[shape(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in named]
    )


def _alter_configs() -> configs.AlterConfigsRequest:
    shape = configs.AlterConfigsRequest.AlterConfigsResource
    named = [(2, TOPIC, "retention.ms"), (4, "1", "log.retention.ms"), (32, GROUP, "consumer.session.timeout.ms")]
    return configs.AlterConfigsRequest(
        resources=[
            shape(
                resource_type=kind,
                resource_name=name,
                configs=[shape.AlterableConfig(name=setting, value="50000")],
            )
            for kind, name, setting in named
        ]
    )


def _alter_configs_incrementally() -> configs.IncrementalAlterConfigsRequest:
    shape = configs.IncrementalAlterConfigsRequest.AlterConfigsResource
    named = [(2, TOPIC), (4, "1"), (8, "1"), (16, "metrics"), (32, GROUP)]
    return configs.IncrementalAlterConfigsRequest(
        resources=[shape(resource_type=kind, resource_name=name) for kind, name in named]
    )


def _alter_quotas() -> quotas.AlterClientQuotasRequest:
    shape = quotas.AlterClientQuotasRequest.EntryData
    entity = [shape.EntityData(entity_type="user", entity_name="u")]
    change = [shape.OpData(key="producer_byte_rate", value=1.0)]
    return quotas.AlterClientQuotasRequest(entries=[shape(entity=entity, ops=change)])


def _alter_credentials() -> security.AlterUserScramCredentialsRequest:
    shape = security.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    changed = shape(name="u", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    return security.AlterUserScramCredentialsRequest(upsertions=[changed])


def _elect() -> replicas.ElectLeadersRequest:
    shape = replicas.ElectLeadersRequest.TopicPartitions
    return replicas.ElectLeadersRequest(topic_partitions=[shape(topic=TOPIC, partitions=[0])])


def _reassign() -> replicas.AlterPartitionReassignmentsRequest:
    shape = replicas.AlterPartitionReassignmentsRequest.ReassignableTopic
    asked = [shape(name=TOPIC, partitions=[shape.ReassignablePartition(partition_index=0, replicas=[1])])]
    return replicas.AlterPartitionReassignmentsRequest(topics=asked)


def _move_logs() -> replicas.AlterReplicaLogDirsRequest:
    shape = replicas.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = shape.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    return replicas.AlterReplicaLogDirsRequest(dirs=[shape(path="/nowhere", topics=[topic])])


def _delete_offsets() -> offsets.OffsetDeleteRequest:
    shape = offsets.OffsetDeleteRequest.OffsetDeleteRequestTopic
    asked = [shape(name=TOPIC, partitions=[shape.OffsetDeleteRequestPartition(partition_index=0)])]
    return offsets.OffsetDeleteRequest(group_id=GROUP, topics=asked)


def _list_offsets() -> log_offsets.ListOffsetsRequest:
    shape = log_offsets.ListOffsetsRequest.ListOffsetsTopic
    partition = shape.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    return log_offsets.ListOffsetsRequest(topics=[shape(name=TOPIC, partitions=[partition])])


def _ask_for_epoch() -> log_offsets.OffsetForLeaderEpochRequest:
    shape = log_offsets.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition = shape.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return log_offsets.OffsetForLeaderEpochRequest(topics=[shape(topic=TOPIC, partitions=[partition])])


def _delete_records() -> log_offsets.DeleteRecordsRequest:
    shape = log_offsets.DeleteRecordsRequest.DeleteRecordsTopic
    partition = shape.DeleteRecordsPartition(partition_index=0, offset=-1)
    return log_offsets.DeleteRecordsRequest(topics=[shape(name=TOPIC, partitions=[partition])])


def _metadata(name: str) -> metadata.MetadataRequest:
    asked = [metadata.MetadataRequest.MetadataRequestTopic(name=name)]
    return metadata.MetadataRequest(topics=asked, include_cluster_authorized_operations=True)


def _acl() -> security.CreateAclsRequest:
    shape = security.CreateAclsRequest.AclCreation
    return security.CreateAclsRequest(
        creations=[shape(resource_type=2, resource_pattern_type=3, operation=3, permission_type=3)]
    )


ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
Asked = tuple[Message, int | None]  # with its version, if that is not the newest

REQUESTS: dict[ApiKey, list[Asked]] = {
    ApiKey.PRODUCE: [
        (_produce(batch("v")), 9),
        (
            _produce(
                batch("v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), transactional_id=ID
            ),
            9,
        ),
    ],
    ApiKey.FETCH: [(_fetch(), 12), (_fetch(1), 12)],
    ApiKey.LIST_OFFSETS: [(_list_offsets(), None)],
    ApiKey.METADATA: [(_metadata(TOPIC), 10), (_metadata("absent"), 10)],
    ApiKey.OFFSET_COMMIT: [(commit_request(), 9)],
    ApiKey.OFFSET_FETCH: [(_fetch_offsets(), 9)],
    ApiKey.FIND_COORDINATOR: [
        (groups.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), None),
        (groups.FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), None),
    ],
    ApiKey.JOIN_GROUP: [(groups.JoinGroupRequest(group_id=GROUP, session_timeout_ms=10_000), None)],
    ApiKey.HEARTBEAT: [(groups.HeartbeatRequest(group_id=GROUP), None)],
    ApiKey.LEAVE_GROUP: [(groups.LeaveGroupRequest(group_id=GROUP), None)],
    ApiKey.SYNC_GROUP: [(groups.SyncGroupRequest(group_id=GROUP, protocol_type="c", protocol_name="p"), None)],
    ApiKey.DESCRIBE_GROUPS: [(groups.DescribeGroupsRequest(groups=[GROUP]), None)],
    ApiKey.LIST_GROUPS: [(groups.ListGroupsRequest(), None)],
    ApiKey.SASL_HANDSHAKE: [(security.SaslHandshakeRequest(), None)],
    ApiKey.API_VERSIONS: [(cluster.ApiVersionsRequest(), 0)],
    ApiKey.CREATE_TOPICS: [(_create(), None)],
    ApiKey.DELETE_TOPICS: [(topics.DeleteTopicsRequest(topic_names=[TOPIC]), 5)],
    ApiKey.DELETE_RECORDS: [(_delete_records(), None)],
    ApiKey.INIT_PRODUCER_ID: [
        (transactions.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), None),
        (transactions.InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000, enable2_pc=True), None),
        (transactions.InitProducerIdRequest(transactional_id=None), None),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [(_ask_for_epoch(), None)],
    ApiKey.ADD_PARTITIONS_TO_TXN: [(add_partitions_request(3), 3), (add_partitions_request(5), 5)],
    ApiKey.ADD_OFFSETS_TO_TXN: [(transactions.AddOffsetsToTxnRequest(transactional_id=ID, group_id=GROUP), None)],
    ApiKey.END_TXN: [(transactions.EndTxnRequest(transactional_id=ID), None)],
    ApiKey.WRITE_TXN_MARKERS: [(_write_markers(), None)],
    ApiKey.TXN_OFFSET_COMMIT: [(_commit_in_transaction(), 5)],
    ApiKey.DESCRIBE_ACLS: [(security.DescribeAclsRequest(**ANY_ACL), None)],
    ApiKey.CREATE_ACLS: [(_acl(), None)],
    ApiKey.DELETE_ACLS: [
        (security.DeleteAclsRequest(filters=[security.DeleteAclsRequest.DeleteAclsFilter(**ANY_ACL)]), None)
    ],
    ApiKey.DESCRIBE_CONFIGS: [(_describe_configs(), None)],
    ApiKey.ALTER_CONFIGS: [(_alter_configs(), None)],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [(_move_logs(), None)],
    ApiKey.DESCRIBE_LOG_DIRS: [(replicas.DescribeLogDirsRequest(topics=None), None)],
    ApiKey.SASL_AUTHENTICATE: [(security.SaslAuthenticateRequest(), None)],
    ApiKey.CREATE_PARTITIONS: [
        (
            topics.CreatePartitionsRequest(
                topics=[topics.CreatePartitionsRequest.CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)]
            ),
            None,
        )
    ],
    ApiKey.CREATE_DELEGATION_TOKEN: [
        (
            delegation_tokens.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="carol"),
            None,
        )
    ],
    ApiKey.RENEW_DELEGATION_TOKEN: [(delegation_tokens.RenewDelegationTokenRequest(), None)],
    ApiKey.EXPIRE_DELEGATION_TOKEN: [(delegation_tokens.ExpireDelegationTokenRequest(), None)],
    ApiKey.DESCRIBE_DELEGATION_TOKEN: [(delegation_tokens.DescribeDelegationTokenRequest(owners=None), None)],
    ApiKey.DELETE_GROUPS: [(groups.DeleteGroupsRequest(groups_names=[GROUP]), None)],
    ApiKey.ELECT_LEADERS: [(_elect(), None)],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [(_alter_configs_incrementally(), None)],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [(_reassign(), None)],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [(replicas.ListPartitionReassignmentsRequest(topics=None), None)],
    ApiKey.OFFSET_DELETE: [(_delete_offsets(), None)],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [(quotas.DescribeClientQuotasRequest(), None)],
    ApiKey.ALTER_CLIENT_QUOTAS: [(_alter_quotas(), None)],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [(security.DescribeUserScramCredentialsRequest(users=None), None)],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [(_alter_credentials(), None)],
    ApiKey.DESCRIBE_QUORUM: [(cluster.DescribeQuorumRequest(), None)],
    ApiKey.UPDATE_FEATURES: [(cluster.UpdateFeaturesRequest(), None)],
    ApiKey.DESCRIBE_CLUSTER: [(cluster.DescribeClusterRequest(include_cluster_authorized_operations=True), None)],
    ApiKey.DESCRIBE_PRODUCERS: [
        (
            transactions.DescribeProducersRequest(
                topics=[transactions.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
            ),
            None,
        )
    ],
    ApiKey.UNREGISTER_BROKER: [(cluster.UnregisterBrokerRequest(broker_id=77), None)],
    ApiKey.DESCRIBE_TRANSACTIONS: [(transactions.DescribeTransactionsRequest(transactional_ids=[ID]), None)],
    ApiKey.LIST_TRANSACTIONS: [(transactions.ListTransactionsRequest(), None)],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        (
            consumer_groups.ConsumerGroupHeartbeatRequest(
                group_id="c",
                member_id="m",
                rebalance_timeout_ms=1000,
                subscribed_topic_names=[TOPIC],
                topic_partitions=[],
            ),
            None,
        )
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [(consumer_groups.ConsumerGroupDescribeRequest(group_ids=["c"]), None)],
    ApiKey.UNREGISTER_CONTROLLER: [(cluster.UnregisterControllerRequest(controller_id=9), None)],
    ApiKey.SHARE_GROUP_HEARTBEAT: [
        (share_groups.ShareGroupHeartbeatRequest(group_id="s", member_id="m", subscribed_topic_names=[TOPIC]), None)
    ],
    ApiKey.SHARE_GROUP_DESCRIBE: [(share_groups.ShareGroupDescribeRequest(group_ids=["s"]), None)],
    ApiKey.STREAMS_GROUP_HEARTBEAT: [(streams_heartbeat_request("a", "changelog"), None)],
    ApiKey.STREAMS_GROUP_DESCRIBE: [(streams_groups.StreamsGroupDescribeRequest(group_ids=["streams"]), None)],
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: [
        (
            streams_groups.StreamsGroupTopologyDescriptionUpdateRequest(
                group_id="streams",
                topology_description=streams_groups.StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription(),
            ),
            None,
        )
    ],
    ApiKey.SHARE_FETCH: [(_share_fetch, None)],
    ApiKey.SHARE_ACKNOWLEDGE: [(_share_acknowledge, None)],
    **{
        kind.api_key: [(_share_state(kind, topic), None)]
        for kind, topic in (
            (
                share_state.InitializeShareGroupStateRequest,
                share_state.InitializeShareGroupStateRequest.InitializeStateData,
            ),
            (share_state.ReadShareGroupStateRequest, share_state.ReadShareGroupStateRequest.ReadStateData),
            (share_state.WriteShareGroupStateRequest, share_state.WriteShareGroupStateRequest.WriteStateData),
            (share_state.DeleteShareGroupStateRequest, share_state.DeleteShareGroupStateRequest.DeleteStateData),
            (
                share_state.ReadShareGroupStateSummaryRequest,
                share_state.ReadShareGroupStateSummaryRequest.ReadStateSummaryData,
            ),
        )
    },
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [
        (
            share_groups.DescribeShareGroupOffsetsRequest(
                groups=[_SHARE_GROUP(group_id="s", topics=[_SHARE_GROUP_TOPIC(topic_name=TOPIC, partitions=[0])])]
            ),
            None,
        )
    ],
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: [
        (share_groups.AlterShareGroupOffsetsRequest(group_id="empty", topics=[_ALTERED(topic_name=TOPIC)]), None)
    ],
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: [
        (share_groups.DeleteShareGroupOffsetsRequest(group_id="empty", topics=[_DELETED(topic_name=TOPIC)]), None)
    ],
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: [(telemetry.GetTelemetrySubscriptionsRequest(), None)],
    ApiKey.PUSH_TELEMETRY: [(telemetry.PushTelemetryRequest(client_instance_id=bytes(range(16))), None)],
    ApiKey.LIST_CONFIG_RESOURCES: [(configs.ListConfigResourcesRequest(), None)],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        (
            metadata.DescribeTopicPartitionsRequest(
                topics=[metadata.DescribeTopicPartitionsRequest.TopicRequest(name=TOPIC)]
            ),
            None,
        )
    ],
    ApiKey.ADD_RAFT_VOTER: [(cluster.AddRaftVoterRequest(), None)],
    ApiKey.REMOVE_RAFT_VOTER: [(cluster.RemoveRaftVoterRequest(), None)],
}
LEAVES_OUT = {  # what may not be seen
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
