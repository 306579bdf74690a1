"""Routes: how a version of an API is decoded, handled and answered, and when its answer may be sent.

The dispatcher handles frames, and the steps of handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import Any

from minibroker.broker.network.parked import Parked
from minibroker.broker.requests.answers import answer_start, encoded, throttled
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import Served
from minibroker.broker.turn import Wait, failure_of
from minibroker.protocol import apis, headers
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.steps import Steps

LARGE_FRAME_BYTES = 4 << 10  # a smaller one is decoded within a millisecond
LARGE_PRODUCE_BYTES = 32 << 10  # mostly records, which are not decoded
ALLOWED_BYTES_A_BYTE = 5  # of memory for decoding a frame, per byte of it, and
ALLOWED_BYTES = 5 << 20  # the amount for any frame


class Unanswerable(Exception):
    """A request that can only be answered by closing the connection; the message is for the log."""


class Route:
    """The decoder, handler and encoder of a version of an API; created on first use."""

    __slots__ = (
        "_response_class",
        "answer_start",
        "durable",
        "handler",
        "header_version",
        "key",
        "large_bytes",
        "lasting",
        "request_class",
        "version",
    )

    def __init__(self, served: Served, version: int) -> None:
        self.key = served.key
        self.handler = served.handler
        self.durable = served.durable
        self.lasting = served.lasting
        self.version = version
        self.large_bytes = LARGE_PRODUCE_BYTES if served.key == ApiKey.PRODUCE else LARGE_FRAME_BYTES
        self.request_class: type[Message] = apis.request_class(served.key)
        self._response_class: type[Message] = apis.response_class(served.key)
        self.header_version = headers.request_header_version(served.key, version)
        self.answer_start = answer_start(headers.response_header_version(served.key, version))

    def read(self, frame: memoryview, position: int) -> Steps[tuple[Message, list[list[Any]]]]:
        """Decode the request at `position`; return it and its long arrays. Raises MalformedMessage."""
        allowed_bytes = ALLOWED_BYTES + ALLOWED_BYTES_A_BYTE * len(frame)
        return self.request_class.decode_in_steps(frame, self.version, position, allowed_bytes)

    def run(self, context: RequestContext, request: Any) -> Any:
        """Run the handler; return a response, None, steps, or a Parked, which includes the waits of the context."""
        commits = context.cluster.commits
        try:
            outcome = self.handler(context, request)
        except KafkaError as error:
            outcome = self.refusal(error)
        if context.usage is not None:
            context.usage.stop()
        if outcome.__class__ is GeneratorType:
            return self.run_on(context, outcome, commits)
        return self.promised(context, outcome, commits)

    def run_on(self, context: RequestContext, steps: Steps[Any], commits: int) -> Steps[Any]:
        """Run the handler's steps, then wait for metadata changes, also those of other requests meanwhile."""
        try:
            outcome = yield from (steps if context.usage is None else context.usage.timed(steps))
        except KafkaError as error:
            outcome = self.refusal(error)
        return self.promised(context, outcome, commits)

    def refusal(self, error: KafkaError) -> Message:
        """Return an answer with only this error. Raises `error` if the response has no field for it."""
        fields = self._response_class.__fields__
        if "error_code" not in fields:
            raise error
        message = {"error_message": error.message} if "error_message" in fields else {}
        return self._response_class(error_code=error.code, **message)

    def answer(self, context: RequestContext, correlation_id: int, response: Message) -> list[Any]:
        """Return the frame of an answer: bytes, and the file regions between them."""
        return encoded(throttled(context, response), self.version, self.answer_start, correlation_id)

    def promised(self, context: RequestContext, response: Any, commits: int) -> Any:
        """Return `response`, or a Parked of it if it must wait for a write or a sync.

        `commits` is the number of metadata changes when the handler began.
        """
        cluster = context.cluster
        lost: list[KafkaError] = []
        if self.durable and cluster.commits != commits:
            metadata = cluster.metadata_log.storage
            context.wait_for(Wait(metadata, metadata.unwritten, synced=True), lost.append)
        waits, context.waits = context.waits, None
        if waits is None:
            return response
        parked = Parked()
        parked.holds_request = self.key != ApiKey.PRODUCE
        if isinstance(response, Parked):
            parked.on_cancel, parked.on_give_up = response.cancel, response.on_give_up

        def complete() -> None:
            if not lost:
                if isinstance(response, Parked):
                    response.attach(parked.complete, parked.fail)  # it also waits for something else
                else:
                    parked.complete(response)
            elif not parked.done:
                parked.fail(Unanswerable(f"what was changed may be lost: {lost[0]}"))

        cluster.turn.when_all(waits, complete)
        if lost:
            raise Unanswerable(f"what was changed may be lost: {lost[0]}")
        if context.timeout is not None and not parked.done:
            timeout_ms, refuse = context.timeout
            cluster.clock.call_later(timeout_ms, partial(_too_late, parked, response, refuse))
        return parked

    def request_in(self, frame: memoryview) -> Message:
        """Return the request in a frame that was decoded before."""
        _, position = RequestHeader.decode_from(frame, self.header_version)
        return self.request_class.decode_from(frame, self.version, position)[0]


class Due:
    """An answer to send at the end of the turn, once what it reports is written."""

    __slots__ = ("_context", "_correlation_id", "_response", "_route")

    def __init__(self, context: RequestContext, route: Route, correlation_id: int, response: Message) -> None:
        self._context = context
        self._route = route
        self._correlation_id = correlation_id
        self._response = throttled(context, response)

    def items(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        waits, self._context.waits = self._context.waits, None  # `refuse` may hold the context
        for wait, refuse in waits or ():
            failure = failure_of(wait)
            if failure is not None:
                refuse(failure)
        return encoded(self._response, self._route.version, self._route.answer_start, self._correlation_id)


def _too_late(parked: Parked, response: Message, refuse: Callable[[], None]) -> None:
    if not parked.done:
        refuse()
        parked.complete(response)
