"""The rejected parts of a request in the log: a line for each reason, however many parts the request has.

The handler chooses the level, and answers the client.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.protocol.apis import ApiKey, api_name
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext

Refusals = dict[ErrorCode, "Reason"]  # of one request


class Reason:
    """The reason why parts of a request are rejected, with the first of them and their number."""

    __slots__ = ("count", "error", "partition", "topic")

    def __init__(self, error: KafkaError, topic: str, partition: int | None) -> None:
        self.error = error
        self.topic = topic
        self.partition = partition
        self.count = 0

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return where if self.count == 1 else f"{where} and {self.count - 1} more"


def refused(context: RequestContext, error: KafkaError, topic: str, partition: int | None = None) -> None:
    """Count a topic, or one of its partitions, that is rejected with this error."""
    if context.refusals is None:
        context.refusals = {}
    reason = context.refusals.get(error.code)
    if reason is None:
        reason = context.refusals[error.code] = Reason(error, topic, partition)
    reason.count += 1


def log_refusals(context: RequestContext, logger: logging.Logger, key: ApiKey, level: int = logging.INFO) -> None:
    """Log a line for each reason why parts of the request were rejected."""
    refusals, context.refusals = context.refusals, None
    for reason in (refusals or {}).values():
        log_reason(context.client_id, logger, key, reason, level)


def log_reason(
    client_id: str | None, logger: logging.Logger, key: ApiKey, reason: Reason, level: int = logging.INFO
) -> None:
    """Log why parts of a request of this client were rejected."""
    if not logger.isEnabledFor(level):
        return
    api = api_name(key)
    fields = {"api": api, "client": client_id, "topic": reason.topic, "partition": reason.partition}
    fields |= {"code": reason.error.code.name, "count": reason.count}
    logger.log(level, f"{api} from %s refused for %s: %s", client_id, reason, reason.error, extra=fields)
