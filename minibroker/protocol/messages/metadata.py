"""The brokers, the topics, and the leader of each partition."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    """Asks for brokers and topics; all topics if `topics` is null, or empty in version 0."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: bool = field("4+", default=True)
    include_cluster_authorized_operations: bool = field("8-10")
    include_topic_authorized_operations: bool = field("8+")

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+")
        name: str | None = field(nullable="10+")


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    """Lists brokers, and for topics their partitions with leaders and replicas."""

    throttle_time_ms: int32 = field("3+")
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: str | None = field("2+", default=None)
    controller_id: int32 = field("1+", default=-1)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: int32 = field("8-10", default=-2147483648)
    error_code: int16 = field("13+")

    class MetadataResponseBroker(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field("1+", default=None)

    class MetadataResponseTopic(Struct):
        error_code: int16 = field()
        name: str | None = field(nullable="12+")
        topic_id: Uuid = field("10+")
        is_internal: bool = field("1+")
        partitions: list[MetadataResponsePartition] = field()
        topic_authorized_operations: int32 = field("8+", default=-2147483648)

        class MetadataResponsePartition(Struct):
            error_code: int16 = field()
            partition_index: int32 = field()
            leader_id: int32 = field()
            leader_epoch: int32 = field("7+", default=-1)
            replica_nodes: list[int32] = field()
            isr_nodes: list[int32] = field()
            offline_replicas: list[int32] = field("5+")


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    """Asks for a page of the partitions of topics (KIP-966)."""

    topics: list[TopicRequest] = field()
    response_partition_limit: int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)

    class TopicRequest(Struct):
        name: str = field()

    class Cursor(Struct):
        topic_name: str = field()
        partition_index: int32 = field()


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    """Answers with one page, and with the cursor of the next unless it was the last."""

    throttle_time_ms: int32 = field()
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(default=None)

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int16 = field()
        name: str | None = field()
        topic_id: Uuid = field()
        is_internal: bool = field()
        partitions: list[DescribeTopicPartitionsResponsePartition] = field()
        topic_authorized_operations: int32 = field(default=-2147483648)

        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int16 = field()
            partition_index: int32 = field()
            leader_id: int32 = field()
            leader_epoch: int32 = field(default=-1)
            replica_nodes: list[int32] = field()
            isr_nodes: list[int32] = field()
            eligible_leader_replicas: list[int32] | None = field(default=None)
            last_known_elr: list[int32] | None = field(default=None)
            offline_replicas: list[int32] = field()

    class Cursor(Struct):
        topic_name: str = field()
        partition_index: int32 = field()
