"""ElectLeaders: elects preferred leaders, or any leader where no in-sync replica is alive (KIP-183, KIP-460).

Behaviour: null partitions mean all, and the answer then lists only those that needed an election. A preferred replica
is elected only if its node is alive and it is in sync. An unclean election takes any replica that is alive; it is
needed only for partitions without a leader. In Kafka it may lose records that only the other replicas have; here all
nodes share one log, and nothing is lost.

Versions: 0 elects preferred leaders; 1 brought the type of election and an error for the whole request, 2 flexible
fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from minibroker.broker.control.elections import (
    commit_partition_changes,
    make_election_change,
    return_live_replicas_to_isr,
)
from minibroker.broker.delayed_operations import pause
from minibroker.broker.metadata.partition_changes import Election
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, make_denial_text
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord
from minibroker.protocol.messages.replicas import ElectLeadersRequest, ElectLeadersResponse
from minibroker.protocol.steps import split_into_portions

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = TopicResult.PartitionResult

TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}


@handles(ApiKey.ELECT_LEADERS, durable=True)
async def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    try:
        context.authorize(ALTER_CLUSTER, message=make_denial_text(ApiKey.ELECT_LEADERS, ALTER_CLUSTER))
    except KafkaError as error:
        return _make_error_response(request, error, error.code)
    kind = TYPES.get(request.election_type)
    if kind is None:
        return _make_error_response(
            request, KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        )
    results = []
    for name, indexes in _iterate_requested_partitions(context, request):
        await pause()
        result = TopicResult(topic=name)
        for portion in split_into_portions(indexes):
            try:
                result.partition_result += _elect_leaders_of_topic(context, name, portion, kind)
            except KafkaError as error:
                return _make_error_response(request, error)
            await pause()
        if request.topic_partitions is None:
            needed = [one for one in result.partition_result if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            result.partition_result = needed
        results.append(result)
    return ElectLeadersResponse(replica_election_results=results)


def _elect_leaders_of_topic(
    context: RequestContext, name: str, indexes: Sequence[int], election: Election
) -> list[PartitionResult]:
    """Elect leaders for some partitions of a topic, and return a result for each. Raises KafkaError if all fail."""
    changes: list[PartitionChangeRecord] = []
    results = [_elect_leader_of_partition(context, name, index, election, changes) for index in indexes]
    commit_partition_changes(context.cluster, changes)
    return_live_replicas_to_isr(context.cluster, _get_changed_partitions(context, changes))
    return results


def _make_error_response(
    request: ElectLeadersRequest, error: KafkaError, code_without_partitions: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse:
    """Return the answer with this error for all partitions, or with `code_without_partitions` if none are requested.

    Without partitions in the request it has `code_without_partitions`, as in Kafka.
    """
    code, message = error.code, error.message
    return ElectLeadersResponse(
        error_code=code_without_partitions if request.topic_partitions == [] else code,
        replica_election_results=[
            TopicResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _iterate_requested_partitions(
    context: RequestContext, request: ElectLeadersRequest
) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield (topic, partition indexes) of the partitions that need leaders."""
    if request.topic_partitions is None:
        topics = list(context.cluster.image.topics.values())
        yield from ((topic.name, range(len(topic.partitions))) for topic in topics)
    else:
        yield from ((topic.topic, topic.partitions) for topic in request.topic_partitions)


def _elect_leader_of_partition(
    context: RequestContext, name: str, index: int, election: Election, changes: list[PartitionChangeRecord]
) -> PartitionResult:
    """Return the result for a partition, and add its change to `changes`."""
    result = PartitionResult(partition_id=index, error_message=None)
    try:
        changes.append(make_election_change(context.cluster, _find_partition(context, name, index), election))
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _find_partition(context: RequestContext, name: str, index: int) -> Partition:
    partition = context.get_topic(name, f"No such topic as {name}").find_partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return partition


def _get_changed_partitions(context: RequestContext, changes: Iterable[PartitionChangeRecord]) -> list[Partition]:
    """Return the partitions that the changes are of."""
    return [context.get_topic(change.topic_id).partitions[change.partition_id] for change in changes]
