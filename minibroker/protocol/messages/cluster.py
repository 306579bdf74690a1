"""The cluster and its brokers: supported versions, brokers, the controllers' quorum, features."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64, uint16


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+", kips={2: 219, 3: 511, 5: 1242}):
    """Asks for a broker's APIs and their versions. It is the first request of most connections."""

    client_software_name: str = field(
        "3+", about='The client library, which brokers count in their metrics, such as "apache-kafka-java".'
    )
    client_software_version: str = field(
        "3+", about="The library's version, so that operators see who still uses an old one."
    )
    cluster_id: str | None = field(
        "5+",
        default=None,
        about="The cluster the client means: another one answers REBOOTSTRAP_REQUIRED; null for any.",
    )
    node_id: int32 = field(
        "5+", default=-1, about="The broker the client means, as addresses may change hands; -1 for any."
    )


class ApiVersionsResponse(
    Message, api_key=18, versions="0-5", flexible="3+", flexible_header="none", kips={2: 219, 3: 511, 5: 1242}
):
    """Lists APIs and features. Its header is always version 0, as the client does not know the versions yet."""

    error_code: int16 = field(
        about="UNSUPPORTED_VERSION if the request was too new: the answer is then version 0, and the client asks again."
    )
    api_keys: list[ApiVersion] = field(
        about="All APIs that may be sent here; a client takes the newest version that both sides know."
    )
    throttle_time_ms: int32 = field("1+", kip=124)
    supported_features: list[SupportedFeatureKey] = field(
        "3+",
        tag=0,
        about="The features this broker supports, with the range of levels that they may be set to.",
        kip=584,
    )
    finalized_features_epoch: int64 = field(
        "3+",
        tag=1,
        default=-1,
        about="Grows with each change of the finalized levels, so that older answers are known as such; -1 if unknown.",
        kip=584,
    )
    finalized_features: list[FinalizedFeatureKey] = field(
        "3+", tag=2, about="The features that are on in the whole cluster, and at which levels.", kip=584
    )
    zk_migration_ready: bool = field(
        "3+", tag=3, about="Whether this controller is set up to take a cluster over from ZooKeeper.", kip=866
    )

    class ApiVersion(Struct):
        api_key: int16 = field(about="The number of the API, with which its requests begin.")
        min_version: int16 = field(about="The oldest version that the broker accepts.")
        max_version: int16 = field(about="The newest version that the broker accepts.")

    class SupportedFeatureKey(Struct):
        name: str = field(about="The feature, such as metadata.version or group.version.")
        min_version: int16 = field(about="The lowest level this broker can work at.")
        max_version: int16 = field(about="The highest level this broker can work at.")

    class FinalizedFeatureKey(Struct):
        name: str = field(about="The feature, such as metadata.version or group.version.")
        max_version_level: int16 = field(about="The level that the cluster works at.")
        min_version_level: int16 = field(about="The lowest level in use, which is the same as the highest with KRaft.")


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+", kips={0: 700, 1: 919, 2: 1073}):
    """Asks which brokers (or controllers) make up the cluster."""

    include_cluster_authorized_operations: bool = field(
        about="Also asks which operations on the cluster the client has rights for."
    )
    endpoint_type: int8 = field(
        "1+",
        default=1,
        about="What to list: 1 the brokers, 2 the controllers, which only a controller's listener answers.",
    )
    include_fenced_brokers: bool = field(
        "2+", about="Also lists brokers that are registered, but serve no clients now, such as one that is down."
    )


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+", kips={0: 700, 1: 919, 2: 1073}):
    """Lists the brokers, with the controller and the cluster id."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field(default=None)
    endpoint_type: int8 = field("1+", default=1, about="What the answer lists: 1 the brokers, 2 the controllers.")
    cluster_id: str = field(
        about="The cluster's own id, by which a client notices that an address now leads to another cluster."
    )
    controller_id: int32 = field(
        default=-1,
        about="The broker to send requests for topics and the like to; from a controller, the quorum's leader.",
    )
    brokers: list[DescribeClusterBroker] = field(
        about="The nodes of the type that was asked for, and where to reach them."
    )
    cluster_authorized_operations: int32 = field(
        default=-2147483648,
        about="A bit for each ACL operation on the cluster that the client has a right to; -2147483648 if not asked.",
    )

    class DescribeClusterBroker(Struct):
        broker_id: int32 = field(about="The node's number, which other fields and messages refer to.")
        host: str = field()
        port: int32 = field()
        rack: str | None = field(default=None)
        is_fenced: bool = field(
            "2+", about="Whether it is registered, but takes no part now, such as while it starts or is down."
        )


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+", kips={0: 595, 1: 836, 2: 853}):
    """Asks for the log end offsets of the metadata log's replicas."""

    topics: list[TopicData] = field(
        about="The partitions to describe, of which there is only one: that of the metadata log."
    )

    class TopicData(Struct):
        topic_name: str = field(about="Always __cluster_metadata.")
        partitions: list[PartitionData] = field(about="Its one partition.")

        class PartitionData(Struct):
            partition_index: int32 = field()


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+", kips={0: 595, 1: 836, 2: 853}):
    """Answers with the leader's view of voters and observers."""

    error_code: int16 = field()
    error_message: str | None = field("2+")
    topics: list[TopicData] = field(about="The state of the quorum, by topic.")
    nodes: list[Node] = field("2+", about="Where the voters are reached.")

    class ReplicaState(Struct):
        replica_id: int32 = field(about="The node that copies the log.")
        replica_directory_id: Uuid = field(
            "2+", about="The id of its log directory, so that a voter with a new disk counts as another one."
        )
        log_end_offset: int64 = field(
            about="Where its copy ends: what is missing to the leader's end is its lag; -1 if unknown."
        )
        last_fetch_timestamp: int64 = field(
            "1+", default=-1, about="When it last fetched, by the leader's clock; -1 if unknown."
        )
        last_caught_up_timestamp: int64 = field(
            "1+", default=-1, about="When it last had all that the leader had; -1 if unknown."
        )

    class TopicData(Struct):
        topic_name: str = field(about="Always __cluster_metadata.")
        partitions: list[PartitionData] = field(about="Its one partition, or an error.")

        class PartitionData(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field("2+")
            leader_id: int32 = field(about="The active controller, which leads the metadata log; -1 if there is none.")
            leader_epoch: int32 = field(about="Grows with each election of an active controller.")
            high_watermark: int64 = field(about="The offset up to which a majority of voters has the metadata log.")
            current_voters: list[DescribeQuorumResponse.ReplicaState] = field(
                about="The controllers that elect the leader, and how far each has copied the log."
            )
            observers: list[DescribeQuorumResponse.ReplicaState] = field(
                about="The brokers (and controllers without a vote) that copy the log."
            )

    class Node(Struct):
        node_id: int32 = field()
        listeners: list[Listener] = field(about="The controller's listeners.")

        class Listener(Struct):
            name: str = field(about="What the controller calls the listener, such as CONTROLLER.")
            host: str = field()
            port: uint16 = field()


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+", kips={0: 584, 1: 778}):
    """Asks to raise or lower the finalized levels of features (KIP-584)."""

    timeout_ms: int32 = field(default=60000, about="How long to wait for the change.")
    feature_updates: list[FeatureUpdateKey] = field(about="The features to change, and to which level.")
    validate_only: bool = field("1+")

    class FeatureUpdateKey(Struct):
        feature: str = field(about="The feature, such as metadata.version or group.version.")
        max_version_level: int16 = field(about="The level that the cluster should work at; 0 switches the feature off.")
        allow_downgrade: bool = field("0", about="Whether a level lower than now is allowed.")
        upgrade_type: int8 = field(
            "1+",
            default=1,
            about="1 only raises, 2 lowers if nothing is lost, 3 lowers although something may be lost.",
        )


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+", kips={0: 584, 1: 778}):
    """Says for each feature whether it was updated; from version 2 on, for all at once."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    results: list[UpdatableFeatureResult] = field(
        "0-1", about="A result for each feature; since version 2 all succeed or none does."
    )

    class UpdatableFeatureResult(Struct):
        feature: str = field(about="The feature this is the result of.")
        error_code: int16 = field()
        error_message: str | None = field()


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    """Asks to remove the registration of a broker that will not come back."""

    broker_id: int32 = field(about="The broker to forget; it should have stopped, as it would register again.")


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    """Asks to remove the registration of a controller that will not come back."""

    controller_id: int32 = field(about="The controller to forget; it should have stopped, as it would register again.")


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+", kips={0: 853}):
    """Asks to make a controller a voter of the quorum (KIP-853)."""

    cluster_id: str | None = field(
        about="The cluster that the sender means, so that another one refuses; null for any."
    )
    timeout_ms: int32 = field(about="How long to wait until the new voter has caught up and is agreed on.")
    voter_id: int32 = field(about="The controller that should get a vote.")
    voter_directory_id: Uuid = field(about="The id of its log directory, which is part of a voter's identity.")
    listeners: list[Listener] = field(about="Where the other voters reach it.")
    ack_when_committed: bool = field(
        "1+",
        kip=1186,
        default=True,
        about="Whether to answer once the voters have agreed, or as soon as the leader has written it.",
    )

    class Listener(Struct):
        name: str = field(about="What the controller calls the listener, such as CONTROLLER.")
        host: str = field()
        port: uint16 = field()


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+", kips={0: 853}):
    """Asks to take a voter out of the quorum (KIP-853)."""

    cluster_id: str | None = field(
        about="The cluster that the sender means, so that another one refuses; null for any."
    )
    voter_id: int32 = field(about="The controller that should lose its vote.")
    voter_directory_id: Uuid = field(about="The id of its log directory, which is part of a voter's identity.")


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    """Says whether it was done."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
