"""An application: it finds the route of a request, and answers. It needs no server, and no sockets."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from minibroker.web.guard import RequestGuard
from minibroker.web.messages import Answer, Request, RequestRefused, make_json_answer, make_redirection
from minibroker.web.routes import Route

log = logging.getLogger("minibroker.web")

DescribeMistake = Callable[[Exception], "tuple[int, str, str] | None"]


class Application:
    """What answers requests. Only those that the guard lets in are answered, unless a route is for everybody."""

    def __init__(self, routes: Iterable[Route], guard: RequestGuard, mistake: DescribeMistake = lambda _: None) -> None:
        """`mistake` returns status, name and message for an error that is the client's, None for any other."""
        self.routes: list[Route] = []
        self._by_length: defaultdict[int, list[Route]] = defaultdict(list)
        self._guard, self._mistake = guard, mistake
        self.add_routes(routes)

    def add_routes(self, routes: Iterable[Route]) -> None:
        """Add routes. Of those that match a request the first answers."""
        for route in routes:
            self.routes.append(route)
            self._by_length[len(route.parts)].append(route)

    async def answer(self, request: Request) -> Answer:
        """Return the answer to a request, which may be an error."""
        try:
            route = self._find_route(request)
            if route is None:
                return make_redirection(toggle_last_slash_of_path(request))
            if route.is_guarded:
                self._guard(request)
            return await route(request)
        except RequestRefused as error:
            return make_error_answer(error.status, error.name, error.message, error.headers)
        except Exception as error:
            mistake = self._mistake(error)
            if mistake is not None:
                return make_error_answer(*mistake)
            log.exception("%s %r failed", request.method, request.path)
            return make_error_answer(
                500, "INTERNAL_SERVER_ERROR", "an internal error; the log of the process says more"
            )

    def _find_route(self, request: Request) -> Route | None:
        """Return the route of a request, None if its last slash is missing or superfluous. Raises RequestRefused."""
        routes = self._find_routes_of_path(request.segments)
        if not routes:
            if self._find_routes_of_path(_toggle_last_slash(request.segments)):
                return None
            raise RequestRefused(404, "Not Found")
        method = "GET" if request.method == "HEAD" else request.method
        for each in routes:
            if each.method == method:
                request.variables = _get_variables(each, request.segments)
                return each
        allowed = dict.fromkeys(each.method for each in routes) | ({"HEAD": None} if routes[0].method == "GET" else {})
        raise RequestRefused(405, "Method Not Allowed", {"allow": ", ".join(allowed)})

    def _find_routes_of_path(self, segments: list[str]) -> list[Route]:
        """Return the routes whose paths match: the first, and those of other methods with the same path."""
        matching = [each for each in self._by_length[len(segments)] if _matches_path(each, segments)]
        return [each for each in matching if each.path == matching[0].path]


def make_error_answer(status: int, name: str, message: str, headers: Any = None) -> Answer:
    """Return the answer for an error: its name is for programs, its message for people."""
    return make_json_answer({"error": name, "message": message}, status, headers)


def _matches_path(route: Route, segments: list[str]) -> bool:
    return all(part == each or (part[:1] == "{" and each) for part, each in zip(route.parts, segments, strict=True))


def _get_variables(route: Route, segments: list[str]) -> dict[str, str]:
    """Return the values of a path's variables: the segments in the places of `{name}`."""
    return {part[1:-1]: each for part, each in zip(route.parts, segments, strict=True) if part[:1] == "{"}


def _toggle_last_slash(segments: list[str]) -> list[str]:
    """Return the segments with an empty last one, or without it if there is one."""
    return segments[:-1] if segments[-1:] == [""] else [*segments, ""]


def toggle_last_slash_of_path(request: Request) -> str:
    """Return the path of a request with a slash if it has none, and without if it has one."""
    path = "/" + "/".join(quote(each, safe="") for each in _toggle_last_slash(request.segments))
    return f"{path}?{request.query_string}" if request.query_string else path
