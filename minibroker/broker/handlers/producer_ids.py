"""InitProducerId: an id and an epoch for each idempotent or transactional producer.

Behaviour: without a transactional id, every request gets a new id with epoch 0. An id and epoch in the request make no
difference (with KIP-360 the client bumps its epoch itself), but both or none must be given. The right to write to any
topic is enough (KIP-679). With a transactional id, the producer gets its next epoch, which fences the producer before
it. An open transaction is aborted first: the client gets CONCURRENT_TRANSACTIONS and asks again.

Versions: 2 brought flexible fields, 3 the producer's current id and epoch, 4 PRODUCER_FENCED (before,
INVALID_PRODUCER_EPOCH), 5 TRANSACTION_ABORTABLE (never answered here), 6 two-phase commit (KIP-939). Kafka has not
released version 6 yet. With transaction.two.phase.commit.enable, transactions of such a producer never time out. A
request to keep a prepared transaction is answered with UNSUPPORTED_VERSION, as in Kafka 4.4.
"""

from __future__ import annotations

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    IDEMPOTENT_WRITE,
    TWO_PHASE_COMMIT_ID,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from minibroker.broker.transactions.transaction import NEVER_MS, choose_error_code_for_client
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

NONE_GIVEN = -1
FIRST_EPOCH = 0
FIRST_WITH_PRODUCER_FENCED = 4


@handles(ApiKey.INIT_PRODUCER_ID, durable=True)
def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        if request.transactional_id is not None:
            context.authorize(WRITE_TRANSACTIONAL_ID, request.transactional_id)
            if request.enable2_pc:
                context.authorize(TWO_PHASE_COMMIT_ID, request.transactional_id)
        elif not (context.allows(IDEMPOTENT_WRITE) or context.allows_on_any_resource(WRITE_TOPIC)):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if (request.producer_id == NONE_GIVEN) != (request.producer_epoch == NONE_GIVEN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch go together.")
        if request.transactional_id is not None:
            return _init_transactional_producer(context, request, request.transactional_id)
        producer_id = context.cluster.controller.allocate_producer_id()
    except KafkaError as error:
        return _make_error_response(context, error)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _init_transactional_producer(
    context: RequestContext, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    transactions = context.cluster.transactions
    transactions.check_is_coordinator(context.node, transactional_id)
    timeout_ms = _validate_transaction_timeout_ms(context, request)
    expected = None if request.producer_id == NONE_GIVEN else (request.producer_id, request.producer_epoch)
    producer_id, epoch = transactions.initialize_producer(transactional_id, timeout_ms, expected)
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)

    def set_response_error(error: KafkaError) -> None:
        response.error_code = choose_error_code_for_client(error, context.version >= FIRST_WITH_PRODUCER_FENCED)
        response.producer_id = response.producer_epoch = -1

    context.delay_answer_until_wait_is_over(transactions.make_durability_wait(transactional_id), set_response_error)
    return response


def _validate_transaction_timeout_ms(context: RequestContext, request: InitProducerIdRequest) -> int:
    """Return the time after which the producer's transactions are aborted. Raises KafkaError."""
    settings = context.cluster.settings
    if request.enable2_pc and not settings["transaction.two.phase.commit.enable"]:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Two-phase commit is disabled.")
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Prepared transactions cannot be kept.")
    if request.enable2_pc:
        return NEVER_MS
    timeout_ms = request.transaction_timeout_ms
    if not 0 < timeout_ms <= settings["transaction.max.timeout.ms"]:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms is no transaction timeout.")
    return timeout_ms


def _make_error_response(context: RequestContext, error: KafkaError) -> InitProducerIdResponse:
    code = choose_error_code_for_client(error, context.version >= FIRST_WITH_PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
