"""Many cases in one test, where none of them needs a name, fixtures and a report of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHOWN = 5  # cases whose errors are shown in full
NAMED = 50  # cases that are named at the most: a broken base breaks thousands


def for_each(
    names: str | tuple[str, ...], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test's function with each case in turn, and fail with the names of those that fail.

    What the arguments mean is what they mean in `pytest.mark.parametrize`; but the cases share their fixtures.
    """
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [values_of(case, len(listed)) for case in cases]
    assert rows

    def wrap(check: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(check)
        def check_each(*given: Any, **fixtures: Any) -> None:
            failed, errors = [], []
            for row in rows:
                try:
                    check(*given, **fixtures, **dict(zip(listed, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(", ".join(f"{name}={value!r:.120}" for name, value in zip(listed, row, strict=True)))
                    error.add_note(failed[-1])
                    errors.append(error)
            if errors:
                summary = "\n".join([f"{len(errors)} of {len(rows)} cases fail", *failed[:NAMED]])
                raise BaseExceptionGroup(summary, errors[:SHOWN])

        left = [each for name, each in inspect.signature(check).parameters.items() if name not in listed]
        check_each.__signature__ = inspect.Signature(left)  # type: ignore[attr-defined]
        return check_each

    return wrap


def values_of(case: Any, count: int) -> tuple[Any, ...]:
    """Return the values of a case: one, a tuple of several, or a `pytest.param`."""
    if hasattr(case, "marks"):
        assert not case.marks, "marks need a test of their own"
        return tuple(case.values)
    return (case,) if count == 1 else tuple(case)
