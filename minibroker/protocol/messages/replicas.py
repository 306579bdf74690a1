"""Replicas: leader elections, reassignments, log directories."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32, int64


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+", kips={0: 183, 1: 460}):
    """Asks to elect the preferred leader, or one outside of the in-sync replicas."""

    election_type: int8 = field(
        "1+", about="0 elects the preferred replica, 1 any live one where there is no leader, which may lose records."
    )
    topic_partitions: list[TopicPartitions] | None = field(about="The partitions to elect leaders for; null for all.")
    timeout_ms: int32 = field(default=60000, about="How long to wait until the new leaders are known.")

    class TopicPartitions(Struct):
        topic: str = field()
        partitions: list[int32] = field(about="The partitions of the topic that should have an election.")


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+", kips={0: 183, 1: 460}):
    """Answers with the result of each partition's election."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field(about="The results, by topic.")

    class ReplicaElectionResult(Struct):
        topic: str = field()
        partition_result: list[PartitionResult] = field(about="A result for each partition of the topic.")

        class PartitionResult(Struct):
            partition_id: int32 = field(about="Which partition of the topic, counted from 0.")
            error_code: int16 = field(
                about="ELECTION_NOT_NEEDED if the right replica leads already, so that tools can tell it from failure."
            )
            error_message: str | None = field()


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+", kips={0: 455}):
    """Asks to move partitions to other replicas; null replicas cancel a move (KIP-455)."""

    timeout_ms: int32 = field(
        default=60000,
        about="How long to wait until the reassignments have begun; the copying goes on for as long as it takes.",
    )
    allow_replication_factor_change: bool = field(
        "1+", kip=860, default=True, about="Whether the new replicas may be more or fewer than the old ones."
    )
    topics: list[ReassignableTopic] = field(about="The partitions to move, by topic.")

    class ReassignableTopic(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[ReassignablePartition] = field(about="The partitions of the topic, each with its new brokers.")

        class ReassignablePartition(Struct):
            partition_index: int32 = field()
            replicas: list[int32] | None = field(
                default=None,
                about="The brokers that should have it in the end, the preferred leader first; null cancels a move.",
            )


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+", kips={0: 455}):
    """Says for each partition whether the move began or was cancelled."""

    throttle_time_ms: int32 = field()
    allow_replication_factor_change: bool = field(
        "1+", kip=860, default=True, about="Repeats what the request allowed."
    )
    error_code: int16 = field()
    error_message: str | None = field()
    responses: list[ReassignableTopicResponse] = field(about="The results, by topic.")

    class ReassignableTopicResponse(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[ReassignablePartitionResponse] = field(
            about="A result for each partition: 0 says that its move has begun, or was cancelled."
        )

        class ReassignablePartitionResponse(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()
            error_message: str | None = field()


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+", kips={0: 455}):
    """Asks for the ongoing reassignments, of some partitions or of all."""

    timeout_ms: int32 = field(default=60000, about="How long to wait for the answer.")
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        default=None, about="The partitions to ask about, by topic; null for all that are being moved."
    )

    class ListPartitionReassignmentsTopics(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partition_indexes: list[int32] = field(about="The partitions of the topic to ask about.")


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+", kips={0: 455}):
    """Lists the reassignments, with the replicas to add and to remove."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: str | None = field()
    topics: list[OngoingTopicReassignment] = field(about="The partitions that are being moved, by topic.")

    class OngoingTopicReassignment(Struct):
        name: str = field(about="The topic these partitions belong to.")
        partitions: list[OngoingPartitionReassignment] = field(
            about="The partitions of the topic that are being moved."
        )

        class OngoingPartitionReassignment(Struct):
            partition_index: int32 = field()
            replicas: list[int32] = field(about="All brokers that have a copy now, or are making one.")
            adding_replicas: list[int32] = field(
                about="The brokers that are making a copy; once they are in sync, the move is done."
            )
            removing_replicas: list[int32] = field(about="The brokers that give their copy up in the end.")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="0-2", flexible="2+", kips={0: 113, 1: 219, 2: 482}):
    """Asks to move replicas to other log directories of the same broker (KIP-113)."""

    dirs: list[AlterReplicaLogDir] = field(about="The directories to move replicas to.")

    class AlterReplicaLogDir(Struct):
        path: str = field(about="The directory's absolute path, as in the broker's config log.dirs.")
        topics: list[AlterReplicaLogDirTopic] = field(about="The replicas that should lie there, by topic.")

        class AlterReplicaLogDirTopic(Struct):
            name: str = field(about="The topic these partitions belong to.")
            partitions: list[int32] = field(about="The partitions of the topic whose replicas move.")


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="0-2", flexible="2+", kips={0: 113, 1: 219, 2: 482}):
    """Says for each partition whether the move was accepted."""

    throttle_time_ms: int32 = field()
    results: list[AlterReplicaLogDirTopicResult] = field(about="The results, by topic.")

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = field(about="The topic these partitions belong to.")
        partitions: list[AlterReplicaLogDirPartitionResult] = field(
            about="A result for each partition: 0 says that the copying has begun."
        )

        class AlterReplicaLogDirPartitionResult(Struct):
            partition_index: int32 = field()
            error_code: int16 = field()


class DescribeLogDirsRequest(Message, api_key=35, versions="0-5", flexible="2+", kips={0: 113, 1: 219, 2: 482, 4: 827}):
    """Asks how large the logs in each log directory are."""

    topics: list[DescribableLogDirTopic] | None = field(about="The partitions to look for; null for all.")

    class DescribableLogDirTopic(Struct):
        topic: str = field()
        partitions: list[int32] = field(about="The partitions of the topic to look for.")


class DescribeLogDirsResponse(
    Message, api_key=35, versions="0-5", flexible="2+", kips={0: 113, 1: 219, 2: 482, 4: 827}
):
    """Lists directories with sizes, space and the partitions in them."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("3+")
    results: list[DescribeLogDirsResult] = field(about="What lies in each of the broker's log directories.")

    class DescribeLogDirsResult(Struct):
        error_code: int16 = field(about="KAFKA_STORAGE_ERROR if the disk has failed; else 0.")
        log_dir: str = field(about="The directory's absolute path.")
        topics: list[DescribeLogDirsTopic] = field(about="The replicas in the directory, by topic.")
        total_bytes: int64 = field(
            "4+", default=-1, about="How large the disk is that holds the directory; -1 if unknown."
        )
        usable_bytes: int64 = field(
            "4+", default=-1, about="How much of the disk is free for the broker; -1 if unknown."
        )
        is_cordoned: bool = field(
            "5+", kip=1066, about="Whether new replicas are kept off the directory, as before it is taken away."
        )

        class DescribeLogDirsTopic(Struct):
            name: str = field(about="The topic these partitions belong to.")
            partitions: list[DescribeLogDirsPartition] = field(
                about="The partitions of the topic that have a replica here."
            )

            class DescribeLogDirsPartition(Struct):
                partition_index: int32 = field()
                partition_size: int64 = field(about="How many bytes its segments take on the disk.")
                offset_lag: int64 = field(about="How far the replica is behind, in offsets.")
                is_future_key: bool = field(
                    about="Whether it is the new copy of a replica that moves here from another directory."
                )
