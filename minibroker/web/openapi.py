"""The description of routes for people, and for generators of clients: OpenAPI 3.1."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from minibroker.web.messages import JSON
from minibroker.web.routes import QUERIED, Route
from minibroker.web.signatures import Parameter

REF: Final = "#/components/schemas/{name}"
TOKEN: Final = {"type": "http", "scheme": "bearer", "description": "What `--control-token` says."}
OF_PYTHON: Final = re.compile(r"\s*\bRaises [^.]*(?:\.|$)|; see `\w+`")


class ErrorAnswer(msgspec.Struct):
    """An error: `error` is a name for programs, `message` a line for people."""

    error: str
    message: str


def make_openapi_document(
    routes: Iterable[Route],
    errors: Mapping[int, str],
    schemas: Mapping[str, Any],
    *,
    needs_token: bool,
    **openapi_info: str,
) -> dict[str, Any]:
    """Return the OpenAPI document. `errors` are those of every route, and `schemas` those that no type has."""
    found = [each for each in routes if each.tag]
    kinds = dict.fromkeys(kind for route in found for kind in _iterate_described_types(route))
    parts, named = msgspec.json.schema_components(list(kinds), schema_hook=_get_declared_schema, ref_template=REF)
    of_kind = dict(zip(kinds, map(_simplify_schema, parts), strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in found:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, of_kind, errors)
    components = {name: _simplify_schema(each) for name, each in named.items()} | dict(schemas)
    return {
        "openapi": "3.1.0",
        "info": openapi_info,
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items())), "securitySchemes": {"token": TOKEN}},
        "security": [{"token": []}] if needs_token else [{}, {"token": []}],
    }


def _get_declared_schema(kind: Any) -> Any:
    """Return the schema that one of our types has as an attribute."""
    return kind.schema


def _iterate_described_types(route: Route) -> Iterable[Any]:
    """Yield the types of errors, result, parameters and body of a route, which need schemas in the document."""
    yield ErrorAnswer
    if route.return_type is not None:
        yield route.return_type
    yield from (each.kind for each in route.path_parameters)
    if route.method in QUERIED:
        yield from (each.kind for each in route.query_or_body_parameters)
    elif route.query_or_body_type is not None:
        yield route.query_or_body_type


def _describe_operation(route: Route, schemas_by_type: Mapping[Any, Any], errors: Mapping[int, str]) -> dict[str, Any]:
    """Return the OpenAPI operation of a route."""
    queried = route.query_or_body_parameters if route.method in QUERIED else []
    description: dict[str, Any] = {
        "tags": [route.tag],
        "summary": route.name.replace("_", " ").title(),
        "description": get_description(route),
        "operationId": route.name,
        "parameters": [
            *(_describe_parameter(each, "path", schemas_by_type) for each in route.path_parameters),
            *(_describe_parameter(each, "query", schemas_by_type) for each in queried),
        ],
        "responses": _describe_responses(route, schemas_by_type, errors),
    }
    if not description["parameters"]:
        del description["parameters"]
    if route.method not in QUERIED and route.query_or_body_type is not None:
        schema = _add_title_if_unnamed(
            schemas_by_type[route.query_or_body_type], route.query_or_body_parameters[0].name
        )
        description["requestBody"] = {"content": {JSON: {"schema": schema}}, "required": True}
        if not route.needs_body:
            description["requestBody"] = {"content": {JSON: {"schema": {"anyOf": [schema, {"type": "null"}]}}}}
    return description


def get_description(route: Route) -> str:
    """Return what a route does: the first paragraph of its function's docstring, without notes for Python."""
    text = inspect.cleandoc(inspect.unwrap(route.function).__doc__ or "").partition("\n\n")[0]
    return route.about or re.sub(r"\bNone\b", "null", OF_PYTHON.sub("", " ".join(text.split()))).strip()


def _describe_parameter(parameter: Parameter, source: str, schemas_by_type: Mapping[Any, Any]) -> dict[str, Any]:
    """Return an OpenAPI parameter in the `source`, "path" or "query"."""
    schema = dict(schemas_by_type[parameter.kind])
    is_required = source == "path" or parameter.is_required
    if not is_required and parameter.default not in (None, ""):
        schema["default"] = parameter.default
    return {"name": parameter.name, "in": source, "required": is_required, "schema": schema}


def _describe_responses(route: Route, schemas_by_type: Mapping[Any, Any], errors: Mapping[int, str]) -> dict[str, Any]:
    """Return the OpenAPI responses of a route by status."""
    good: dict[str, Any] = {"description": "Successful Response"}
    if route.return_type is not None:
        good["content"] = {
            JSON: {"schema": _add_title_if_unnamed(schemas_by_type[route.return_type], f"response {route.name}")}
        }
    bad = {
        str(status): {"description": meaning, "content": {JSON: {"schema": schemas_by_type[ErrorAnswer]}}}
        for status, meaning in sorted({**errors, **route.errors}.items())
    }
    return {str(route.success_status): good, **bad}


def _add_title_if_unnamed(schema: Any, name: str) -> Any:
    """Return a schema with a title, from which generators make the name of a class, if it has no name."""
    return schema if "$ref" in schema else schema | {"title": name.replace("_", " ").title()}


def _simplify_schema(schema: Any) -> Any:
    """Return a schema as generators of clients know it: without empty defaults, enumerations with their type."""
    if isinstance(schema, list):
        return [_simplify_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    simple = {name: _simplify_schema(each) for name, each in schema.items()}
    if simple.get("default", 0) in (None, [], {}):
        del simple["default"]
    if simple.get("required") == []:
        del simple["required"]
    if simple.get("type") == "array" and not simple.get("items"):  # generators know no schema that is false
        simple.pop("items", None)
        simple |= {} if "prefixItems" in simple else {"items": {}}
    if "enum" in simple and all(isinstance(each, str) for each in simple["enum"]):
        simple.setdefault("type", "string")
    for each in simple.get("anyOf", ()):
        if len(simple["anyOf"]) == 2 and {"type": "null"} in simple["anyOf"] and "description" in each:
            simple["description"] = each.pop("description")
    return simple
