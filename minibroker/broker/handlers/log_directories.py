"""DescribeLogDirs and AlterReplicaLogDirs: list the node's log directories, and move logs (KIP-113, KIP-827).

Behaviour: all directories are listed, also those without any of the requested logs. Unknown topics and partitions and
the metadata log are left out, as in Kafka. A node lists the partitions of which it has a replica. Logs can be read and
appended to while they are moved. The answer is sent when the move has begun; until it ends, the copy is listed too,
with its lag. A request for the directory in which a log is cancels its move. If a partition does not exist yet, its
log will be created in the requested directory. The nodes of a process share their logs, and move them together.

Versions: DescribeLogDirs 1 and 2 are like 0, 2 with flexible fields; 3 brought an error for the whole request, 4 the
size and free space of each directory's file system, 5 whether a directory is cordoned (KIP-1066).
AlterReplicaLogDirs 1 and 2 are like 0, 2 with flexible fields.

Not implemented: limits on how fast logs are moved.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.partitions import METADATA_TOPIC
from minibroker.broker.requests.context import RequestContext, count_refusal, log_refusals
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, DESCRIBE_CLUSTER
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.replicas import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from minibroker.protocol.steps import Steps, run_steps_of_each_item
from minibroker.storage.directories.log_directory import LogDirectory
from minibroker.storage.names import MAX_NAME_BYTES, make_future_log_name

log = logging.getLogger("minibroker.moves")

DirectoryResult = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = DirectoryResult.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition

MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = MovedTopic.AlterReplicaLogDirPartitionResult

FIRST_WITH_SPACE = 4
NO_UNIQUE = "0" * 32  # for the length of a name

# Partition indexes by topic name; None means all.
RequestedPartitions = dict[str, set[int]] | None


@handles(ApiKey.DESCRIBE_LOG_DIRS)
async def describe_log_dirs(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    context.authorize(DESCRIBE_CLUSTER)
    asked = _get_requested_partitions(request)
    directories = context.cluster.logs.directories
    results = await run_in_slices(
        run_steps_of_each_item(lambda directory: _describe_log_directory(context, directory, asked), directories)
    )
    return DescribeLogDirsResponse(results=results)


def _get_requested_partitions(request: DescribeLogDirsRequest) -> RequestedPartitions:
    """Return the partition indexes by topic; None if the request is for all partitions."""
    if request.topics is None:
        return None
    asked: dict[str, set[int]] = defaultdict(set)
    for topic in request.topics:
        asked[topic.topic].update(topic.partitions)
    return asked


def _describe_log_directory(
    context: RequestContext, directory: LogDirectory, requested: RequestedPartitions
) -> Steps[DirectoryResult]:
    """Return the size and the requested partitions of a directory, or its error."""
    result = DirectoryResult(log_dir=os.path.abspath(directory.path))
    if context.version >= FIRST_WITH_SPACE:
        try:
            result.total_bytes, result.usable_bytes = context.cluster.logs.disk.measure_space_bytes(directory.path)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result
    result.is_cordoned = directory.path in context.cluster.list_cordoned_log_dirs(context.node.node_id)
    topics: dict[str, TopicResult] = {}
    for (name, index), kept in list(directory.logs.items()):
        yield
        if _is_partition_requested(context, name, index, requested):
            topic = topics.setdefault(name, TopicResult(name=name))
            topic.partitions.append(PartitionResult(partition_index=index, partition_size=kept.size_bytes))
    for move in context.cluster.moves.list_moves_to(directory):
        name, index = move.partition.topic.name, move.partition.index
        if _is_partition_requested(context, name, index, requested):
            copy = PartitionResult(partition_index=index, partition_size=move.copy.size_bytes)
            copy.offset_lag, copy.is_future_key = move.offset_lag, True
            topics.setdefault(name, TopicResult(name=name)).partitions.append(copy)
    result.topics = list(topics.values())
    return result


def _is_partition_requested(context: RequestContext, name: str, index: int, requested: RequestedPartitions) -> bool:
    """Return whether the partition is requested, and this node has a replica of it."""
    if name == METADATA_TOPIC or (requested is not None and index not in requested.get(name, ())):
        return False
    partition = context.find_partition(name, index)
    return partition is not None and context.node.node_id in partition.replicas


# --- AlterReplicaLogDirs ------------------------------------------------------------------------


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
async def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    paths = {
        (topic.name, index): asked.path
        for asked in request.dirs
        for topic in asked.topics
        for index in topic.partitions
    }
    topics: dict[str, MovedTopic] = {}
    for (name, index), path in paths.items():
        moved = MovedPartition(partition_index=index)
        try:
            _begin_log_move(context, name, index, path)
        except KafkaError as error:
            moved.error_code = error.code
            count_refusal(context, error, name, index)
        topics.setdefault(name, MovedTopic(topic_name=name)).partitions.append(moved)
        await pause()
    log_refusals(context, log, ApiKey.ALTER_REPLICA_LOG_DIRS)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _begin_log_move(context: RequestContext, name: str, index: int, path: str) -> None:
    """Begin to move a log to the directory at this path. Raises KafkaError."""
    context.authorize(ALTER_CLUSTER)
    cluster = context.cluster
    if len(make_future_log_name(name, index, NO_UNIQUE)) > MAX_NAME_BYTES:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    directory = _get_log_directory(context, path)
    if directory.path in cluster.list_cordoned_log_dirs(context.node.node_id):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned.")
    partition = context.find_partition(name, index)
    if partition is not None and partition.is_offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, partition.log.offline)
    if partition is None or not partition.has_local_log:
        cluster.logs.set_preferred_directory(name, index, directory)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not partition.has_local_log or context.node.node_id not in partition.replicas:
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} has no replica here.")
    cluster.moves.start_log_move(partition, directory)


def _get_log_directory(context: RequestContext, path: str) -> LogDirectory:
    """Return the log directory at this absolute path. Raises KafkaError(LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR)."""
    logs = context.cluster.logs
    for directory in logs.directories:
        if os.path.abspath(directory.path) == path:
            if not logs.disk.is_directory(directory.path):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
            return directory
    raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
