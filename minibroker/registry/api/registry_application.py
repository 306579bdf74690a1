"""The ASGI application of a registry: bounds and checks requests, and sends answers.

Routing is not a framework's, since those decode a path before they split it, and a subject may contain a slash.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from minibroker.addresses import refusal_of
from minibroker.registry.api.context_paths import resolve_context
from minibroker.registry.api.http_messages import Answer, Request, error_answer, request_of
from minibroker.registry.api.registry_api import RegistryApi
from minibroker.registry.state.coroutine_slices import turn_for_others
from minibroker.registry.state.registry_errors import RegistryError

log = logging.getLogger("minibroker.registry")

BODY_BYTES_MAX: Final = 2 << 20  # more than a schema that fits into a record, with its JSON escapes
HEADERS: Final = {  # of errors; after 408 and 413 the rest of the body is not read
    401: (("www-authenticate", "Basic"),),
    408: (("connection", "close"),),
    413: (("connection", "close"),),
}
BODY_SECONDS: Final = 30.0  # until the whole body of a request is there

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard(Protocol):
    """Decides who may send requests."""

    async def user(self, request: Request) -> str | None:
        """Return the name of the user, or None if nobody need log in. Raises RegistryError(401)."""


class Observer(Protocol):
    """Sees requests, and may answer them instead of the registry."""

    async def before(self, request: Request) -> Answer | None:
        """Return an answer, or None to let the registry answer."""

    def after(self, request: Request, answer: Answer, duration_ms: float) -> None:
        """Note the answer to a request."""


class RegistryApplication:
    """The application."""

    def __init__(
        self,
        api: RegistryApi,
        guard: Guard | None = None,
        observer: Observer | None = None,
        body_seconds: float = BODY_SECONDS,
        *,
        is_private: bool = False,
    ) -> None:
        """With `is_private`, those who need not log in must ask by a name of this machine."""
        self._is_private = is_private
        self._api = api
        self._body_seconds = body_seconds
        self._guard = guard
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        began, request = perf_counter(), request_of(scope)
        answer = await self._answer_request(request, receive)
        if self._observer is not None:
            self._observer.after(request, answer, (perf_counter() - began) * 1000)
        await _send(request, answer, send)

    async def _answer_request(self, request: Request, receive: Receive) -> Answer:
        try:
            _check_page(request, is_private=False)
            if self._guard is not None:
                request.user = await self._guard.user(request)
            if self._is_private and request.user is None:
                _check_page(request, is_private=True)
            _ = request.answer_type
            request.body = await _body(receive, self._body_seconds)
            await turn_for_others(len(request.body))
            request.left = partial(_await_leaving, receive)
            resolve_context(request)
            found = None if self._observer is None else await self._observer.before(request)
            answer = await self._api.answer(request) if found is None else found
            await turn_for_others(len(request.body))
            await turn_for_others(len(answer.data))
            return answer
        except RegistryError as error:
            return Answer(error_answer(error).body, error.status, headers=HEADERS.get(error.status, ()))
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return error_answer(RegistryError(50001, "Internal error; the log of the broker says more"))


def _check_page(request: Request, *, is_private: bool) -> None:
    """Raise RegistryError for a page of another site, and with `is_private` for another name than this machine's."""
    refusal = refusal_of(request.headers, is_private=is_private)
    if refusal is not None:
        raise RegistryError(403, f"{refusal}; a registry for others listens on another address")


async def _body(receive: Receive, seconds: float) -> bytes:
    """Return the body of a request. Raises RegistryError if it is too large, or not whole in time."""
    try:
        async with asyncio.timeout(seconds):
            return await _whole_body(receive)
    except TimeoutError:
        raise RegistryError(408, f"The body of the request did not arrive in {seconds:g} s") from None


async def _whole_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RegistryError(400, "The client is gone")
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > BODY_BYTES_MAX:
            raise RegistryError(413, f"The request has more than {BODY_BYTES_MAX} bytes")
        if not message.get("more_body", False):
            return b"".join(parts)


async def _await_leaving(receive: Receive) -> None:
    """Return when the client is gone, after its whole body."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(request: Request, answer: Answer, send: Send) -> None:
    try:
        kind = request.answer_type
    except RegistryError:
        kind = "application/json"
    data = b"" if answer.status == 204 else answer.data
    headers = [("content-type", kind), ("content-length", str(len(data))), *answer.headers]
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else data})
