"""Replicas: leader elections, reassignments, log directories."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    """Asks to elect the preferred leader, or one outside of the in-sync replicas."""

    election_type: int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None = field()
    timeout_ms: int32 = field(default=60000)

    class TopicPartitions(Struct):
        topic: str = field()
        partitions: list[int32] = field()


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    """Answers with the result of each partition's election."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field()

    class ReplicaElectionResult(Struct):
        topic: str = field()
        partition_result: list[PartitionResult] = field()

        class PartitionResult(Struct):
            partition_id: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field()


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    """Asks to move partitions to other replicas; null replicas cancel a move (KIP-455)."""

    timeout_ms: int32 = field(default=60000)
    allow_replication_factor_change: bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field()

    class ReassignableTopic(Struct):
        name: str = field()
        partitions: list[ReassignablePartition] = field()

        class ReassignablePartition(Struct):
            partition_index: int32 = field()
            replicas: list[int32] | None = field(default=None)


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    """Says for each partition whether the move began or was cancelled."""

    throttle_time_ms: int32 = field()
    allow_replication_factor_change: bool = field("1+", default=True)
    error_code: int16 = field()
    error_message: str | None = field()
    responses: list[ReassignableTopicResponse] = field()

    class ReassignableTopicResponse(Struct):
        name: str = field()
        partitions: list[ReassignablePartitionResponse] = field()

        class ReassignablePartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field()


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    """Asks for the ongoing reassignments, of some partitions or of all."""

    timeout_ms: int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)

    class ListPartitionReassignmentsTopics(Struct):
        name: str = field()
        partition_indexes: list[int32] = field()


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    """Lists the reassignments, with the replicas to add and to remove."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    topics: list[OngoingTopicReassignment] = field()

    class OngoingTopicReassignment(Struct):
        name: str = field()
        partitions: list[OngoingPartitionReassignment] = field()

        class OngoingPartitionReassignment(Struct):
            partition_index: int32 = field()
            replicas: list[int32] = field()
            adding_replicas: list[int32] = field()
            removing_replicas: list[int32] = field()


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="0-2", flexible="2+"):
    """Asks to move replicas to other log directories of the same broker (KIP-113)."""

    dirs: list[AlterReplicaLogDir] = field()

    class AlterReplicaLogDir(Struct):
        path: str = field()
        topics: list[AlterReplicaLogDirTopic] = field()

        class AlterReplicaLogDirTopic(Struct):
            name: str = field()
            partitions: list[int32] = field()


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="0-2", flexible="2+"):
    """Says for each partition whether the move was accepted."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field()

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = field()
        partitions: list[AlterReplicaLogDirPartitionResult] = field()

        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class DescribeLogDirsRequest(Message, api_key=35, versions="0-5", flexible="2+"):
    """Asks how large the logs in each log directory are."""

    topics: list[DescribableLogDirTopic] | None = field()

    class DescribableLogDirTopic(Struct):
        topic: str = field()
        partitions: list[int32] = field()


class DescribeLogDirsResponse(Message, api_key=35, versions="0-5", flexible="2+"):
    """Lists directories with sizes, space and the partitions in them."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("3+")
    results: list[DescribeLogDirsResult] = field()

    class DescribeLogDirsResult(Struct):
        error_code: int16 = field()
        log_dir: str = field()
        topics: list[DescribeLogDirsTopic] = field()
        total_bytes: int64 = field("4+", default=-1)
        usable_bytes: int64 = field("4+", default=-1)
        is_cordoned: bool = field("5+")

        class DescribeLogDirsTopic(Struct):
            name: str = field()
            partitions: list[DescribeLogDirsPartition] = field()

            class DescribeLogDirsPartition(Struct):
                partition_index: int32 = field()
                partition_size: int64 = field()
                offset_lag: int64 = field()
                is_future_key: bool = field()
