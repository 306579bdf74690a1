"""Work in steps: a generator that yields wherever others may have their turn, and returns its result at the end.

Between two yields a step takes a millisecond at most, and state is consistent at each of them. Who runs the steps
decides whether others run in between: `at_once` here, a slice of time after the other in the broker's `slices.py`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")

Steps = Generator[None, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """Run all steps without a pause and return their result; what they raise is raised."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
