"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn, from producers; WriteTxnMarkers, from coordinators.

Behaviour: partitions are added all or none: where one does not exist, it is refused and the others are answered with
OPERATION_NOT_ATTEMPTED. The offsets of a group are its partition of `__consumer_offsets`. EndTxn is answered once the
decision is written; markers and the end follow by themselves, and until then the coordinator answers
CONCURRENT_TRANSACTIONS. A marker is answered for each partition.

Versions: AddPartitionsToTxn 2, AddOffsetsToTxn 2 and EndTxn 2 brought PRODUCER_FENCED (before,
INVALID_PRODUCER_EPOCH). AddPartitionsToTxn 4 and 5 are for brokers: several transactions at once, and only looking
whether partitions are in one. EndTxn 5 gives every transaction an epoch of its own, which the answer tells (KIP-890).
WriteTxnMarkers 2 says which kind of transaction it ends.

Not implemented: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from minibroker.broker.metadata.partitions import GROUPS_TOPIC
from minibroker.broker.requests.dispatch import Context, handles
from minibroker.broker.transactions.answers import code_for
from minibroker.broker.transactions.marking import write_markers
from minibroker.broker.transactions.transaction import OWN_EPOCHS, TopicPartition
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
from minibroker.protocol.steps import Steps, chunks

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
AskedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Codes = dict[TopicPartition, ErrorCode]

FIRST_WITH_PRODUCER_FENCED = 2
FIRST_ADD_PARTITIONS_OF_BROKERS = 4
FIRST_END_WITH_OWN_EPOCHS = 5
CLASSIC = 0  # the transaction version of clients that add partitions by this request

# --- AddPartitionsToTxn -------------------------------------------------------------------------


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5")
def add_partitions_to_txn(context: Context, request: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse]:
    if context.version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
        return (yield from _added_by_brokers(context, request))
    return (yield from _added_by_producer(context, request))


def _added_by_producer(context: Context, request: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse]:
    topics, transactional_id = request.v3_and_below_topics, request.v3_and_below_transactional_id
    producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch

    def refuse(error: KafkaError) -> None:
        _refuse(done.results_by_topic_v3_and_below, code_for(error, context.version >= FIRST_WITH_PRODUCER_FENCED))

    transactions = context.cluster.transactions
    codes = yield from _existing(context, topics)
    done = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from _results(topics, codes)))
    if any(codes.values()):
        return done
    try:
        transactions.check(context.node, transactional_id)
        transactions.add_partitions(transactional_id, producer, codes, CLASSIC)
        context.wait_for(transactions.wait(transactional_id), refuse)
    except KafkaError as error:
        refuse(error)
    return done


def _added_by_brokers(context: Context, request: AddPartitionsToTxnRequest) -> Steps[AddPartitionsToTxnResponse]:
    outcomes: list[tuple[Asked, Codes]] = []
    for asked in request.transactions:
        outcomes.append((asked, (yield from _added_by_broker(context, asked))))
        yield
    done = AddPartitionsToTxnResponse()
    written: list[Result] = []
    for asked, codes in outcomes:
        topics = yield from _results(asked.topics, codes)
        result = Result(transactional_id=asked.transactional_id, topic_results=topics)
        done.results_by_transaction.append(result)
        if not asked.verify_only and not any(codes.values()):
            written.append(result)
        yield
    for result in written:
        try:
            wait = context.cluster.transactions.wait(result.transactional_id)
            context.wait_for(wait, partial(_refuse_result, result))
        except KafkaError as error:
            _refuse_result(result, error)
        yield
    return done


def _refuse_result(result: Result, error: KafkaError) -> None:
    _refuse(result.topic_results, error.code)


def _refuse(topics: Iterable[TopicResult], code: ErrorCode) -> None:
    for topic in topics:
        for partition in topic.results_by_partition:
            partition.partition_error_code = code


def _added_by_broker(context: Context, asked: Asked) -> Steps[Codes]:
    """The code of each partition that another broker wants added, or (`verify_only`) wants to know of."""
    codes = yield from _existing(context, asked.topics)
    if any(codes.values()):
        return codes
    transactions = context.cluster.transactions
    producer = asked.producer_id, asked.producer_epoch
    try:
        transactions.check(context.node, asked.transactional_id)
        if not asked.verify_only:
            transactions.add_partitions(asked.transactional_id, producer, codes, OWN_EPOCHS)
            return codes
    except KafkaError as error:
        return dict.fromkeys(codes, error.code)
    for partition in codes:
        try:
            transactions.check_partition(asked.transactional_id, producer, partition)
        except KafkaError as error:
            codes[partition] = error.code
        yield
    return codes


def _existing(context: Context, topics: Iterable[AskedTopic]) -> Steps[Codes]:
    """NONE for each partition; if there is one that does not exist, nothing is attempted for the others."""
    codes: Codes = {}
    for asked in topics:
        topic = context.cluster.image.topics.get(asked.name)
        for index in asked.partitions:
            known = topic is not None and topic.partition(index) is not None
            codes[asked.name, index] = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield
        yield
    if any(codes.values()):
        return {partition: code or ErrorCode.OPERATION_NOT_ATTEMPTED for partition, code in codes.items()}
    return codes


def _results(topics: Sequence[AskedTopic], codes: Codes) -> Steps[list[TopicResult]]:
    results = []
    for topic in topics:
        result = TopicResult(name=topic.name)
        for portion in chunks(topic.partitions):
            result.results_by_partition += [
                PartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in portion
            ]
            yield
        results.append(result)
        yield
    return results


# --- AddOffsetsToTxn ----------------------------------------------------------------------------


@handles(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", durable=True)
def add_offsets_to_txn(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    response = AddOffsetsToTxnResponse()

    def refuse(error: KafkaError) -> None:
        response.error_code = code_for(error, context.version >= FIRST_WITH_PRODUCER_FENCED)

    transactions, groups = context.cluster.transactions, context.cluster.groups
    try:
        transactions.check(context.node, request.transactional_id)
        groups.topic.create()
        partition = GROUPS_TOPIC, groups.topic.partition_of(request.group_id)
        producer = request.producer_id, request.producer_epoch
        transactions.add_partitions(request.transactional_id, producer, [partition], CLASSIC)
        context.wait_for(transactions.wait(request.transactional_id), refuse)
    except KafkaError as error:
        refuse(error)
    return response


# --- EndTxn and its markers ---------------------------------------------------------------------


@handles(ApiKey.END_TXN, "0-5", durable=True)
def end_txn(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    response = EndTxnResponse()

    def refuse(error: KafkaError) -> None:
        response.error_code = code_for(error, context.version >= FIRST_WITH_PRODUCER_FENCED)
        response.producer_id = response.producer_epoch = -1

    transactions = context.cluster.transactions
    producer = request.producer_id, request.producer_epoch
    version = OWN_EPOCHS if context.version >= FIRST_END_WITH_OWN_EPOCHS else CLASSIC
    try:
        transactions.check(context.node, request.transactional_id)
        after = transactions.end(request.transactional_id, producer, request.committed, version)
        response.producer_id, response.producer_epoch = after
        context.wait_for(transactions.wait(request.transactional_id), refuse)
    except KafkaError as error:
        refuse(error)
    return response


@handles(ApiKey.WRITE_TXN_MARKERS, "0-2")
def write_txn_markers(context: Context, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    return write_markers(context.cluster, context.node, request)
