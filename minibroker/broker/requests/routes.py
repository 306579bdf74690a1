"""Routes: how a version of an API is decoded, handled and answered, and when its answer may be sent.

The frame of an answer is its size, the correlation id and the message, with the file regions between its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.delayed_operations import Promise
from minibroker.broker.requests.served import ServedApi
from minibroker.broker.turn import find_append_failure
from minibroker.protocol import apis, headers
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.headers import RequestHeader, ResponseHeader
from minibroker.protocol.primitives import Output
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext
    from minibroker.broker.turn import Refuse

LARGE_FRAME_BYTES: Final = 4 << 10  # a smaller one is decoded within a millisecond
LARGE_PRODUCE_BYTES: Final = 32 << 10  # mostly records, which are not decoded
ALLOWED_BYTES_A_BYTE: Final = 5  # of memory for decoding a frame, per byte of it, and
ALLOWED_BYTES: Final = 5 << 20  # the amount for any frame
SIZE: Final = Struct(">i")
SIZE_AND_CORRELATION_ID: Final = Struct(">ii")
MAX_ANSWER_BYTES = 100 << 20  # the limit of requests, too

Outcome = Message | Coroutine[Any, Any, Message | None] | None
Handler = Callable[["RequestContext", Any], Outcome]


class UnanswerableRequest(Exception):
    """A request that can only be answered by closing the connection; the message is for the log."""


class Route:
    """The decoder, handler and encoder of a version of an API; created on first use."""

    __slots__ = (
        "_large_bytes",
        "_response_class",
        "answer_start",
        "durable",
        "handler",
        "header_version",
        "key",
        "request_class",
        "version",
    )

    def __init__(self, served: ServedApi, version: int) -> None:
        self.key = served.key
        self.handler: Handler = served.handler
        self.durable = served.durable
        self.version = version
        self._large_bytes = LARGE_PRODUCE_BYTES if served.key == ApiKey.PRODUCE else LARGE_FRAME_BYTES
        self.request_class: type[Message] = apis.get_request_class(served.key)
        self._response_class: type[Message] = apis.get_response_class(served.key)
        self.header_version = headers.get_request_header_version(served.key, version)
        self.answer_start = encode_response_start(headers.get_response_header_version(served.key, version))

    def is_large(self, frame: memoryview) -> bool:
        """Return whether decoding may take more than one step."""
        return len(frame) > self._large_bytes

    def decode_in_one_step(self, frame: memoryview, position: int) -> Message | None:
        """Return the request at `position`, or None if its items are too many for one step. Raises MalformedMessage."""
        if not self.is_large(frame):
            return self.request_class.decode_from(frame, self.version, position)[0]
        reading = self.decode_in_steps(frame, position)
        try:
            next(reading)
        except StopIteration as end:
            request: Message = end.value[0]
            return request
        reading.close()
        return None

    def decode_in_steps(self, frame: memoryview, position: int) -> Steps[tuple[Message, list[list[Any]]]]:
        """Decode the request at `position`; return it and the long arrays in it. Raises MalformedMessage."""
        allowed_bytes = ALLOWED_BYTES + ALLOWED_BYTES_A_BYTE * len(frame)
        return self.request_class.decode_in_steps(frame, self.version, position, allowed_bytes)

    def make_refusal(self, error: KafkaError) -> Message:
        """Return a response with only this error. Raises `error` if the response has no field for it."""
        fields = self._response_class.__fields__
        if "error_code" not in fields:
            raise error
        message = {"error_message": error.message} if "error_message" in fields else {}
        return self._response_class(error_code=error.code, **message)

    def decode_request(self, frame: memoryview) -> Message:
        """Decode once more the request in a frame that has been decoded before."""
        _, position = RequestHeader.decode_from(frame, self.header_version)
        return self.request_class.decode_from(frame, self.version, position)[0]

    def decode_response(self, frame: Any) -> Message:
        """Return the response in the frame of an answer."""
        return self._response_class.decode_from(frame, self.version, len(self.answer_start))[0]


# --- encoding an answer -------------------------------------------------------------------------


def encode_response_start(header_version: int) -> bytes:
    """Return the start of answers with this header: space for size and correlation id, then the constant part."""
    return bytes(SIZE.size) + ResponseHeader().encode(header_version)


def encode_answer(response: Message, version: int, start: bytes, correlation_id: int) -> list[Any]:
    """Return the frame of an answer that begins with `start`: bytes, and the file regions between them."""
    out = Output()
    out += start
    response.encode_into(out, version)
    return _finish_frame(out, correlation_id)


def encode_response(context: RequestContext, response: Message) -> list[Any]:
    """Return the frame of the answer to a request."""
    return encode_answer(response, context.version, context.route.answer_start, context.correlation_id)


def encode_response_in_steps(context: RequestContext, response: Message) -> Steps[tuple[list[Any], list[list[Any]]]]:
    """Build the frame of an answer in steps; return it and the long arrays in it. Raises AnswerTooLarge."""
    out = Output()
    out += context.route.answer_start
    long_arrays = yield from response.encode_in_steps(out, context.version, MAX_ANSWER_BYTES)
    return _finish_frame(out, context.correlation_id), long_arrays


def _finish_frame(out: Output, correlation_id: int) -> list[Any]:
    """Write size and correlation id into the frame; return its bytes and file regions."""
    size_bytes = out.size_bytes if out.regions else len(out)
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes - SIZE.size, correlation_id)
    return out.list_bytes_and_regions() if out.regions else [out]


# --- when it may be sent ------------------------------------------------------------------------


class DueResponse:
    """An answer to send at the end of the turn, once what it reports is written."""

    __slots__ = ("_context", "_response")

    def __init__(self, context: RequestContext, response: Message) -> None:
        self._context = context
        self._response = response

    def list_answer_parts(self) -> list[Any]:
        """Return the answer's items to send; call it only once the turn has ended."""
        waits, self._context.waits = self._context.waits, None  # `refuse` may hold the context
        for wait, refuse, _ in waits or ():
            failure = find_append_failure(wait)
            if failure is not None:
                refuse(failure)
        return encode_response(self._context, self._response)


async def wait_until_written(context: RequestContext) -> None:
    """Wait until everything is written that the answer depends on; put errors of failed or late writes into it."""
    waits, context.waits = context.waits, None
    awaited: list[tuple[Promise[KafkaError | None], Refuse]] = []
    for wait, refuse, too_late in waits or ():
        written: Promise[KafkaError | None] = Promise()
        context.cluster.turn.call_when_wait_is_over(wait, written.resolve)
        if too_late is not None and not written.done:
            timeout_ms, error = too_late
            context.cluster.clock.call_later(timeout_ms, partial(written.resolve, error))
        awaited.append((written, refuse))
    for written, refuse in reversed(awaited):  # of those in a turn, the last one is over last
        failure = await written
        if failure is not None:
            refuse(failure)
