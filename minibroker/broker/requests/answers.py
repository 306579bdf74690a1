"""The frames of answers: size, correlation id, message, and the file regions between its bytes."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from minibroker.broker.network.sockets import BYTES, CLOSE
from minibroker.broker.requests.interceptors import Call, Mark
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import ResponseHeader
from minibroker.protocol.primitives import Output
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext
    from minibroker.broker.requests.dispatch import Route

SIZE = Struct(">i")
SIZE_AND_CORRELATION_ID = Struct(">ii")
MAX_ANSWER_BYTES = 100 << 20  # as large as a request may be


def answer_start(header_version: int) -> bytes:
    """What answers with this header begin with: room for size and correlation id, then what is always the same."""
    return bytes(SIZE.size) + ResponseHeader().encode(header_version)


def throttled(context: RequestContext, response: Message) -> Message:
    """Return the answer, which says for how long its client is throttled."""
    throttle_ms = context.throttle()
    if throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    return response


def encoded(response: Message, version: int, start: bytes, correlation_id: int) -> list[Any]:
    """The frame of an answer that begins with `start`: bytes, and the file regions between them."""
    out = Output()
    out += start
    response.encode_into(out, version)
    regions = out.regions
    size_bytes = len(out) - SIZE.size
    if not regions:
        SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes, correlation_id)
        return [out]
    size_bytes += sum(region.size_bytes for _, region in regions)
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes, correlation_id)
    return out.parts()


def encoded_in_steps(
    response: Message, route: Route, correlation_id: int, call: Call | None
) -> Steps[tuple[list[Any], list[list[Any]]]]:
    """The frame of an answer as `encoded` gives it, with the marks of `call`, and the arrays that are long."""
    out = Output()
    out += route.answer_start
    long_arrays = yield from response.encode_in_steps(out, route.version, MAX_ANSWER_BYTES)
    size_bytes = len(out) - SIZE.size + sum(region.size_bytes for _, region in out.regions)
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, size_bytes, correlation_id)
    items: list[Any] = out.parts() if out.regions else [out]
    return (items if call is None else _marked(call, items)), long_arrays


def intercepted(call: Call, route: Route, response: Message | None) -> list[Any] | None:
    """The items of the answer that the interceptors let through, and the mark that tells when they have left."""
    if response is None:
        call.sent(0)
        return None
    response = call.answered(throttled(call.context, response))
    return _marked(call, encoded(response, route.version, route.answer_start, call.correlation_id))


def _marked(call: Call, items: list[Any]) -> list[Any]:
    items = call.encoded(items)
    end = items.index(CLOSE) if CLOSE in items else len(items)
    items.insert(end, Mark(call, sum(map(_size_bytes, items[:end]))))
    return items


def _size_bytes(item: Any) -> int:
    """How much an item that is to be sent is: bytes, or a region."""
    size: int = len(item) if item.__class__ in BYTES else item.size_bytes
    return size
