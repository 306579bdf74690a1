"""The frames of answers: size, correlation id, message, and the file regions between its bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.network.output_items import CLOSE, Mark
from minibroker.protocol.declare import Message
from minibroker.protocol.headers import ResponseHeader
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.primitives import Output
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.requests.context import RequestContext
    from minibroker.broker.requests.interceptors import Call

SIZE: Final = Struct(">i")
SIZE_AND_CORRELATION_ID: Final = Struct(">ii")
MAX_ANSWER_BYTES = 100 << 20  # the limit of requests, too
MAX_LASTING_BYTES = 4 << 20  # of cached answers; the largest may exceed it


def make_answer_start(header_version: int) -> bytes:
    """Return the start of answers with this header: space for size and correlation id, then the constant part."""
    return bytes(SIZE.size) + ResponseHeader().encode(header_version)


def set_throttle_time(context: RequestContext, response: Message) -> Message:
    """Return the answer with the client's throttle time set."""
    if context.usage is not None:
        throttle_ms = context.charge_and_throttle(produced=isinstance(response, ProduceResponse))
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
    return response


def encode_answer(response: Message, version: int, start: bytes, correlation_id: int) -> list[Any]:
    """Return the frame of an answer that begins with `start`: bytes, and the file regions between them."""
    out = Output()
    out += start
    response.encode_into(out, version)
    if not out.regions:
        SIZE_AND_CORRELATION_ID.pack_into(out, 0, len(out) - SIZE.size, correlation_id)
        return [out]
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, out.size_bytes - SIZE.size, correlation_id)
    return out.list_bytes_and_regions()


def encode_answer_in_steps(
    response: Message, version: int, start: bytes, correlation_id: int
) -> Steps[tuple[list[Any], list[list[Any]]]]:
    """Build the frame of an answer in steps, long arrays item by item; return it and these. Raises AnswerTooLarge."""
    out = Output()
    out += start
    long_arrays = yield from response.encode_in_steps(out, version, MAX_ANSWER_BYTES)
    SIZE_AND_CORRELATION_ID.pack_into(out, 0, out.size_bytes - SIZE.size, correlation_id)
    return (out.list_bytes_and_regions() if out.regions else [out]), long_arrays


class LastingAnswers:
    """A cache of answers by request bytes, which are valid until something changes."""

    def __init__(self) -> None:
        self._generation: Any = None
        self._answers: dict[Hashable, bytes] = {}
        self._size_bytes = 0

    def find_answer(self, cluster: Cluster, request_key: Hashable, correlation_id: int) -> list[Any] | None:
        """Return the items of the cached answer, or None."""
        if self._generation != (cluster, cluster.answer_cache_generation):
            return None
        kept = self._answers.get(request_key)
        if kept is None:
            return None
        size_bytes = len(kept) + SIZE.size
        return [SIZE_AND_CORRELATION_ID.pack(size_bytes, correlation_id), kept]

    def make_cache_function(self, cluster: Cluster, request_key: Hashable) -> Callable[[list[Any]], None]:
        """Return a function that caches the items of an answer, unless something changes before they are computed."""
        begun = (cluster, cluster.answer_cache_generation)

        def cache_answer(items: list[Any]) -> None:
            now = (cluster, cluster.answer_cache_generation)
            if begun != now or len(items) != 1 or len(items[0]) > MAX_LASTING_BYTES:
                return
            if self._generation != now or self._size_bytes > MAX_LASTING_BYTES:
                self._generation, self._answers, self._size_bytes = now, {}, 0
            self._answers[request_key] = bytes(memoryview(items[0])[SIZE_AND_CORRELATION_ID.size :])
            self._size_bytes += len(items[0])

        return cache_answer


def add_sent_mark(call: Call, answer_parts: list[Any]) -> list[Any]:
    """Return the answer's items after the interceptors, and a mark that reports when they are sent."""
    answer_parts = call.alter_answer_frame(answer_parts)
    end = answer_parts.index(CLOSE) if CLOSE in answer_parts else len(answer_parts)
    answer_parts.insert(end, Mark(call, sum(map(_measure_item, answer_parts[:end]))))
    return answer_parts


def _measure_item(item: Any) -> int:
    """Return the size of an item: bytes, or a region."""
    size: int = len(item) if isinstance(item, bytes | bytearray) else item.size_bytes
    return size
