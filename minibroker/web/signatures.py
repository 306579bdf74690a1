"""What a function takes, by its signature: the parameters of a route, with the types in which a request has them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import NoneType
from typing import Annotated, Any, NamedTuple, Union, get_args

import msgspec
from msgspec import NODEFAULT, Meta

from minibroker.web.reading import TimeSpan


class Parameter(NamedTuple):
    """A parameter of a function. One `of_many` is an entry of a TypedDict, which is left out where it is null."""

    name: str
    kind: Any
    default: Any = NODEFAULT
    is_whole: bool = False  # takes the body
    of_many: bool = False

    @property
    def is_required(self) -> bool:
        """Whether a request must have it."""
        return self.default is NODEFAULT


def iterate_parameters(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield the parameters of a function. Keyword arguments of any name are the body of a request."""
    names = inspect.unwrap(function).__globals__
    for parameter in inspect.signature(function).parameters.values():
        kind = _evaluate_hint(parameter.annotation, names)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if str(parameter.annotation).startswith("Unpack["):
                yield from _iterate_entries_of_typed_dict(get_args(kind)[0])
            else:
                yield Parameter(parameter.name, dict[str, Any], is_whole=True)
        else:
            default = NODEFAULT if parameter.default is inspect.Parameter.empty else parameter.default
            yield Parameter(parameter.name, kind, default, is_struct(kind))


def _iterate_entries_of_typed_dict(typed_dict: Any) -> Iterator[Parameter]:
    """Yield the entries of a TypedDict."""
    names = vars(sys.modules[typed_dict.__module__])
    for name, hint in typed_dict.__annotations__.items():
        kind = _evaluate_hint(getattr(hint, "__forward_arg__", hint), names)
        yield Parameter(name, add_null_to_type(kind), None, of_many=True)


def get_return_type(function: Callable[..., Any]) -> Any:
    """Return the type of what a function returns, None for nothing."""
    found = inspect.unwrap(function)
    return _evaluate_hint(found.__annotations__.get("return"), found.__globals__)


def _evaluate_hint(hint: Any, names: Mapping[str, Any]) -> Any:
    """Return the type that an annotation, a text, stands for; durations are `TimeSpan`."""
    return eval(hint, {**names, "Duration": TimeSpan}) if isinstance(hint, str) else hint


def add_meta_to_type(kind: Any, meta: Meta) -> Any:
    """Return a type with limits or a description; they do not apply to null."""
    limited: Any = Annotated[remove_none_from_annotation(kind), meta]
    return add_null_to_type(limited) if NoneType in get_args(kind) else limited


def is_struct(kind: Any) -> bool:
    """Return whether a type is a msgspec struct, maybe with None."""
    return hasattr(remove_none_from_annotation(kind), "__struct_fields__")


def add_null_to_type(kind: Any) -> Any:
    """Return a type with null."""
    return Union[(kind, NoneType)]  # noqa: UP007 - made at run time


def remove_none_from_annotation(kind: Any) -> Any:
    """Return a type without null."""
    others = tuple(each for each in get_args(kind) if each is not NoneType)
    return Union[others] if NoneType in get_args(kind) else kind  # noqa: UP007 - made at run time


_STRUCTS: dict[str, Any] = {}


def make_struct(name: str, parameters: Collection[Parameter], *, strict: bool = True) -> Any:
    """Return a struct type with these parameters as fields, and if `strict` no others. Equal ones are made once."""
    fields = [
        (each.name, each.kind) if each.is_required else (each.name, each.kind, _convert_tuple_to_list(each.default))
        for each in parameters
    ]
    key = repr((name, fields, strict))
    made = _STRUCTS.get(key) or msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=strict)
    return _STRUCTS.setdefault(key, made)


def _convert_tuple_to_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
