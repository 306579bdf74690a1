"""The seam for journals, faults, version emulation, tracing and metrics: hooks on every request that is run.

What a hook does is in its own file; when it is called is decided here, and in `dispatch` whether there is any at all.

    request --> before --> handler --> answer --> encoded --> queued --> sent
                   |          ^           ^
                   +- answers in the handler's place, or parks and lets it go on later
    a request ends once: `sent`, or `lost` if its client went away or it failed
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from minibroker.broker.requests.parked import Parked
from minibroker.protocol.apis import ApiKey, api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext

log = logging.getLogger("minibroker.requests")

SIZE_BYTES = 4


class Interceptor(Protocol):
    """Hooks that are called in the loop's thread and must not block it. Each one does nothing unless it is overridden.

    `before` and `sent` are called in the order of the list, `answer` and `encoded` in the reverse order: the first
    interceptor sees the request as the client sent it, and the answer as the client gets it. An exception from
    `before`, `answer` or `encoded` closes the connection, as one from a handler does; one from `sent` or `lost` is
    logged.
    """

    def before(self, call: Call) -> Message | Parked | None:
        """The request has been read and is about to run.

        None lets it run. A message answers it, and neither the handler nor the `before` of those behind is called. A
        `Parked` makes it wait: complete it with a message, or with what `call.go_on` does.
        """
        return None

    def answer(self, call: Call, response: Message) -> Message:
        """`response` is about to be queued: it, or another message of the same API, is what the client gets.

        Not called for a request that has no answer (Produce with acks=0).
        """
        return response

    def encoded(self, call: Call, items: list[Any]) -> list[Any]:
        """`items` is the answer's frame, size field included: bytes, and regions of files. What is queued instead.

        They go to this client's socket as they are. A None among them closes it once what is before has left.
        """
        return items

    def sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """The answer, of `sent_bytes` with its size field, was handed to the kernel or to the socket's own buffer.

        `duration_ms` is counted from when the request was read. 0 bytes: the request has run and has no answer.
        """
        return None

    def lost(self, call: Call) -> None:
        """The client went away, or the request failed, before there was an answer or before it could leave."""
        return None


class Runner(Protocol):
    """What a call needs of the dispatcher."""

    interceptors: list[Interceptor]

    def begun(self, call: Call, steps: Steps[Any]) -> Any:
        """Run the first slice of a handler: return its outcome if that was all, else a `Parked`."""


class Call:
    """One request on its way through the hooks.

    `request` is the decoded message; its records are valid only until `before` returns, unless that parks the request.
    `frame` holds the request's bytes, without the size field, and is valid as long.
    `received_bytes` counts the size field too; `started_ms` is the monotonic clock's time when it was read.
    `may_run_again`: whether its handler, if it waits when the state is replaced, may run once more. A Produce may not:
    it was written, and its records may be other bytes by now. A hook that keeps an answer back takes it away, too.
    """

    __slots__ = (
        "_dispatcher",
        "_ended",
        "_handler",
        "_interceptors",
        "_next",
        "api_key",
        "context",
        "correlation_id",
        "frame",
        "may_run_again",
        "received_bytes",
        "request",
        "started_ms",
    )

    def __init__(
        self,
        context: RequestContext,
        api_key: ApiKey,
        correlation_id: int,
        request: Message,
        frame: memoryview,
        handler: Callable[[RequestContext, Any], Any],
        dispatcher: Runner,
    ) -> None:
        self.context = context
        self.api_key = api_key
        self.correlation_id = correlation_id
        self.request = request
        self.frame = frame
        self.received_bytes = SIZE_BYTES + len(frame)
        self.started_ms = context.cluster.clock.monotonic_ms()
        self.may_run_again = api_key != ApiKey.PRODUCE
        self._handler = handler
        self._dispatcher = dispatcher
        self._interceptors = tuple(dispatcher.interceptors)
        self._next = 0
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Whether a `before` has stopped the request short of its handler."""
        return 0 < self._next <= len(self._interceptors)

    def run(self) -> Any:
        """Call the hooks that are left, then the handler: a message, a `Parked`, steps, or None for no answer."""
        while self._next < len(self._interceptors):
            self._next += 1
            outcome = self._interceptors[self._next - 1].before(self)
            if outcome is not None:
                return outcome
        self._next += 1
        return self._handler(self.context, self.request)

    def go_on(self, parked: Parked) -> None:
        """Let a request that a `before` parked run after all, and complete `parked` with what comes of it."""
        if parked.done:
            return  # the client went away
        try:
            outcome = self.run()
            if isinstance(outcome, GeneratorType):
                outcome = self._dispatcher.begun(self, outcome)
        except Exception:
            self.fail()
            return
        if isinstance(outcome, Parked):
            parked.follow(outcome)
        else:
            parked.complete(outcome)

    def left_as_it_is(self, parked: Parked) -> Parked | None:
        """`parked` if the handler is still to run; else the client is cut off, as from a broker that crashed."""
        if self.is_held:
            return parked
        parked.cancel()
        self.context.connection.fail()
        return None

    def fail(self) -> None:
        """Called for an exception outside of the dispatcher: there will be no answer, and the connection is closed."""
        connection = self.context.connection
        fields = {**connection.log_fields, "api": api_name(self.api_key), "client": self.context.client_id}
        who = connection.software or "unnamed client"
        log.exception("closing %s (%s): a request failed", connection.peer, who, extra=fields)
        self.lost()
        connection.fail()

    def answered(self, response: Message) -> Message:
        """The response that the client gets in place of `response`."""
        for interceptor in reversed(self._interceptors):
            response = interceptor.answer(self, response)
        return response

    def encoded(self, items: list[Any]) -> list[Any]:
        """What is queued in place of `items`, the frame of the answer."""
        for interceptor in reversed(self._interceptors):
            items = interceptor.encoded(self, items)
        return items

    def sent(self, sent_bytes: int) -> None:
        """Tell everybody that the answer has left."""
        duration_ms = self.context.cluster.clock.monotonic_ms() - self.started_ms
        self._end(lambda interceptor: interceptor.sent(self, sent_bytes, duration_ms))

    def lost(self) -> None:
        """Tell everybody that there will be no answer."""
        self._end(lambda interceptor: interceptor.lost(self))

    def _end(self, tell: Callable[[Interceptor], None]) -> None:
        if self._ended:
            return
        self._ended = True
        for interceptor in self._interceptors:
            try:
                tell(interceptor)
            except Exception:
                # The answer is on its way: a mistake in a hook must not cost the client its connection.
                log.exception("%s failed at the end of a request", type(interceptor).__name__)
