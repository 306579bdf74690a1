"""Answers that wait for the disk: what a client was told about the cluster's metadata is never taken back by a crash.

A controller of Kafka answers when the metadata log's high watermark has passed its records, and that is after their
sync. How logs are synced is `storage.flushing`'s business; Produce waits by settings of its own (`handlers/produce`).
"""

from __future__ import annotations

import functools
import logging
from types import GeneratorType
from typing import Any, TypeVar

from minibroker.broker.requests.dispatch import Context, Handler, Unanswerable
from minibroker.broker.requests.parked import Parked
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.steps import Steps

log = logging.getLogger("minibroker.requests")

AnyHandler = TypeVar("AnyHandler", bound=Handler)


def durably(handler: AnyHandler) -> AnyHandler:
    """Have a handler that may change the cluster's metadata answer once what it has changed is on the disk itself.

    If that fails, nobody knows whether a start will find the change: the connection is closed without an answer.
    """

    @functools.wraps(handler)
    def run(context: Context, request: Any) -> Any:
        commits = context.cluster.commits
        response = handler(context, request)
        if isinstance(response, GeneratorType):
            return _after_steps(context, response, commits)
        return response if context.cluster.commits == commits else _once_durable(context, response)

    return run  # type: ignore[return-value]  # it has the handler's own type


def _after_steps(context: Context, steps: Steps[Any], commits: int) -> Steps[Any]:
    """As for other handlers; what others have changed meanwhile is waited for as well."""
    response = yield from steps
    return response if context.cluster.commits == commits else _once_durable(context, response)


def _once_durable(context: Context, response: Any) -> Parked:
    parked = Parked()
    failures: list[KafkaError] = []

    def answer(failure: KafkaError | None) -> None:
        if failure is None:
            if isinstance(response, Parked):
                response.attach(parked.complete, parked.fail)  # it waits for something else too
            else:
                parked.complete(response)
            return
        failures.append(failure)
        if not parked.done:
            log.error("closing %s: what it asked for may be lost: %s", context.connection.peer, failure)
            parked.cancel()
            context.connection.fail()

    context.cluster.metadata_log.storage.flush_soon(answer)
    if failures:
        raise Unanswerable(f"what was changed may be lost: {failures[0]}")
    return parked
