"""How what the coordinator has done is told to clients: once it is kept, and in the codes that their version knows.

What it does is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.requests.parked import Parked
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.transactions.coordinator import TransactionCoordinator


def answer_when_kept(
    transactions: TransactionCoordinator,
    transactional_id: str,
    response: Message,
    refused: Callable[[KafkaError], Message],
) -> Parked:
    """A request that is answered once what was written for a transactional id is kept: mostly at once."""
    parked = Parked()
    try:
        transactions.when_kept(
            transactional_id, lambda failure: parked.complete(response if failure is None else refused(failure))
        )
    except KafkaError as error:
        parked.complete(refused(error))
    return parked


def code_for(error: KafkaError, knows_producer_fenced: bool) -> ErrorCode:
    """The code for a client, which may be older than PRODUCER_FENCED (KIP-588)."""
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_producer_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
