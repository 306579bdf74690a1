"""Which method answers which path, and what paths and queries have in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from minibroker.registry.api.http_messages import Request
from minibroker.registry.state.qualified_subjects import is_valid_subject, normalize_subject
from minibroker.registry.state.registry_errors import Errors, RegistryError

INT_MAX: Final = (1 << 31) - 1
DIGITS_MAX: Final = 100  # of a number in a path, with zeros before it; `int` takes no more than 4,300

Handler = Callable[[Any, Request], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """A method and a path, whose parts in braces are variables."""

    method: str
    parts: tuple[str, ...]
    handler: Handler

    def matches(self, segments: list[str]) -> bool:
        """Return whether a path with as many segments is of this form."""
        return all(part == segment or part[0] == "{" for part, segment in zip(self.parts, segments, strict=True))


ROUTES: defaultdict[int, list[Route]] = defaultdict(list)  # by the number of their parts


def add_route(method: str, *paths: str) -> Callable[[Handler], Handler]:
    """Return a decorator that makes a method the handler of these paths, such as `/subjects/{subject}`."""

    def register_handler(handler: Handler) -> Handler:
        for path in paths:
            parts = tuple(path.split("/")[1:]) if path != "/" else ()
            ROUTES[len(parts)].append(Route(method, parts, handler))
        return handler

    return register_handler


def make_not_found_error() -> RegistryError:
    return RegistryError(404, "HTTP 404 Not Found")


def parse_path_number(text: str) -> int:
    """Return a number in a path. Raises RegistryError."""
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX or int(text) > INT_MAX:
        raise make_not_found_error()
    return int(text)


def parse_version_number(text: str) -> int:
    """Return a version, -1 for "latest". Raises RegistryError."""
    bare = text.strip()
    if bare.lower() == "latest" or bare == "-1":
        return -1
    if not bare.isascii() or not bare.isdecimal() or len(bare) > DIGITS_MAX or not 1 <= int(bare) <= INT_MAX:
        raise Errors.INVALID_VERSION.make_error(version=text)
    return int(bare)


def get_subject_or_context(request: Request) -> str | None:
    """Return whose config or mode a request is about: a subject, a context, or (None) all."""
    named = request.variables.get("subject")
    if named is None:
        return None
    if not is_valid_subject(named, is_config_subject=True):
        raise Errors.INVALID_SUBJECT.make_error(subject=named)
    return normalize_subject(named) or None


def parse_limit(request: Request, maximum: int) -> int:
    """Return the query's `limit`, or `maximum` if it is missing, not positive or larger."""
    limit = request.get_query_number("limit", -1)
    return limit if 0 < limit <= maximum else maximum


def select_page(request: Request, items: Any, maximum: int) -> list[Any]:
    """Return the items that the query's `offset` and `limit` choose, at most `maximum`."""
    first = max(request.get_query_number("offset", 0), 0)
    return list(islice(items, first, first + parse_limit(request, maximum)))
