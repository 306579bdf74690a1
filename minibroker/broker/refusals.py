"""What of a request was refused, for the log: a line for each reason, however many parts the request has.

Which level that is worth, and what the client is told, is the handler's business.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.dispatch import Context


class Refusals:
    """The refused parts of one request: of each reason the first one, and how many there are."""

    __slots__ = ("_by_code",)

    def __init__(self) -> None:
        self._by_code: dict[ErrorCode, _Reason] = {}

    def add(self, error: KafkaError, topic: str, partition: int | None = None) -> None:
        """Count a topic, or one of its partitions, that is refused for this error."""
        reason = self._by_code.get(error.code)
        if reason is None:
            reason = self._by_code[error.code] = _Reason(error, topic, partition)
        reason.count += 1

    def tell(self, logger: logging.Logger, context: Context, api: str, level: int = logging.INFO) -> None:
        """Log a line for each reason."""
        for code, reason in self._by_code.items():
            fields = {"api": api, "client": context.client_id, "code": code.name, "count": reason.count}
            fields |= {"topic": reason.topic, "partition": reason.partition}
            logger.log(
                level, f"{api} from %s refused for %s: %s", context.client_id, reason, reason.error, extra=fields
            )


class _Reason:
    """Why parts are refused: with the first of them, and their number."""

    __slots__ = ("count", "error", "partition", "topic")

    def __init__(self, error: KafkaError, topic: str, partition: int | None) -> None:
        self.error = error
        self.topic = topic
        self.partition = partition
        self.count = 0

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return where if self.count == 1 else f"{where} and {self.count - 1} more"
