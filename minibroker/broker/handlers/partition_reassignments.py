"""AlterPartitionReassignments and ListPartitionReassignments: move partitions to other nodes (KIP-455, KIP-860).

Behaviour: if the nodes of all new replicas are alive, the move is complete before the answer: the nodes share one log,
so there is nothing to copy. If the leader is no longer a replica, another one is elected in a new epoch. Otherwise the
move goes on until all nodes are alive; until then it is listed, and null replicas cancel it. A broker that is not
registered is refused with INVALID_REPLICA_ASSIGNMENT.

Versions: AlterPartitionReassignments 1 brought allow_replication_factor_change.

Not implemented: throttles of replication, as nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minibroker.broker.control.elections import commit_partition_changes, return_live_replicas_to_isr
from minibroker.broker.control.reassignments import make_reassignment, make_reassignment_cancellation
from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.partitions import Partition, Topic
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, DESCRIBE_CLUSTER, make_denial_text
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from minibroker.protocol.steps import Steps, apply_to_items_in_steps, run_steps_of_each_item, split_into_portions

RequestedPartition = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
ReassignedTopic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
AlteredPartition = ReassignedTopic.ReassignablePartitionResponse
OngoingReassignment = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = OngoingReassignment.OngoingPartitionReassignment


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, durable=True)
async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    try:
        context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER_CLUSTER))
    except KafkaError as error:
        return await run_in_slices(_make_error_response(request, error))
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    for topic in request.topics:
        await pause()
        answer = ReassignedTopic(name=topic.name)
        for portion in split_into_portions(topic.partitions):
            answer.partitions += _alter_reassignments_of_partitions(context, request, topic.name, portion)
            await pause()
        response.responses.append(answer)
    return response


def _make_error_response(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Answer with the error for each partition too, as Kafka does."""
    response = AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    for topic in request.topics:
        answer = ReassignedTopic(name=topic.name)
        for asked in topic.partitions:
            refused = AlteredPartition(partition_index=asked.partition_index)
            refused.error_code, refused.error_message = error.code, error.message
            answer.partitions.append(refused)
            yield
        response.responses.append(answer)
        yield
    return response


def _alter_reassignments_of_partitions(
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    name: str,
    partitions: Sequence[RequestedPartition],
) -> list[AlteredPartition]:
    """Begin or cancel the moves of some partitions, and return a result for each. Raises KafkaError if all fail."""
    changes: list[PartitionChangeRecord | None] = []
    moved: list[Partition] = []
    results = []
    for asked in partitions:
        result = AlteredPartition(partition_index=asked.partition_index, error_message=None)
        try:
            partition = _find_partition(context, name, asked.partition_index)
            changes.append(_make_reassignment_change(context, request, partition, asked))
            moved.append(partition)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    commit_partition_changes(context.cluster, changes)
    return_live_replicas_to_isr(context.cluster, moved)
    return results


def _find_partition(context: RequestContext, name: str, index: int) -> Partition:
    partition = context.get_topic(name, f"Unable to find a topic named {name}.").find_partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return partition


def _make_reassignment_change(
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    partition: Partition,
    requested: RequestedPartition,
) -> PartitionChangeRecord | None:
    """Return the change that begins or cancels the move of a partition; None if it is there already."""
    if requested.replicas is None:
        return make_reassignment_cancellation(context.cluster, partition)
    keep_factor = not request.allow_replication_factor_change
    return make_reassignment(context.cluster, partition, requested.replicas, keep_factor=keep_factor)


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS)
async def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.allows(DESCRIBE_CLUSTER, is_needed=True):
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message=make_denial_text(ApiKey.LIST_PARTITION_REASSIGNMENTS, DESCRIBE_CLUSTER),
            topics=await run_in_slices(run_steps_of_each_item(_repeat_requested_topic, request.topics or [])),
        )
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic, indexes in _iterate_requested_partitions(context, request):
        ongoing: list[OngoingPartition] = []
        for portion in split_into_portions(indexes):
            found = map(topic.find_partition, portion)
            ongoing += [
                _describe_ongoing_reassignment(each) for each in found if each is not None and each.is_reassigning
            ]
            await pause()
        if ongoing:
            response.topics.append(OngoingReassignment(name=topic.name, partitions=ongoing))
        await pause()
    return response


def _repeat_requested_topic(
    requested: ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics,
) -> Steps[OngoingReassignment]:
    """Return the topic with its partitions and no replicas, as Kafka does where it refuses to list any."""
    partitions = yield from apply_to_items_in_steps(
        lambda index: OngoingPartition(partition_index=index), requested.partition_indexes
    )
    return OngoingReassignment(name=requested.name, partitions=partitions)


def _iterate_requested_partitions(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[Topic, Sequence[int]]]:
    """Yield (topic, partition indexes) of the requested topics that exist."""
    topics = context.cluster.image.topics
    if request.topics is None:
        yield from ((topic, range(len(topic.partitions))) for topic in list(topics.values()))
        return
    for asked in request.topics:  # perhaps a million without a topic, which no step ends: so not by `find_topic`
        if asked.name in topics:
            yield topics[asked.name], asked.partition_indexes


def _describe_ongoing_reassignment(partition: Partition) -> OngoingPartition:
    return OngoingPartition(
        partition_index=partition.index,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
    )
