"""A sample of a test's parameters for a contributor's run; the others are thorough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(parameters: Iterable[Any], *, every: int) -> list[Any]:
    """Return values or `pytest.param`s; all but the last and every so many are marked thorough."""
    found = [each if hasattr(each, "marks") else pytest.param(each) for each in parameters]
    return [
        each
        if index % every == 0 or each is found[-1]
        else pytest.param(*each.values, id=each.id, marks=(*each.marks, pytest.mark.thorough))
        for index, each in enumerate(found)
    ]
