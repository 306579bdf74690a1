"""Routes: how a version of an API is decoded, handled and answered, and when its answer may be sent.

The dispatcher handles frames.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from minibroker.broker.delayed_operations import Begun, Promise, Slicer
from minibroker.broker.requests.answers import encode_answer, make_answer_start, set_throttle_time
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import Served
from minibroker.broker.turn import find_failure
from minibroker.protocol import apis, headers
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.headers import RequestHeader
from minibroker.protocol.steps import Steps

LARGE_FRAME_BYTES: Final = 4 << 10  # a smaller one is decoded within a millisecond
LARGE_PRODUCE_BYTES: Final = 32 << 10  # mostly records, which are not decoded
ALLOWED_BYTES_A_BYTE: Final = 5  # of memory for decoding a frame, per byte of it, and
ALLOWED_BYTES: Final = 5 << 20  # the amount for any frame


Outcome = Message | Coroutine[Any, Any, Message | None] | Begun | None  # of an attempt


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
        self.request_class: type[Message] = apis.get_request_class(served.key)
        self._response_class: type[Message] = apis.get_response_class(served.key)
        self.header_version = headers.get_request_header_version(served.key, version)
        self.answer_start = make_answer_start(headers.get_response_header_version(served.key, version))

    def decode_in_steps(self, frame: memoryview, position: int) -> Steps[tuple[Message, list[list[Any]]]]:
        """Decode the request at `position`; return it and its long arrays. Raises MalformedMessage."""
        allowed_bytes = ALLOWED_BYTES + ALLOWED_BYTES_A_BYTE * len(frame)
        return self.request_class.decode_in_steps(frame, self.version, position, allowed_bytes)

    def run_handler(self, context: RequestContext, request: Any, slicer: Slicer | None = None) -> Outcome:
        """Run the handler; return its answer, None for no answer, or the coroutine that it goes on with.

        A coroutine begins with `slicer`, if there is one; it may need nothing more.
        """
        try:
            outcome = self.handler(context, request)
            if not (outcome is None or isinstance(outcome, Message) or slicer is None or context.usage is not None):
                return slicer.run_first_coroutine_slice(outcome)
        except KafkaError as error:
            outcome = self.make_refusal(error)
        if context.usage is not None:
            context.usage.stop_request_time()
        return outcome

    def make_refusal(self, error: KafkaError) -> Message:
        """Return an answer with only this error. Raises `error` if the response has no field for it."""
        fields = self._response_class.__fields__
        if "error_code" not in fields:
            raise error
        message = {"error_message": error.message} if "error_message" in fields else {}
        return self._response_class(error_code=error.code, **message)

    def encode_answer(self, context: RequestContext, correlation_id: int, response: Message) -> list[Any]:
        """Return the frame of an answer: bytes, and the file regions between them."""
        return encode_answer(set_throttle_time(context, response), self.version, self.answer_start, correlation_id)

    def decode_request(self, frame: memoryview) -> Message:
        """Return the request in a frame that was decoded before."""
        _, position = RequestHeader.decode_from(frame, self.header_version)
        return self.request_class.decode_from(frame, self.version, position)[0]

    def decode_response(self, frame: Any) -> Message:
        """Return the response in the frame of an answer."""
        return self._response_class.decode_from(frame, self.version, len(self.answer_start))[0]


class Due:
    """An answer to send at the end of the turn, once what it reports is written."""

    __slots__ = ("_context", "_correlation_id", "_response", "_route")

    def __init__(self, context: RequestContext, route: Route, correlation_id: int, response: Message) -> None:
        self._context = context
        self._route = route
        self._correlation_id = correlation_id
        self._response = set_throttle_time(context, response)

    def list_answer_parts(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        waits, self._context.waits = self._context.waits, None  # `refuse` may hold the context
        for wait, refuse in waits or ():
            failure = find_failure(wait)
            if failure is not None:
                refuse(failure)
        return encode_answer(self._response, self._route.version, self._route.answer_start, self._correlation_id)


async def wait_until_written(context: RequestContext) -> None:
    """Wait until everything is written that the answer reports, or its time is over. Raises Unanswerable."""
    waits, context.waits = context.waits, None
    written: Promise[None] = Promise()
    context.cluster.turn.call_when_all_over(waits or (), partial(written.resolve, None))
    if context.timeout is not None and not written.done:
        timeout_ms, refuse = context.timeout
        context.cluster.clock.call_later(timeout_ms, partial(_set_error_if_unwritten, written, refuse))
    await written
    if context.lost_change is not None:
        raise Unanswerable(f"what was changed may be lost: {context.lost_change}")


def _set_error_if_unwritten(written: Promise[None], set_error: Callable[[], None]) -> None:
    if not written.done:
        set_error()
        written.resolve(None)
