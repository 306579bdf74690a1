"""The application of a registry: bounds and checks requests, and answers as Confluent's.

A path in a context, `/contexts/.c/subjects/a`, is `/subjects/:.c:a`.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final, Protocol

from minibroker.addresses import find_reason_to_refuse_request
from minibroker.registry.api.http_messages import Answer, Request, convert_request, make_error_answer
from minibroker.registry.api.registry_api import RegistryApi
from minibroker.registry.formats.schema import REMEDY
from minibroker.registry.state.coroutine_slices import yield_to_loop_after_large_text
from minibroker.registry.state.qualified_subjects import WILDCARD, make_context_prefix
from minibroker.registry.state.registry_errors import RegistryError
from minibroker.web import messages

log = logging.getLogger("minibroker.registry")

BODY_BYTES_MAX: Final = 2 << 20  # more than a schema that fits into a record, with its JSON escapes
HEADERS: Final = {401: (("www-authenticate", "Basic"),)}  # of errors

WITH_SUBJECT = ("subjects", "deks")
WITH_SETTINGS = ("config", "mode")


class RegistryGuard(Protocol):
    """Decides who may send requests."""

    async def authenticate(self, request: Request) -> str | None:
        """Return the name of the user, or None if nobody need log in. Raises RegistryError(401)."""


class RequestObserver(Protocol):
    """Sees requests, and may answer them instead of the registry."""

    async def answer_instead(self, request: Request) -> Answer | None:
        """Return an answer, or None to let the registry answer."""

    def record_answer(self, request: Request, answer: Answer, duration_ms: float) -> None:
        """Note the answer to a request."""


class RegistryApplication:
    """The application."""

    def __init__(
        self,
        api: RegistryApi,
        guard: RegistryGuard | None = None,
        observer: RequestObserver | None = None,
        *,
        is_private: bool = False,
    ) -> None:
        """With `is_private`, those who need not log in must ask by a name of this machine."""
        self._is_private = is_private
        self._api = api
        self._guard = guard
        self._observer = observer

    async def answer(self, http_request: messages.Request) -> messages.Answer:
        """Return the answer to a request, which may be an error."""
        began, request = perf_counter(), convert_request(http_request)
        answer = await self._answer_request(request)
        if self._observer is not None:
            self._observer.record_answer(request, answer, (perf_counter() - began) * 1000)
        return _encode_answer(request, answer)

    async def _answer_request(self, request: Request) -> Answer:
        try:
            _check_request_origin(request, is_private=False)
            if self._guard is not None:
                request.user = await self._guard.authenticate(request)
            if self._is_private and request.user is None:
                _check_request_origin(request, is_private=True)
            _ = request.answer_type
            await request.read(BODY_BYTES_MAX)
            await yield_to_loop_after_large_text(len(request.body))
            resolve_context(request)
            replacement = None if self._observer is None else await self._observer.answer_instead(request)
            answer = await self._api.answer(request) if replacement is None else replacement
            await yield_to_loop_after_large_text(len(request.body))
            await yield_to_loop_after_large_text(len(answer.data))
            return answer
        except RegistryError as error:
            return Answer(make_error_answer(error).body, error.status, headers=HEADERS.get(error.status, ()))
        except messages.RequestRefused as error:
            return make_error_answer(RegistryError(error.status, error.message))
        except ImportError as error:  # of what only some schemas need
            return make_error_answer(RegistryError(50001, f"{error.name} is missing: the registry needs {REMEDY}"))
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return make_error_answer(RegistryError(50001, "Internal error; the log of the broker says more"))


def _check_request_origin(request: Request, *, is_private: bool) -> None:
    """Raise RegistryError for a page of another site, and with `is_private` for another name than this machine's."""
    refusal = find_reason_to_refuse_request(request.headers, is_private=is_private)
    if refusal is not None:
        raise RegistryError(403, f"{refusal}; a registry for others listens on another address")


def _encode_answer(request: Request, answer: Answer) -> messages.Answer:
    try:
        kind = request.answer_type
    except RegistryError:
        kind = "application/json"
    return messages.Answer(b"" if answer.status == 204 else answer.data, answer.status, kind, dict(answer.headers))


def resolve_context(request: Request) -> None:
    """Replace `/contexts/NAME` at the start of a path by a prefix of the subject it names. Raises RegistryError."""
    segments = request.segments
    if len(segments) < 3 or segments[0] != "contexts":
        return
    try:
        prefix = make_context_prefix(segments[1])
    except ValueError as error:
        raise RegistryError(400, str(error)) from None
    rest = segments[2:]
    if rest[0] in WITH_SETTINGS and len(rest) == 1 and prefix:
        rest.append(prefix)
    for index, part in enumerate(rest[:-1]):
        if part in WITH_SUBJECT or (index == 0 and part in WITH_SETTINGS):
            rest[index + 1] = _qualify_subject(prefix, rest[index + 1])
            break
    request.segments = rest
    if rest[:2] == ["schemas", "ids"]:
        request.query["subject"] = [_qualify_subject(prefix, request.get_query_text("subject"))]
    elif rest in (["schemas"], ["subjects"]):
        request.query["subjectPrefix"] = [_qualify_subject(prefix, request.get_query_text("subjectPrefix"))]


def _qualify_subject(prefix: str, subject: str) -> str:
    """Return a subject within a context, given as its prefix, unless it names a context itself."""
    return subject if subject.startswith((":.", WILDCARD)) else prefix + subject
