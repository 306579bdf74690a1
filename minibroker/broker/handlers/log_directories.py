"""DescribeLogDirs: the directories of the node's logs, with their space and the size of each log (KIP-113, KIP-827).

Behaviour: every directory is told, also one without a log that was asked for; topics and partitions that are not there
are passed over, and so is the metadata log, as in Kafka. A node tells the partitions of which it has a replica.

Versions: 1 and 2 say the same as 0, 2 with flexible fields; 3 brought an error for the whole request, 4 the space of
each directory's file system, 5 whether a directory takes no new logs, which none does here.

Not implemented: logs that are on their way to another directory (AlterReplicaLogDirs), so the lag is 0.
"""

from __future__ import annotations

import os
from collections import defaultdict

from minibroker.broker.dispatch import Context, handles
from minibroker.broker.topics import METADATA_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.replicas import DescribeLogDirsRequest, DescribeLogDirsResponse
from minibroker.storage.log_directory import LogDirectory

Result = DescribeLogDirsResponse.DescribeLogDirsResult
TopicResult = Result.DescribeLogDirsTopic
PartitionResult = TopicResult.DescribeLogDirsPartition

FIRST_WITH_SPACE = 4

# Partitions by topic; None stands for all there are.
Asked = dict[str, set[int]] | None


@handles(ApiKey.DESCRIBE_LOG_DIRS, "0-5")
def describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    asked = _asked(request)
    return DescribeLogDirsResponse(
        results=[_result(context, directory, asked) for directory in context.cluster.logs.directories]
    )


def _asked(request: DescribeLogDirsRequest) -> Asked:
    if request.topics is None:
        return None
    asked: dict[str, set[int]] = defaultdict(set)
    for topic in request.topics:
        asked[topic.topic].update(topic.partitions)
    return asked


def _result(context: Context, directory: LogDirectory, asked: Asked) -> Result:
    result = Result(log_dir=os.path.abspath(directory.path))
    if context.version >= FIRST_WITH_SPACE:
        try:
            result.total_bytes, result.usable_bytes = context.cluster.logs.disk.space_bytes(directory.path)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return result
    topics: dict[str, TopicResult] = {}
    for (name, index), log in directory.logs.items():
        if _is_told(context, name, index, asked):
            topic = topics.setdefault(name, TopicResult(name=name))
            topic.partitions.append(PartitionResult(partition_index=index, partition_size=log.size_bytes))
    result.topics = list(topics.values())
    return result


def _is_told(context: Context, name: str, index: int, asked: Asked) -> bool:
    if name == METADATA_TOPIC or (asked is not None and index not in asked.get(name, ())):
        return False
    topic = context.cluster.image.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    return partition is not None and context.node.node_id in partition.replicas
