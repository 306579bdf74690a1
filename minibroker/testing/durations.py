"""Spans of time as tests give them: a number is one of seconds, as everywhere in Python."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from minibroker.quantities import MAXIMUM_MS, Duration

SPANS: Final = ("Duration", "Duration | None")  # annotations

Arguments = tuple[Any, ...]
Words = dict[str, Any]


def add_unit_to_duration(duration: Duration) -> str | timedelta:
    """Return a duration with its unit: a number is one of seconds. Raises ValueError for what is no duration."""
    if isinstance(duration, str | timedelta):
        return duration
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise ValueError(f'{duration!r} is no duration: give seconds, a text such as "7 days", or a timedelta')
    if not 0 <= duration * 1000 <= MAXIMUM_MS:
        raise ValueError(f"{duration!r} is no span of time that could pass")
    return timedelta(seconds=duration)


def make_duration_converter(verb: Callable[..., Any]) -> Callable[[Arguments, Words], tuple[Arguments, Words]]:
    """Return a function that turns bare numbers among a method's durations into seconds with a unit.

    Durations are annotated as such, also in the TypedDict of further keyword arguments. The arguments begin after the
    method's owner.
    """
    names = [name for name, hint in _get_annotations_of_verb(verb).items() if hint in SPANS]
    positional = verb.__code__.co_varnames[1 : verb.__code__.co_argcount]
    places = [positional.index(name) for name in names if name in positional]

    def convert_durations(arguments: Arguments, keywords: Words) -> tuple[Arguments, Words]:
        spans = {name: add_unit_to_duration(keywords[name]) for name in names if keywords.get(name) is not None}
        placed = [
            add_unit_to_duration(each) if at in places and each is not None else each
            for at, each in enumerate(arguments)
        ]
        return tuple(placed), keywords | spans

    return convert_durations if names else _return_arguments_unchanged


def _return_arguments_unchanged(arguments: Arguments, keywords: Words) -> tuple[Arguments, Words]:
    """Return the arguments of a method without durations."""
    return arguments, keywords


def _get_annotations_of_verb(verb: Callable[..., Any]) -> dict[str, str]:
    """Return the annotations of a method's arguments as they are written."""
    hints: dict[str, str] = dict(verb.__annotations__)
    for hint in list(hints.values()):
        if hint.startswith("Unpack["):
            further = verb.__globals__[hint[len("Unpack[") : -1]].__annotations__
            hints |= {name: each.__forward_arg__ for name, each in further.items()}
    return hints
