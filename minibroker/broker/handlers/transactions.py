"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, sent by producers; WriteTxnMarkers, sent by coordinators.

Behaviour: a request adds all partitions or none: if one does not exist, it is refused, and the others are answered
with OPERATION_NOT_ATTEMPTED. AddOffsetsToTxn adds the group's partition of `__consumer_offsets`. EndTxn is answered
when the decision is written. The coordinator then writes the markers, and answers CONCURRENT_TRANSACTIONS until all
are written. WriteTxnMarkers has a result for each partition.

Versions: AddPartitionsToTxn 2, AddOffsetsToTxn 2 and EndTxn 2 brought PRODUCER_FENCED (before,
INVALID_PRODUCER_EPOCH). AddPartitionsToTxn 4 and 5 are for brokers: several transactions at once, and verify_only,
which only checks that partitions have been added. From EndTxn 5 on every transaction has its own epoch, which is in
the answer (KIP-890). WriteTxnMarkers 2 brought the transaction version.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Final

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.metadata.partitions import GROUPS_TOPIC, INTERNAL_TOPICS
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    ALTER_CLUSTER,
    CLUSTER_ACTION,
    READ_GROUP,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from minibroker.broker.transactions.marking import write_markers
from minibroker.broker.transactions.transaction import OWN_EPOCHS, TopicPartition, choose_error_code_for_client
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from minibroker.protocol.steps import (
    Steps,
    apply_to_items_in_steps,
    fits_in_one_step,
    run_all_steps,
    run_steps_of_each_item,
    split_into_portions,
)

RequestedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
RequestedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
MarkerTopic = WriteTxnMarkersRequest.WritableTxnMarker.WritableTxnMarkerTopic
MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
MarkerTopicResult = MarkerResult.WritableTxnMarkerTopicResult
CodesByPartition = dict[TopicPartition, ErrorCode]

FIRST_WITH_PRODUCER_FENCED: Final = 2
FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4
FIRST_END_WITH_OWN_EPOCHS: Final = 5
CLASSIC: Final = 0  # the transaction version of clients that add partitions by this request

# --- AddPartitionsToTxn -------------------------------------------------------------------------


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Coroutine[Any, Any, AddPartitionsToTxnResponse]:
    if context.version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        context.authorize(CLUSTER_ACTION)
        return run_in_slices(_add_partitions_for_brokers(context, request))
    steps = _add_partitions_for_producer(context, request)
    topics = request.v3_and_below_topics
    return run_all_steps(steps) if fits_in_one_step(topic.partitions for topic in topics) else run_in_slices(steps)


def _add_partitions_for_producer(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse]:
    topics, transactional_id = request.v3_and_below_topics, request.v3_and_below_transactional_id
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch

    def set_topics_error(error: KafkaError) -> None:
        _set_error_of_topics(
            done.results_by_topic_v3_and_below,
            choose_error_code_for_client(error, context.version >= FIRST_WITH_PRODUCER_FENCED),
        )

    transactions = context.cluster.transactions
    codes = yield from _find_partition_error_codes(context, topics, by_producer=True)
    done = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from _make_topic_results(topics, codes)))
    try:
        context.authorize(WRITE_TRANSACTIONAL_ID, transactional_id)
        if any(codes.values()):
            return done
        transactions.check_is_coordinator(context.node, transactional_id)
        transactions.add_partitions(transactional_id, producer, codes, CLASSIC)
        context.delay_answer_until_wait_is_over(transactions.make_durability_wait(transactional_id), set_topics_error)
    except KafkaError as error:
        set_topics_error(error)
    return done


def _add_partitions_for_brokers(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse]:
    outcomes: list[tuple[RequestedTransaction, CodesByPartition]] = []
    for asked in request.transactions:
        outcomes.append((asked, (yield from _add_or_verify_partitions_for_broker(context, asked))))
        yield
    done = AddPartitionsToTxnResponse()
    written: list[TransactionResult] = []
    for asked, codes in outcomes:
        topics = yield from _make_topic_results(asked.topics, codes)
        result = TransactionResult(transactional_id=asked.transactional_id, topic_results=topics)
        done.results_by_transaction.append(result)
        if not asked.verify_only and not any(codes.values()):
            written.append(result)
        yield
    for result in written:
        try:
            wait = context.cluster.transactions.make_durability_wait(result.transactional_id)
            context.delay_answer_until_wait_is_over(wait, partial(_set_error_of_result, result))
        except KafkaError as error:
            _set_error_of_result(result, error)
        yield
    return done


def _set_error_of_result(result: TransactionResult, error: KafkaError) -> None:
    _set_error_of_topics(result.topic_results, error.code)


def _set_error_of_topics(topics: Iterable[TopicResult], code: ErrorCode) -> None:
    for topic in topics:
        for partition in topic.results_by_partition:
            partition.partition_error_code = code


def _add_or_verify_partitions_for_broker(
    context: RequestContext, requested: RequestedTransaction
) -> Steps[CodesByPartition]:
    """Return the code of each partition that another broker wants to add or (`verify_only`) to check."""
    codes = yield from _find_partition_error_codes(context, requested.topics, by_producer=False)
    if any(codes.values()):
        return codes
    transactions = context.cluster.transactions
    producer = requested.producer_id, requested.producer_epoch
    try:
        transactions.check_is_coordinator(context.node, requested.transactional_id)
        if not requested.verify_only:
            transactions.add_partitions(requested.transactional_id, producer, codes, OWN_EPOCHS)
            return codes
    except KafkaError as error:
        return dict.fromkeys(codes, error.code)
    for partition in codes:
        try:
            transactions.check_partition_in_transaction(requested.transactional_id, producer, partition)
        except KafkaError as error:
            codes[partition] = error.code
        yield
    return codes


def _find_partition_error_codes(
    context: RequestContext, topics: Iterable[RequestedTopic], *, by_producer: bool
) -> Steps[CodesByPartition]:
    """Return the error code of each partition: if one has any, all have; a request `by_producer` needs write access."""
    codes: CodesByPartition = {}
    for asked in topics:
        topic, unknown = context.find_topic(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if by_producer and (
            asked.name in INTERNAL_TOPICS or not context.allows(WRITE_TOPIC, asked.name, is_needed=True)
        ):
            topic, unknown = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index in asked.partitions:
            known = topic is not None and topic.find_partition(index) is not None
            codes[asked.name, index] = ErrorCode.NONE if known else unknown
            yield
        yield
    if any(codes.values()):
        return {partition: code or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, code in codes.items()}
    return codes


def _make_topic_results(
    topics: Sequence[RequestedTopic], codes_by_partition: CodesByPartition
) -> Steps[list[TopicResult]]:
    results = []
    for topic in topics:
        result = TopicResult(name=topic.name)
        for portion in split_into_portions(topic.partitions):
            result.results_by_partition += [
                PartitionResult(partition_index=index, partition_error_code=codes_by_partition[topic.name, index])
                for index in portion
            ]
            yield
        results.append(result)
        yield
    return results


# --- AddOffsetsToTxn ----------------------------------------------------------------------------


@handles(ApiKey.ADD_OFFSETS_TO_TXN, durable=True)
def add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    response = AddOffsetsToTxnResponse()

    def set_response_error(error: KafkaError) -> None:
        response.error_code = choose_error_code_for_client(error, context.version >= FIRST_WITH_PRODUCER_FENCED)

    transactions, groups = context.cluster.transactions, context.cluster.groups
    try:
        context.authorize(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        context.authorize(READ_GROUP, request.group_id)
        transactions.check_is_coordinator(context.node, request.transactional_id)
        groups.log.create_topic()
        partition = GROUPS_TOPIC, groups.log.get_partition_index(request.group_id)
        producer = request.producer_id, request.producer_epoch
        transactions.add_partitions(request.transactional_id, producer, [partition], CLASSIC)
        context.delay_answer_until_wait_is_over(
            transactions.make_durability_wait(request.transactional_id), set_response_error
        )
    except KafkaError as error:
        set_response_error(error)
    return response


# --- EndTxn and its markers ---------------------------------------------------------------------


@handles(ApiKey.END_TXN, durable=True)
def end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    response = EndTxnResponse()

    def set_response_error(error: KafkaError) -> None:
        response.error_code = choose_error_code_for_client(error, context.version >= FIRST_WITH_PRODUCER_FENCED)
        response.producer_id = response.producer_epoch = -1

    transactions = context.cluster.transactions
    producer = request.producer_id, request.producer_epoch
    version = OWN_EPOCHS if context.version >= FIRST_END_WITH_OWN_EPOCHS else CLASSIC
    try:
        context.authorize(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        transactions.check_is_coordinator(context.node, request.transactional_id)
        after = transactions.end_transaction(request.transactional_id, producer, request.committed, version)
        response.producer_id, response.producer_epoch = after
        context.delay_answer_until_wait_is_over(
            transactions.make_durability_wait(request.transactional_id), set_response_error
        )
    except KafkaError as error:
        set_response_error(error)
    return response


@handles(ApiKey.WRITE_TXN_MARKERS)
async def write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not (context.allows(ALTER_CLUSTER) or context.allows(CLUSTER_ACTION, is_needed=True)):
        return await run_in_slices(_make_unauthorized_markers_response(request))
    return await run_in_slices(write_markers(context.cluster, context.node, request))


def _make_unauthorized_markers_response(request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Return the answer to a client that may not write markers."""
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        topics = yield from run_steps_of_each_item(_make_unauthorized_topic_result, marker.topics)
        response.markers.append(MarkerResult(producer_id=marker.producer_id, topics=topics))
    return response


def _make_unauthorized_topic_result(requested: MarkerTopic) -> Steps[MarkerTopicResult]:
    shape, code = MarkerTopicResult.WritableTxnMarkerPartitionResult, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    partitions = yield from apply_to_items_in_steps(
        lambda index: shape(partition_index=index, error_code=code), requested.partition_indexes
    )
    return MarkerTopicResult(name=requested.name, partitions=partitions)
