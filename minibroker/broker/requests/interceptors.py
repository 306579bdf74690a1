"""Interceptors: hooks on every request, for journals, faults, version emulation, tracing and metrics.

This file calls the hooks; `dispatch` decides whether there are any.

    request --> before --> handler --> answer --> encoded --> queued --> sent
                   |          ^           ^
                   +- answers in the handler's place, or waits before or after it
    a request ends once: `on_sent`, or `on_lost` if its client went away or it failed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from minibroker.broker.network.output_items import CLOSE, AnswerEndMark, ErrorAnswerItems, ObservedDueAnswer
from minibroker.broker.security.logins import Login, Verdict
from minibroker.protocol.declare import Message

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext
    from minibroker.protocol.messages.cluster import ApiVersionsResponse

log = logging.getLogger("minibroker.requests")

SIZE_BYTES = 4


class Interceptor(Protocol):
    """Hooks, which run in the loop's thread and must not block. By default each does nothing.

    `before_request` and `on_sent` are called in the order of the list, `alter_response` and `alter_frame` in the
    reverse order: the first interceptor sees the request as the client sent it, and the answer as the client gets it.
    An exception from `before_request`, `alter_response` or `alter_frame` closes the connection, as one from a handler
    does; one from `on_sent` or `on_lost` is logged.

    One that `only_watches` changes nothing, waits for nothing, and does not look at the decoded request. If all do,
    requests that resemble earlier ones need not be decoded, and `alter_response` is called only if there is an error.
    """

    only_watches: ClassVar[bool] = False

    def before_request(self, call: Call) -> Message | Coroutine[Any, Any, Message | None] | None:
        """Return an answer to send instead of running the decoded request, or None to let it run.

        After an answer, neither the handler nor the `before_request` of those behind is called. It may be a coroutine,
        which holds the request while it waits, and may itself await `call.run_hooks_and_handler()`.
        """
        return None

    def alter_response(self, call: Call, response: Message) -> Message:
        """Return `response`, or another message of the same API to send instead.

        Not called for a request that has no answer (Produce with acks=0).
        """
        return response

    def alter_unsupported_version_response(self, response: ApiVersionsResponse) -> ApiVersionsResponse:
        """Return `response`, or another answer to ApiVersions in a version that this broker does not know (KIP-511).

        Nothing else is called for such a request, as nobody can read it.
        """
        return response

    def alter_frame(self, call: Call, items: list[Any]) -> list[Any]:
        """Return `items`, or others to send instead: the answer's frame with its size field, as bytes and file regions.

        They are sent unchanged. A None among them closes the connection once everything before it is sent.
        """
        return items

    def on_sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """Called when the answer, of `sent_bytes` with its size field, was passed to the kernel or the socket's buffer.

        `duration_ms` counts from when the request was read. With 0 bytes, the request ran and has no answer.
        """
        return None

    def on_lost(self, call: Call) -> None:
        """Called when the client disconnected or the request failed before the answer was sent."""
        return None

    def judge_login(self, login: Login) -> Verdict | None:
        """Return a verdict on a login, or None to let it go on; called with the mechanism, and again with the user."""
        return None


class Call:
    """A request on its way through the hooks.

    `request` is the decoded message, and `frame` holds its bytes, without the size field. The records of both are valid
    until a hook waits; then they are copied. `received_bytes` counts the size field too; `started_ms` is the monotonic
    clock's time when it was read.
    """

    __slots__ = (
        "_ended",
        "_handle",
        "_hooks_left",
        "_interceptors",
        "_response",
        "api_key",
        "context",
        "correlation_id",
        "frame",
        "received_bytes",
        "request",
        "started_ms",
    )

    def __init__(
        self,
        context: RequestContext,
        request: Any,
        frame: memoryview,
        handle: Callable[[Any, Any], Coroutine[Any, Any, Message | None]],
        interceptors: Sequence[Interceptor],
    ) -> None:
        self.context = context
        self.api_key = context.key
        self.correlation_id = context.correlation_id
        self.request = request
        self.frame = frame
        self.received_bytes = SIZE_BYTES + len(frame)
        self.started_ms = context.cluster.clock.monotonic_ms()
        self._handle: Callable[[Any, Any], Coroutine[Any, Any, Message | None]] | None = handle  # None once it runs
        self._interceptors = tuple(interceptors)
        self._hooks_left = iter(self._interceptors)
        self._response: Message | None = None
        self._ended = False

    async def run_hooks_and_handler(self) -> Message | None:
        """Call the remaining hooks, then the handler; return the response, or None for no answer."""
        for interceptor in self._hooks_left:  # one that awaits this runs those behind it
            response = interceptor.before_request(self)
            if not (response is None or isinstance(response, Message)):
                response = await response
            if response is not None:
                return response
        handle, self._handle = self._handle, None
        if handle is not None:  # else a hook has run it
            self._response = await handle(self.context, self.request)
        return self._response

    def observe_undecoded_request(self, outcome: Any) -> Any:
        """Show observers a request that ran undecoded; return its outcome, which also notifies them when it is sent."""
        for interceptor in self._interceptors:
            interceptor.before_request(self)
        return self.add_mark_to_answer(outcome) if isinstance(outcome, list) else ObservedDueAnswer(outcome, self)

    def add_mark_to_answer(self, items: list[Any]) -> list[Any]:
        """Return the answer's items after the hooks, and a mark that reports when they were sent."""
        if isinstance(items, ErrorAnswerItems):  # of a request that has run undecoded
            self.alter_response(self.context.route.decode_response(items[0]))
        items = self.alter_answer_frame(items)
        end = items.index(CLOSE) if CLOSE in items else len(items)
        items.insert(end, AnswerEndMark(self, sum(map(_get_item_size_bytes, items[:end]))))
        return items

    def copy_frame(self) -> None:
        """Copy the request's frame and decode it again, as a hook holds it longer than its bytes stay valid."""
        self.frame = memoryview(bytearray(self.frame))
        self.request = self.context.route.decode_request(self.frame)

    def alter_response(self, response: Message) -> Message:
        """Return the response to send in place of `response`."""
        for interceptor in reversed(self._interceptors):
            response = interceptor.alter_response(self, response)
        return response

    def alter_answer_frame(self, frame_parts: list[Any]) -> list[Any]:
        """Return the items to send in place of `frame_parts`, the frame of the answer."""
        for interceptor in reversed(self._interceptors):
            frame_parts = interceptor.alter_frame(self, frame_parts)
        return frame_parts

    def report_answer_sent(self, sent_bytes: int) -> None:
        """Notify all hooks that the answer was sent."""
        duration_ms = self.context.cluster.clock.monotonic_ms() - self.started_ms
        self._notify_interceptors_of_end(lambda interceptor: interceptor.on_sent(self, sent_bytes, duration_ms))

    def report_answer_lost(self) -> None:
        """Notify all hooks that there will be no answer."""
        self._notify_interceptors_of_end(lambda interceptor: interceptor.on_lost(self))

    def _notify_interceptors_of_end(self, notify: Callable[[Interceptor], None]) -> None:
        if self._ended:
            return
        self._ended = True
        for interceptor in self._interceptors:
            try:
                notify(interceptor)
            except Exception:
                # The answer is already sent: a bug in a hook must not close the client's connection.
                log.exception("%s failed at the end of a request", type(interceptor).__name__)


def _get_item_size_bytes(item: Any) -> int:
    """Return the size of an item: bytes, or a region."""
    size: int = len(item) if isinstance(item, bytes | bytearray) else item.size_bytes
    return size
