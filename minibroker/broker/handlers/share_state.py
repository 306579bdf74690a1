"""The share coordinator's own APIs, which brokers ask each other for (KIP-932). They need rights on the cluster.

In this process leaders turn to `share.coordinator` directly; these are for whoever looks at the states from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import CLUSTER_ACTION, DENIAL_MESSAGES, ResourceType
from minibroker.broker.share.runs import StateBatch
from minibroker.broker.share.states import ShareKey, ShareState, parse_state_batches
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from minibroker.protocol.steps import Steps

InitializedTopic = InitializeShareGroupStateResponse.InitializeStateResult
ReadTopic = ReadShareGroupStateResponse.ReadStateResult
WrittenTopic = WriteShareGroupStateResponse.WriteStateResult
DeletedTopic = DeleteShareGroupStateResponse.DeleteStateResult
SummarizedTopic = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult

TEXTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: "The coordinator rejected the request because the state epoch did not match.",
}


def _run_for_each_partition(
    context: RequestContext, request: Any, result_type: Any, run_for_partition: Callable[[ShareKey, Any], Any]
) -> Steps[Any]:
    """Call `run_for_partition` for each partition; return a result of each topic, with the results or errors in it.

    As in Kafka, a request without a group has no results.
    """
    results: list[Any] = []
    if not request.group_id and context.allows(CLUSTER_ACTION):
        return results
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            try:
                key = _get_authorized_share_key(context, request.group_id, topic.topic_id, asked.partition)
                partitions.append(
                    run_for_partition(key, asked) or result_type.PartitionResult(partition=asked.partition)
                )
            except KafkaError as error:
                partitions.append(
                    result_type.PartitionResult(
                        partition=asked.partition,
                        error_code=error.code,
                        error_message=error.message or TEXTS.get(error.code),
                    )
                )
            yield
        results.append(result_type(topic_id=topic.topic_id, partitions=partitions))
    return results


def _get_authorized_share_key(context: RequestContext, group_id: str, topic_id: bytes, index: int) -> ShareKey:
    """Return the key of a partition whose state this node keeps, if it has one. Raises KafkaError."""
    context.authorize(CLUSTER_ACTION, message=DENIAL_MESSAGES[ResourceType.CLUSTER])
    if index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    key = ShareKey(group_id, topic_id, index)
    context.cluster.share_states.check_is_coordinator(context.node, key.coordinator_key)
    return key


def _check_epoch_not_negative(name: str, epoch: int) -> None:
    if epoch < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {name} epoch cannot be a negative number.")


def _check_partition_exists(context: RequestContext, key: ShareKey) -> None:
    if context.find_partition(key.topic_id, key.partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _reload_state_and_wait_until_durable(context: RequestContext, key: ShareKey) -> None:
    """Make the partition's leader reload the changed state; delay the answer until it is durable. Raises KafkaError."""
    context.cluster.shares.forget_changed_state(key)
    context.delay_answer_until_wait_is_over(
        context.cluster.share_states.make_durability_wait(key.coordinator_key), _raise_write_error
    )


def _raise_write_error(error: KafkaError) -> None:
    """Refuse the whole request, as its change could not be written."""
    raise error


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
async def initialize_share_group_state(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    def initialize_state(key: ShareKey, requested: Any) -> None:
        _check_epoch_not_negative("state", requested.state_epoch)
        _check_partition_exists(context, key)
        context.cluster.share_states.initialize_share_state(key, requested.state_epoch, requested.start_offset)
        _reload_state_and_wait_until_durable(context, key)

    results = await run_in_slices(_run_for_each_partition(context, request, InitializedTopic, initialize_state))
    return InitializeShareGroupStateResponse(results=results)


@handles(ApiKey.READ_SHARE_GROUP_STATE)
async def read_share_group_state(
    context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    Partition = ReadTopic.PartitionResult

    def read_state(key: ShareKey, requested: Any) -> ReadTopic.PartitionResult:
        _check_epoch_not_negative("leader", requested.leader_epoch)
        state = context.cluster.share_states.read_share_state(key, requested.leader_epoch)
        return Partition(
            partition=requested.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                Partition.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
                for first, last, kind, count in state.batches
            ],
        )

    return ReadShareGroupStateResponse(
        results=(await run_in_slices(_run_for_each_partition(context, request, ReadTopic, read_state)))
    )


@handles(ApiKey.WRITE_SHARE_GROUP_STATE)
async def write_share_group_state(
    context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    def write_state(key: ShareKey, requested: Any) -> None:
        _check_epoch_not_negative("leader", requested.leader_epoch)
        _check_epoch_not_negative("state", requested.state_epoch)
        batches: tuple[StateBatch, ...] = parse_state_batches(requested.state_batches)
        context.cluster.share_states.write_share_state(
            key,
            requested.state_epoch,
            requested.leader_epoch,
            requested.start_offset,
            requested.delivery_complete_count,
            batches,
        )
        _reload_state_and_wait_until_durable(context, key)

    return WriteShareGroupStateResponse(
        results=(await run_in_slices(_run_for_each_partition(context, request, WrittenTopic, write_state)))
    )


@handles(ApiKey.DELETE_SHARE_GROUP_STATE)
async def delete_share_group_state(
    context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    def delete_state(key: ShareKey, requested: Any) -> None:
        _check_partition_exists(context, key)
        context.cluster.share_states.delete_share_state(key)
        _reload_state_and_wait_until_durable(context, key)

    return DeleteShareGroupStateResponse(
        results=(await run_in_slices(_run_for_each_partition(context, request, DeletedTopic, delete_state)))
    )


@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
async def read_share_group_state_summary(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    def read_state_summary(key: ShareKey, requested: Any) -> SummarizedTopic.PartitionResult:
        _check_partition_exists(context, key)
        state = context.cluster.share_states.find_share_state(key) or ShareState()
        return SummarizedTopic.PartitionResult(
            partition=requested.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
        )

    results = await run_in_slices(_run_for_each_partition(context, request, SummarizedTopic, read_state_summary))
    return ReadShareGroupStateSummaryResponse(results=results)
