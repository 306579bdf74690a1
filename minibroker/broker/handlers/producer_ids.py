"""InitProducerId: an id of its own for each idempotent producer.

Behaviour: without a transactional id every request gets an id that was never given out, with epoch 0, whatever id and
epoch it brings (KIP-360 bumps epochs on the client's side); id and epoch go together. With a transactional id the
request is checked as in Kafka, and then refused with UNSUPPORTED_VERSION, Kafka's word for what a broker cannot do.
Java's producer takes that for final; librdkafka logs it with each try and raises it when its own timeout is up. The few
codes that librdkafka takes for final speak of authorization and timeouts, and would not be true.

Versions: 2 brought flexible fields, 3 the producer's present id and epoch, 4 PRODUCER_FENCED and 5 the code
TRANSACTION_ABORTABLE (neither of which is ever answered here).

Not implemented: transactions.
"""

from __future__ import annotations

from minibroker.broker.coordinators import check_coordinator
from minibroker.broker.dispatch import Context, handles
from minibroker.broker.durable import durably
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

NONE_GIVEN = -1
FIRST_EPOCH = 0
MAXIMUM_TRANSACTION_TIMEOUT_MS = 900_000  # Kafka's default of transaction.max.timeout.ms


@handles(ApiKey.INIT_PRODUCER_ID, "0-5")
@durably
def init_producer_id(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        if (request.producer_id == NONE_GIVEN) != (request.producer_epoch == NONE_GIVEN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id and its epoch go together.")
        if request.transactional_id is not None:
            _refuse_transactions(context, request.transactional_id, request.transaction_timeout_ms)
        producer_id = context.cluster.controller.next_producer_id()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _refuse_transactions(context: Context, transactional_id: str, timeout_ms: int) -> None:
    """Raises KafkaError for any transactional id, with Kafka's reason if it has one."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id is not empty.")
    if not 0 < timeout_ms <= MAXIMUM_TRANSACTION_TIMEOUT_MS:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{timeout_ms} ms is no transaction timeout.")
    check_coordinator(context.cluster, context.node, transactional_id)
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not served yet.")
