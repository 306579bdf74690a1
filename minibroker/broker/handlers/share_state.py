"""The share coordinator's own APIs, which brokers ask each other for (KIP-932). They need rights on the cluster.

In this process leaders turn to `share.coordinator` directly; these are for whoever looks at the states from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import CLUSTER_ACTION
from minibroker.broker.share.deliveries import StateBatch
from minibroker.broker.share.states import ShareKey, ShareState, batches_of
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

Result = TypeVar("Result")


def _each_partition(
    context: RequestContext,
    group_id: str,
    topics: Iterable[Any],
    shapes: tuple[Callable[..., Result], Callable[..., Any]],
    do: Callable[[ShareKey, Any], Any],
) -> Steps[list[Result]]:
    """Return the results of `do` for each partition; its KafkaError is that partition's answer alone."""
    topic_shape, partition_shape = shapes
    results = []
    for topic in topics:
        partitions = []
        for asked in topic.partitions:
            try:
                key = _checked(context, group_id, topic.topic_id, asked.partition)
                partitions.append(do(key, asked) or partition_shape(partition=asked.partition))
            except KafkaError as error:
                partitions.append(
                    partition_shape(partition=asked.partition, error_code=error.code, error_message=error.message)
                )
            yield
        results.append(topic_shape(topic_id=topic.topic_id, partitions=partitions))
    return results


def _checked(context: RequestContext, group_id: str, topic_id: bytes, index: int) -> ShareKey:
    """Return the key of a partition that exists and whose state this node keeps. Raises KafkaError."""
    context.authorize(CLUSTER_ACTION)
    if index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
    key = ShareKey(group_id, topic_id, index)
    context.cluster.share_states.check(context.node, key.text)
    if context.find_partition(topic_id, index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return key


def _wait(context: RequestContext, key: ShareKey) -> None:
    context.wait_for(context.cluster.share_states.wait(key.text), _raise)


def _raise(error: KafkaError) -> None:
    raise error


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
def initialize(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> Steps[InitializeShareGroupStateResponse]:
    Topic = InitializeShareGroupStateResponse.InitializeStateResult

    def begin(key: ShareKey, asked: Any) -> None:
        context.cluster.share_states.begin(key, asked.state_epoch, asked.start_offset)
        context.cluster.shares.drop(key)
        _wait(context, key)

    shapes = Topic, Topic.PartitionResult
    results = yield from _each_partition(context, request.group_id, request.topics, shapes, begin)
    return InitializeShareGroupStateResponse(results=results)


@handles(ApiKey.READ_SHARE_GROUP_STATE)
def read(context: RequestContext, request: ReadShareGroupStateRequest) -> Steps[ReadShareGroupStateResponse]:
    Topic = ReadShareGroupStateResponse.ReadStateResult

    def answer(key: ShareKey, asked: Any) -> Any:
        state = context.cluster.share_states.read(key, asked.leader_epoch)
        return Topic.PartitionResult(
            partition=asked.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                Topic.PartitionResult.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
                )
                for first, last, kind, count in state.batches
            ],
        )

    shapes = Topic, Topic.PartitionResult
    results = yield from _each_partition(context, request.group_id, request.topics, shapes, answer)
    return ReadShareGroupStateResponse(results=results)


@handles(ApiKey.WRITE_SHARE_GROUP_STATE)
def write(context: RequestContext, request: WriteShareGroupStateRequest) -> Steps[WriteShareGroupStateResponse]:
    Topic = WriteShareGroupStateResponse.WriteStateResult

    def keep(key: ShareKey, asked: Any) -> None:
        batches: tuple[StateBatch, ...] = batches_of(asked.state_batches)
        context.cluster.share_states.write(
            key, asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches
        )
        context.cluster.shares.drop(key)
        _wait(context, key)

    shapes = Topic, Topic.PartitionResult
    results = yield from _each_partition(context, request.group_id, request.topics, shapes, keep)
    return WriteShareGroupStateResponse(results=results)


@handles(ApiKey.DELETE_SHARE_GROUP_STATE)
def delete(context: RequestContext, request: DeleteShareGroupStateRequest) -> Steps[DeleteShareGroupStateResponse]:
    Topic = DeleteShareGroupStateResponse.DeleteStateResult

    def forget(key: ShareKey, asked: Any) -> None:
        context.cluster.share_states.forget(key)
        context.cluster.shares.drop(key)
        _wait(context, key)

    shapes = Topic, Topic.PartitionResult
    results = yield from _each_partition(context, request.group_id, request.topics, shapes, forget)
    return DeleteShareGroupStateResponse(results=results)


@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
def summarize(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> Steps[ReadShareGroupStateSummaryResponse]:
    Topic = ReadShareGroupStateSummaryResponse.ReadStateSummaryResult

    def answer(key: ShareKey, asked: Any) -> Any:
        state = context.cluster.share_states.find(key) or ShareState()
        return Topic.PartitionResult(
            partition=asked.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
        )

    shapes = Topic, Topic.PartitionResult
    results = yield from _each_partition(context, request.group_id, request.topics, shapes, answer)
    return ReadShareGroupStateSummaryResponse(results=results)
