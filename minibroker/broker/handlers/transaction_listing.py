"""DescribeTransactions, ListTransactions and DescribeProducers: transactions as administrators see them (KIP-664).

Behaviour: the coordinator of a transactional id describes its transaction; each node lists the transactions that it
coordinates. Each replica of a partition describes its producers that have not expired, with the first offsets of their
open transactions. Empty filters match everything. Unknown states in a filter are returned. For the filter by duration,
a transaction that has not begun counts as begun at time -1, as in Kafka.

Versions: ListTransactions 1 brought the filter by duration, 2 the filter by a pattern of the transactional id
(KIP-1152), which must match the whole id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.leaders import get_hosted_partition
from minibroker.broker.metadata.partitions import check_topic_name
from minibroker.broker.requests.context import NameRepetitions, RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    DENIAL_MESSAGES,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    READ_TOPIC,
    ResourceType,
)
from minibroker.broker.transactions.transaction import LABELS, Transaction, TransactionState
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from minibroker.protocol.steps import Steps, apply_to_distinct_items_in_steps, run_steps_of_each_item
from minibroker.storage.producers.producer_state import ProducerEntry

if TYPE_CHECKING:
    from minibroker.patterns.program import Pattern

DescribedTransaction = DescribeTransactionsResponse.TransactionState
ListedTransaction = ListTransactionsResponse.TransactionState
TopicAnswer = DescribeProducersResponse.TopicResponse
PartitionAnswer = TopicAnswer.PartitionResponse
ProducerAnswer = PartitionAnswer.ProducerState


# --- DescribeTransactions -----------------------------------------------------------------------


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
async def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    states = await run_in_slices(
        apply_to_distinct_items_in_steps(partial(_describe_transaction, context), request.transactional_ids)
    )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe_transaction(context: RequestContext, transactional_id: str) -> DescribedTransaction:
    transactions = context.cluster.transactions
    try:
        context.authorize(DESCRIBE_TRANSACTIONAL_ID, transactional_id)
        transactions.check_is_coordinator(context.node, transactional_id)
    except KafkaError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    transaction = transactions.transactions.get(transactional_id)
    if transaction is None:
        return DescribedTransaction(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(
        transactions.markers.get_partitions_without_marker(transactional_id) or transaction.partitions
    ):
        if context.allows(DESCRIBE_TOPIC, topic):
            by_topic.setdefault(topic, []).append(index)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.api_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[DescribedTransaction.TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


# --- ListTransactions ---------------------------------------------------------------------------


@handles(ApiKey.LIST_TRANSACTIONS)
async def list_transactions(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in LABELS]
    states = {LABELS[name] for name in request.state_filters if name in LABELS}
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    if request.state_filters and not states:
        return response  # it asks only for states that do not exist
    passes = _make_transaction_filter(request, states, context.cluster.clock.wall_ms())
    transactions = context.cluster.transactions
    for transaction in transactions.transactions.iterate_present_values():
        await pause()
        transactional_id = transaction.transactional_id
        is_here = transactions.find_coordinator_node(transactional_id) is context.node
        if is_here and passes(transaction) and context.allows(DESCRIBE_TRANSACTIONAL_ID, transactional_id):
            listed = ListedTransaction(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.api_name,
            )
            response.transaction_states.append(listed)
    return response


def _make_transaction_filter(
    request: ListTransactionsRequest, states: set[TransactionState], now_ms: int
) -> Callable[[Transaction], bool]:
    """Return a function that returns whether a transaction matches the filters of a request.

    Raises KafkaError(INVALID_REGULAR_EXPRESSION).
    """
    pattern = _compile_id_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    producer_ids = set(request.producer_id_filters)

    def matches(transaction: Transaction) -> bool:
        return (
            transaction.state is not TransactionState.DEAD
            and (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (request.duration_filter < 0 or now_ms - transaction.start_ms > request.duration_filter)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        )

    return matches


def _compile_id_pattern(text: str) -> Pattern:
    from minibroker.patterns.program import Pattern as Compiled  # late, as few use it
    from minibroker.patterns.syntax import InvalidPattern

    try:
        return Compiled(text)
    except InvalidPattern as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


# --- DescribeProducers --------------------------------------------------------------------------


@handles(ApiKey.DESCRIBE_PRODUCERS)
async def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    namings = NameRepetitions()

    def describe_producers_of_topic(topic: DescribeProducersRequest.TopicRequest) -> Steps[TopicAnswer]:
        partitions = []
        for index in topic.partition_indexes:
            partitions.append((yield from _describe_producers_of_partition(context, topic.name, index, namings)))
            yield
        return TopicAnswer(name=topic.name, partitions=partitions)

    return DescribeProducersResponse(
        topics=(await run_in_slices(run_steps_of_each_item(describe_producers_of_topic, request.topics)))
    )


def _describe_producers_of_partition(
    context: RequestContext, topic: str, index: int, repetitions: NameRepetitions
) -> Steps[PartitionAnswer]:
    try:
        repetitions.count_or_refuse_name((topic, index))
        check_topic_name(topic)
        context.authorize(READ_TOPIC, topic, message=DENIAL_MESSAGES[ResourceType.TOPIC])
        partition = get_hosted_partition(context.node.node_id, context.find_topic(topic), index)
    except KafkaError as error:
        return PartitionAnswer(partition_index=index, error_code=error.code, error_message=error.message)
    producers = partition.log.producers
    answers = []
    for producer_id in producers.list_producer_ids():
        entry = producers.find_producer_entry(producer_id)
        if entry is not None:
            answers.append(_describe_producer(producer_id, entry))
        yield
    return PartitionAnswer(partition_index=index, active_producers=answers)


def _describe_producer(producer_id: int, entry: ProducerEntry) -> ProducerAnswer:
    return ProducerAnswer(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1][1] if entry.batches else -1,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
