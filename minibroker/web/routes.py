"""Routes: which function answers which method and path. What the function takes and returns is as its signature says.

Parameters that are named in the path come from there, those of GET and DELETE from the query, and those of POST from
the body, one object. A single parameter may be the body itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar, get_args

from msgspec import Meta

from minibroker.web.messages import Answer, InvalidRequest, Request, make_json_answer
from minibroker.web.reading import MISSING, read_json_as, read_struct_from_texts
from minibroker.web.signatures import (
    Parameter,
    add_meta_to_type,
    get_return_type,
    iterate_parameters,
    make_struct,
    remove_none_from_annotation,
)

Function = TypeVar("Function", bound=Callable[..., Any])

QUERIED: Final = ("GET", "DELETE")
MOST_BYTES: Final = 64 << 20  # of a body


@dataclass(eq=False)
class Route:
    """A method and a path, whose parts in braces are variables, and the function that answers."""

    method: str
    path: str
    function: Callable[..., Any]
    name: str  # of the operation
    tag: str = ""
    about: str = ""  # what it does, if the documentation of the function does not say so
    status: int = 0  # by default 200, or 204 if nothing is returned
    owner: Callable[..., Any] | None = None  # returns the first argument of the function, from variables of the path
    body: str = ""  # the name of the body's type
    is_wanted: bool = False  # the body, though it may be empty
    whole: str = ""  # the parameter that is the body itself
    answer: Any = None  # the type of the answer, or NAME.FIELD of an object that has what is returned
    errors: Mapping[int, str] = field(default_factory=dict)
    kinds: Mapping[str, Any] = field(default_factory=dict)  # limits, or other types, of parameters
    without: tuple[str, ...] = ()  # parameters that HTTP does not have
    is_guarded: bool = True
    is_raw: bool = False  # the function takes the request
    most_bytes: int = MOST_BYTES

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.split("/")[1:])

    @cached_property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function, those of `owner` in place of the first one, which `owner` returns."""
        found = list(iterate_parameters(self.function))
        if self.owner is not None:
            found = [*iterate_parameters(self.owner), *found[1:]]
        return [self._apply_declared_kind(each) for each in found if each.name not in self.without]

    def _apply_declared_kind(self, parameter: Parameter) -> Parameter:
        """Return the parameter with the type or the limits that the route declares for it."""
        name, kind = parameter.name, parameter.kind
        if name in self.variables:
            kind = remove_none_from_annotation(kind)
        wanted = self.kinds.get(name, kind)
        if isinstance(wanted, Meta):  # numbers in paths have no limits: what they name is there or is not
            wanted = kind if name in self.variables else add_meta_to_type(kind, wanted)
        return parameter._replace(kind=wanted, is_whole=parameter.is_whole or name == self.whole)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables of the path."""
        return tuple(part[1:-1] for part in self.parts if part[:1] == "{")

    @cached_property
    def path_parameters(self) -> list[Parameter]:
        """The parameters that come from the path."""
        return [each for each in self.parameters if each.name in self.variables]

    @cached_property
    def query_or_body_parameters(self) -> list[Parameter]:
        """The parameters that come from the query or the body."""
        return [each for each in self.parameters if each.name not in self.variables]

    @cached_property
    def path_type(self) -> Any:
        """The type of the path's variables."""
        return make_struct("Path", self.path_parameters)

    @cached_property
    def query_or_body_type(self) -> Any:
        """The type of the query or the body, None without either."""
        if self.method in QUERIED:
            return make_struct("Query", self.query_or_body_parameters)
        if not self.query_or_body_parameters:
            return None
        whole = self.query_or_body_parameters[0]
        return whole.kind if whole.is_whole else make_struct(self.body or self.name, self.query_or_body_parameters)

    @cached_property
    def needs_body(self) -> bool:
        """Return whether a request needs a body."""
        return self.is_wanted or any(each.is_required for each in self.query_or_body_parameters)

    @cached_property
    def return_type(self) -> Any:
        """The type that the function returns, None for nothing."""
        if self.status == 204:
            return None
        if self.answer is not None and not isinstance(self.answer, str):
            return self.answer
        kind = get_return_type(self.function)
        if self.answer is None:
            return Any if kind is Answer else kind
        name, _, field_name = self.answer.partition(".")
        return make_struct(name, [Parameter(field_name, kind)], strict=False)

    @cached_property
    def success_status(self) -> int:
        """The status of an answer that is no error."""
        return self.status or (204 if self.return_type is None else 200)

    async def __call__(self, request: Request) -> Answer:
        """Answer a request. Raises InvalidRequest, and what the function raises."""
        if self.is_raw:
            result = self.function(request)
        else:
            given = await self._read_arguments(request)
            owners = [] if self.owner is None else [self._make_owner_from_arguments(given)]
            result = self.function(*owners, **given)
        if inspect.isawaitable(result):
            result = await result
        return self._make_answer(result)

    def _make_owner_from_arguments(self, arguments: dict[str, Any]) -> Any:
        """Take the arguments of `owner` out, and return the object that it returns for them."""
        assert self.owner is not None
        return self.owner(**{each.name: arguments.pop(each.name) for each in iterate_parameters(self.owner)})

    async def _read_arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments of the function."""
        given = _get_values_by_field(
            read_struct_from_texts("path", {name: request.variables[name] for name in self.variables}, self.path_type)
        )
        if self.method in QUERIED:
            return given | self._collect_given_arguments(
                read_struct_from_texts("query", _take_last_values(request.query), self.query_or_body_type)
            )
        return given if self.query_or_body_type is None else given | await self._read_body(request)

    async def _read_body(self, request: Request) -> dict[str, Any]:
        """Return the arguments in a JSON body. Raises InvalidRequest."""
        data = await request.read(self.most_bytes)
        if not data or (data.strip() == b"null" and not self.needs_body):
            if self.needs_body:
                raise InvalidRequest(f"body: {MISSING}")
            return {}
        if not _is_json(request.headers.get("content-type", "")):
            raise InvalidRequest("body: must be JSON, which its Content-Type says: application/json")
        found, first = read_json_as(data, self.query_or_body_type), self.query_or_body_parameters[0]
        if not first.is_whole:
            return self._collect_given_arguments(found)
        return found if first.kind == dict[str, Any] and not self.whole else {first.name: found}

    def _collect_given_arguments(self, struct: Any) -> dict[str, Any]:
        """Return the arguments in a struct, without entries of a TypedDict that are not given."""
        absent = {
            each.name for each in self.query_or_body_parameters if each.of_many and getattr(struct, each.name) is None
        }
        return {name: value for name, value in _get_values_by_field(struct).items() if name not in absent}

    def _make_answer(self, result: Any) -> Answer:
        if isinstance(result, Answer):
            return result
        if self.success_status == 204:
            return Answer(status=204)
        return make_json_answer(self._convert_result(result), self.success_status)

    def _convert_result(self, result: Any) -> Any:
        """Return a result in the form of the answer's type."""
        if isinstance(self.answer, str):
            return {self.answer.partition(".")[2]: result}
        if hasattr(self.answer, "make_from"):
            return self.answer.make_from(result)
        (item,) = get_args(self.answer)[:1] or (None,)
        return [item.make_from(each) for each in result] if hasattr(item, "make_from") else result


class Routes(list[Route]):
    """Several routes. `defaults` are what those that are added have in common, such as a tag."""

    def __init__(self, prefix: str = "", **defaults: Any) -> None:
        super().__init__()
        self._prefix, self._defaults = prefix, defaults

    def add_prefix(self, prefix: str) -> Routes:
        """Return the routes, moved below a path."""
        for each in self:
            each.path = prefix + each.path
        return self

    def add_route(self, method: str, path: str, function: Callable[..., Any], name: str, **route_options: Any) -> None:
        """Let a function answer a method and a path; `route_options` is as in `Route`."""
        options = {**self._defaults, **route_options}
        options["kinds"] = {**self._defaults.get("kinds", {}), **route_options.get("kinds", {})}
        self.append(Route(method, self._prefix + path, function, name, **options))

    def get(self, path: str, **route_options: Any) -> Callable[[Function], Function]:
        """Let the decorated function answer GET, and HEAD."""
        return self._make_decorator("GET", path, route_options)

    def post(self, path: str, **route_options: Any) -> Callable[[Function], Function]:
        """Let the decorated function answer POST."""
        return self._make_decorator("POST", path, route_options)

    def delete(self, path: str, **route_options: Any) -> Callable[[Function], Function]:
        """Let the decorated function answer DELETE."""
        return self._make_decorator("DELETE", path, route_options)

    def _make_decorator(self, method: str, path: str, route_options: dict[str, Any]) -> Callable[[Function], Function]:
        """Return a decorator that adds a route to its function."""

        def register_route(function: Function) -> Function:
            self.add_route(method, path, function, function.__name__, **route_options)
            return function

        return register_route


def _get_values_by_field(struct: Any) -> dict[str, Any]:
    """Return the values of a msgspec struct by field."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _take_last_values(query: Mapping[str, list[str]]) -> dict[str, str]:
    """Return the last value of each parameter."""
    return {name: values[-1] for name, values in query.items()}


def _is_json(content_type: str) -> bool:
    """Return whether a Content-Type is one of JSON."""
    main = content_type.partition(";")[0].strip().lower()
    return main.startswith("application/") and (main.endswith("/json") or main.endswith("+json"))
