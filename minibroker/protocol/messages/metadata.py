"""The brokers, the topics, and the leader of each partition."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int16, int32


class MetadataRequest(
    Message,
    api_key=3,
    versions="0-13",
    flexible="9+",
    kips={4: 4, 6: 219, 7: 320, 8: 430, 9: 482, 10: 516, 11: 700, 12: 516, 13: 1102},
):
    """Asks for brokers and topics; all topics if `topics` is null, or empty in version 0."""

    topics: list[MetadataRequestTopic] | None = field(
        nullable="1+", about="The topics to describe; null asks for all, and an empty list (after version 0) for none."
    )
    allow_auto_topic_creation: bool = field(
        "4+", default=True, about="Whether the broker may create unknown topics, if its own config allows it, too."
    )
    include_cluster_authorized_operations: bool = field(
        "8-10",
        about="Also asks which operations on the cluster the client has rights for; DescribeCluster took this over.",
    )
    include_topic_authorized_operations: bool = field(
        "8+", about="Also asks which operations on each topic the client has rights for."
    )

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field("10+", about="Asks by id instead of by name; brokers support it from version 12 on.")
        name: str | None = field(nullable="10+", about="The topic to describe; null if the id says which.")


class MetadataResponse(
    Message,
    api_key=3,
    versions="0-13",
    flexible="9+",
    kips={1: 4, 2: 78, 3: 124, 5: 112, 6: 219, 7: 320, 8: 430, 9: 482, 10: 516, 11: 700, 12: 516, 13: 1102},
):
    """Lists brokers, and for topics their partitions with leaders and replicas."""

    throttle_time_ms: int32 = field("3+")
    brokers: list[MetadataResponseBroker] = field(
        about="All brokers that are alive, and where to reach them on the listener that was asked."
    )
    cluster_id: str | None = field(
        "2+",
        default=None,
        about="The cluster's own id, by which a client notices that an address now leads to another cluster.",
    )
    controller_id: int32 = field(
        "1+",
        default=-1,
        about="The broker to send requests for topics and the like to; with KRaft any broker, as brokers pass them on.",
    )
    topics: list[MetadataResponseTopic] = field(
        about="The topics that were asked for, each with all its partitions, or an error."
    )
    cluster_authorized_operations: int32 = field(
        "8-10",
        default=-2147483648,
        about="A bit for each ACL operation on the cluster that the client has a right to; -2147483648 if not asked.",
    )
    error_code: int16 = field(
        "13+",
        about="An error of the whole request: REBOOTSTRAP_REQUIRED sends the client back to its bootstrap servers.",
    )

    class MetadataResponseBroker(Struct):
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        rack: str | None = field(
            "1+",
            default=None,
            about="The rack or zone the broker stands in, for placing replicas and reading nearby; null if not set.",
            kip=36,
        )

    class MetadataResponseTopic(Struct):
        error_code: int16 = field(
            about="Why the topic cannot be described, such as UNKNOWN_TOPIC_OR_PARTITION; else 0."
        )
        name: str | None = field(
            nullable="12+", about="The topic's name; null if the client asked by an id that is unknown."
        )
        topic_id: Uuid = field("10+")
        is_internal: bool = field(
            "1+", about="Whether it is one of Kafka's own topics, which consumers by pattern leave out by default."
        )
        partitions: list[MetadataResponsePartition] = field(
            about="All partitions, so that producers can spread records over them."
        )
        topic_authorized_operations: int32 = field(
            "8+",
            default=-2147483648,
            about="A bit for each ACL operation on the topic that the client has a right to; -2147483648 if not asked.",
        )

        class MetadataResponsePartition(Struct):
            error_code: int16 = field(
                about="LEADER_NOT_AVAILABLE while the partition has no leader, so that the client asks again."
            )
            partition_index: int32 = field()
            leader_id: int32 = field(about="The broker to produce to and to fetch from; -1 while there is none.")
            leader_epoch: int32 = field(
                "7+",
                default=-1,
                about="Grows with each new leader: a client ignores metadata with an older epoch than it has seen.",
            )
            replica_nodes: list[int32] = field(
                about="The brokers that keep a copy; the first one is the preferred leader."
            )
            isr_nodes: list[int32] = field(
                about="The replicas that have kept up with the leader, from which the next leader is chosen."
            )
            offline_replicas: list[int32] = field(
                "5+", about="The replicas whose broker is down, or whose disk has failed."
            )


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+", kips={0: 966}):
    """Asks for a page of the partitions of topics (KIP-966)."""

    topics: list[TopicRequest] = field(about="The topics to describe; empty for all.")
    response_partition_limit: int32 = field(
        default=2000,
        about="How many partitions the answer may have, as clusters may have very many; the broker may lower it.",
    )
    cursor: Cursor | None = field(default=None, about="Where to go on, from the answer before; null to begin.")

    class TopicRequest(Struct):
        name: str = field(about="What the topic is called.")

    class Cursor(Struct):
        topic_name: str = field(about="The topic to go on with; topics come in the order of their names.")
        partition_index: int32 = field(about="The partition of the topic to go on with.")


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+", kips={0: 966}):
    """Answers with one page, and with the cursor of the next unless it was the last."""

    throttle_time_ms: int32 = field()
    topics: list[DescribeTopicPartitionsResponseTopic] = field(about="The topics, or the part of them that fits.")
    next_cursor: Cursor | None = field(default=None, about="Where the next request should go on; null if this was all.")

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int16 = field()
        name: str | None = field(about="What the topic is called.")
        topic_id: Uuid = field()
        is_internal: bool = field(about="Whether it is one of Kafka's own topics.")
        partitions: list[DescribeTopicPartitionsResponsePartition] = field(
            about="Its partitions, or the part of them that fits."
        )
        topic_authorized_operations: int32 = field(
            default=-2147483648, about="A bit for each ACL operation on the topic that the client has a right to."
        )

        class DescribeTopicPartitionsResponsePartition(Struct):
            error_code: int16 = field()
            partition_index: int32 = field()
            leader_id: int32 = field()
            leader_epoch: int32 = field(default=-1)
            replica_nodes: list[int32] = field(
                about="The brokers that keep a copy; the first one is the preferred leader."
            )
            isr_nodes: list[int32] = field(about="The replicas that have kept up with the leader.")
            eligible_leader_replicas: list[int32] | None = field(
                default=None,
                about="Replicas not in sync that have all committed records, so they may lead without loss.",
            )
            last_known_elr: list[int32] | None = field(
                default=None, about="Replicas that were eligible before they failed in an unclean way."
            )
            offline_replicas: list[int32] = field(about="The replicas whose broker is down, or whose disk has failed.")

    class Cursor(Struct):
        topic_name: str = field(about="The topic to go on with.")
        partition_index: int32 = field(about="The partition of the topic to go on with.")
