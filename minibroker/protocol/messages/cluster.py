"""The cluster and its brokers: supported versions, brokers, the controllers' quorum, features."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64, uint16


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+"):
    """Asks for a broker's APIs and their versions. It is the first request of most connections."""

    client_software_name: str = field("3+")
    client_software_version: str = field("3+")
    cluster_id: str | None = field("5+", default=None)
    node_id: int32 = field("5+", default=-1)


class ApiVersionsResponse(Message, api_key=18, versions="0-5", flexible="3+", flexible_header="none"):
    """Lists APIs and features. Its header is always version 0, as the client does not know the versions yet."""

    error_code: int16 = field()
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: int32 = field("1+")
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0)
    finalized_features_epoch: int64 = field("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2)
    zk_migration_ready: bool = field("3+", tag=3)

    class ApiVersion(Struct):
        api_key: int16 = field()
        min_version: int16 = field()
        max_version: int16 = field()

    class SupportedFeatureKey(Struct):
        name: str = field()
        min_version: int16 = field()
        max_version: int16 = field()

    class FinalizedFeatureKey(Struct):
        name: str = field()
        max_version_level: int16 = field()
        min_version_level: int16 = field()


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    """Asks which brokers (or controllers) make up the cluster."""

    include_cluster_authorized_operations: bool = field()
    endpoint_type: int8 = field("1+", default=1)
    include_fenced_brokers: bool = field("2+")


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    """Lists the brokers, with the controller and the cluster id."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    endpoint_type: int8 = field("1+", default=1)
    cluster_id: str = field()
    controller_id: int32 = field(default=-1)
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: int32 = field(default=-2147483648)

    class DescribeClusterBroker(Struct):
        broker_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
        is_fenced: bool = field("2+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    """Asks for the log end offsets of the metadata log's replicas."""

    topics: list[TopicData] = field()

    class TopicData(Struct):
        topic_name: str = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition_index: int32 = field()


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    """Answers with the leader's view of voters and observers."""

    error_code: int16 = field()
    error_message: str | None = field("2+")
    topics: list[TopicData] = field()
    nodes: list[Node] = field("2+")

    class ReplicaState(Struct):
        replica_id: int32 = field()
        replica_directory_id: Uuid = field("2+")
        log_end_offset: int64 = field()
        last_fetch_timestamp: int64 = field("1+", default=-1)
        last_caught_up_timestamp: int64 = field("1+", default=-1)

    class TopicData(Struct):
        topic_name: str = field()
        partitions: list[PartitionData] = field()

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field("2+")
            leader_id: int32 = field()
            leader_epoch: int32 = field()
            high_watermark: int64 = field()
            current_voters: list[DescribeQuorumResponse.ReplicaState] = field()
            observers: list[DescribeQuorumResponse.ReplicaState] = field()

    class Node(Struct):
        node_id: int32 = field()
        listeners: list[Listener] = field()

        class Listener(Struct):
            name: str = field()
            host: str = field()
            port: uint16 = field()


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    """Asks to raise or lower the finalized levels of features (KIP-584)."""

    timeout_ms: int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: bool = field("1+")

    class FeatureUpdateKey(Struct):
        feature: str = field()
        max_version_level: int16 = field()
        allow_downgrade: bool = field("0")
        upgrade_type: int8 = field("1+", default=1)


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    """Says for each feature whether it was updated; from version 2 on, for all at once."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[UpdatableFeatureResult] = field("0-1")

    class UpdatableFeatureResult(Struct):
        feature: str = field()
        error_code: int16 = field()
        error_message: str | None = field()


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    """Asks to remove the registration of a broker that will not come back."""

    broker_id: int32 = field()


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    """Asks to remove the registration of a controller that will not come back."""

    controller_id: int32 = field()


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    """Asks to make a controller a voter of the quorum (KIP-853)."""

    cluster_id: str | None = field()
    timeout_ms: int32 = field()
    voter_id: int32 = field()
    voter_directory_id: Uuid = field()
    listeners: list[Listener] = field()
    ack_when_committed: bool = field("1+", default=True)

    class Listener(Struct):
        name: str = field()
        host: str = field()
        port: uint16 = field()


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    """Asks to take a voter out of the quorum (KIP-853)."""

    cluster_id: str | None = field()
    voter_id: int32 = field()
    voter_directory_id: Uuid = field()


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
