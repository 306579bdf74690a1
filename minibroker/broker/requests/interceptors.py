"""Interceptors: hooks on every request, for journals, faults, version emulation, tracing and metrics.

This file calls the hooks; `dispatch` decides whether there are any.

    request --> before --> handler --> answer --> encoded --> queued --> sent
                   |          ^           ^
                   +- answers in the handler's place, or parks it and runs it later
    a request ends once: `sent`, or `lost` if its client went away or it failed
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from minibroker.broker.network.parked import Parked
from minibroker.broker.security.logins import Login, Verdict
from minibroker.protocol.apis import ApiKey, api_name
from minibroker.protocol.declare import Message
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.requests.context import RequestContext
    from minibroker.protocol.messages.cluster import ApiVersionsResponse

log = logging.getLogger("minibroker.requests")

SIZE_BYTES = 4


class Interceptor(Protocol):
    """Hooks, which run in the loop's thread and must not block. By default each does nothing.

    `before` and `sent` are called in the order of the list, `answer` and `encoded` in the reverse order: the first
    interceptor sees the request as the client sent it, and the answer as the client gets it. An exception from
    `before`, `answer` or `encoded` closes the connection, as one from a handler does; one from `sent` or `lost` is
    logged.
    """

    def before(self, call: Call) -> Message | Parked | None:
        """Called before a decoded request runs.

        None lets it run. A message answers it, and neither the handler nor the `before` of those behind is called. A
        `Parked` makes it wait: complete it with a message, or with what `call.go_on` does.
        """
        return None

    def answer(self, call: Call, response: Message) -> Message:
        """Return `response`, or another message of the same API to send instead.

        Not called for a request that has no answer (Produce with acks=0).
        """
        return response

    def unsupported(self, response: ApiVersionsResponse) -> ApiVersionsResponse:
        """Return `response`, or another answer to ApiVersions in a version that this broker does not know (KIP-511).

        Nothing else is called for such a request, as nobody can read it.
        """
        return response

    def encoded(self, call: Call, items: list[Any]) -> list[Any]:
        """Return `items`, or others to send instead: the answer's frame with its size field, as bytes and file regions.

        They are sent unchanged. A None among them closes the connection once everything before it is sent.
        """
        return items

    def sent(self, call: Call, sent_bytes: int, duration_ms: float) -> None:
        """Called when the answer, of `sent_bytes` with its size field, was passed to the kernel or the socket's buffer.

        `duration_ms` counts from when the request was read. With 0 bytes, the request ran and has no answer.
        """
        return None

    def lost(self, call: Call) -> None:
        """Called when the client disconnected or the request failed before the answer was sent."""
        return None

    def authenticating(self, login: Login) -> Verdict | None:
        """Called when a client asks for a SASL mechanism, and again once it has proven who it is.

        None lets it go on.
        """
        return None


class Runner(Protocol):
    """The part of the dispatcher that a call uses."""

    interceptors: list[Interceptor]

    def begun(self, call: Call, steps: Steps[Any]) -> Any:
        """Run the first slice of a handler: return its outcome if that was all, else a `Parked`."""


class Call:
    """A request on its way through the hooks.

    `request` is the decoded message; its records are valid only until `before` returns, unless that parks the request.
    `frame` holds the request's bytes, without the size field, and is valid as long.
    `received_bytes` counts the size field too; `started_ms` is the monotonic clock's time when it was read.
    `may_run_again` says whether a waiting handler may run again when the state is replaced. A Produce may not, as it
    was written and its records may be overwritten. A hook that holds an answer back clears it, too.
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
        """Return whether a `before` holds the request."""
        return 0 < self._next <= len(self._interceptors)

    def run(self) -> Any:
        """Call the remaining hooks, then the handler; return a message, a `Parked`, steps, or None for no answer."""
        while self._next < len(self._interceptors):
            self._next += 1
            outcome = self._interceptors[self._next - 1].before(self)
            if outcome is not None:
                return outcome
        self._next += 1
        return self._handler(self.context, self.request)

    def go_on(self, parked: Parked) -> None:
        """Run a request that a `before` parked, and complete `parked` with its result."""
        if parked.done:
            return  # the client disconnected
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
        """Return `parked` if the handler has not run; else disconnect the client, as a crashed broker would."""
        if self.is_held:
            return parked
        parked.cancel()
        self.context.connection.fail()
        return None

    def fail(self) -> None:
        """Close the connection without an answer, after an exception outside of the dispatcher."""
        connection = self.context.connection
        fields = {**connection.log_fields, "api": api_name(self.api_key), "client": self.context.client_id}
        who = connection.software or "unnamed client"
        log.exception("closing %s (%s): a request failed", connection.peer, who, extra=fields)
        self.lost()
        connection.fail()

    def answered(self, response: Message) -> Message:
        """Return the response to send in place of `response`."""
        for interceptor in reversed(self._interceptors):
            response = interceptor.answer(self, response)
        return response

    def encoded(self, items: list[Any]) -> list[Any]:
        """Return the items to send in place of `items`, the frame of the answer."""
        for interceptor in reversed(self._interceptors):
            items = interceptor.encoded(self, items)
        return items

    def sent(self, sent_bytes: int) -> None:
        """Notify all hooks that the answer was sent."""
        duration_ms = self.context.cluster.clock.monotonic_ms() - self.started_ms
        self._end(lambda interceptor: interceptor.sent(self, sent_bytes, duration_ms))

    def lost(self) -> None:
        """Notify all hooks that there will be no answer."""
        self._end(lambda interceptor: interceptor.lost(self))

    def _end(self, tell: Callable[[Interceptor], None]) -> None:
        if self._ended:
            return
        self._ended = True
        for interceptor in self._interceptors:
            try:
                tell(interceptor)
            except Exception:
                # The answer is already sent: a bug in a hook must not close the client's connection.
                log.exception("%s failed at the end of a request", type(interceptor).__name__)
