"""Paths in a context: `/contexts/.c/subjects/a` is `/subjects/:.c:a`, as in Confluent's registry."""

from __future__ import annotations

from minibroker.registry.api.http_messages import Request
from minibroker.registry.state.qualified_subjects import WILDCARD, context_prefix
from minibroker.registry.state.registry_errors import RegistryError

WITH_SUBJECT = ("subjects", "deks")
WITH_SETTINGS = ("config", "mode")


def resolve_context(request: Request) -> None:
    """Move the context of a path into its subject, or into its query. Raises RegistryError."""
    segments = request.segments
    if len(segments) < 3 or segments[0] != "contexts":
        return
    try:
        prefix = context_prefix(segments[1])
    except ValueError as error:
        raise RegistryError(400, str(error)) from None
    rest = segments[2:]
    if rest[0] in WITH_SETTINGS and len(rest) == 1 and prefix:
        rest.append(prefix)
    for index, part in enumerate(rest[:-1]):
        if part in WITH_SUBJECT or (index == 0 and part in WITH_SETTINGS):
            rest[index + 1] = _within(prefix, rest[index + 1])
            break
    request.segments = rest
    if rest[:2] == ["schemas", "ids"]:
        request.query["subject"] = [_within(prefix, request.text("subject"))]
    elif rest in (["schemas"], ["subjects"]):
        request.query["subjectPrefix"] = [_within(prefix, request.text("subjectPrefix"))]


def _within(prefix: str, subject: str) -> str:
    return subject if subject.startswith((":.", WILDCARD)) else prefix + subject
