"""Work in steps: a generator that yields wherever others may have their turn, and returns its result at the end.

Between two yields a step takes a millisecond at most, and state is consistent at each of them. Who runs the steps
decides whether others run in between: `at_once` here, a slice of time after the other in the broker's `slices.py`.
`yield WAITING` says that there is nothing to do before others have had their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

COUNTED_ITEMS = 1000
RELEASED_ITEMS = 50  # each of which may hold arrays of its own that are not long
CHUNK_ITEMS = 100
FEW_ITEMS = 200  # a tenth of what a slice of 2 ms has room for, and more

WAITING = True

Steps = Generator[Any, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """Run all steps without a pause and return their result; what they raise is raised.

    Raises RuntimeError for steps that wait for others.
    """
    while True:
        try:
            if next(steps) is WAITING:
                raise RuntimeError("nobody else can have a turn")
        except StopIteration as end:
            result: Result = end.value
            return result


def are_few(portions: Iterable[Sequence[Any]]) -> bool:
    """Return whether the items of these portions, and the portions, are so few that no steps are needed for them."""
    count = 0
    for portion in portions:
        count += 1 + len(portion)
        if count > FEW_ITEMS:
            return False
    return True


def each(make: Callable[[Item], Result], items: Iterable[Item]) -> Steps[list[Result]]:
    """Return what `make` gives for each of the items, a step an item."""
    made: list[Result] = []
    for item in items:
        made.append(make(item))
        yield
    return made


def each_once(make: Callable[[Item], Result], items: Iterable[Item]) -> Steps[list[Result]]:
    """Make a result for each item, as `each` does; an item that stands several times gets the same object each time."""
    wanted = list(items)
    made: dict[Item, Result] = {}
    for item in wanted:
        if item not in made:
            made[item] = make(item)
        yield
    return [made[item] for item in wanted]


def counted(items: Sequence[Item]) -> Steps[Counter[Item]]:
    """Return how often each item is there."""
    counts: Counter[Item] = Counter()
    for portion in chunks(items, COUNTED_ITEMS):
        counts.update(portion)
        yield
    return counts


def released(arrays: Sequence[list[Any]]) -> Steps[None]:
    """Empty the arrays in steps: to free a million objects at once takes a tenth of a second.

    Those within others, which stand behind these, come first.
    """
    for items in reversed(arrays):
        while items:
            del items[-RELEASED_ITEMS:]
            yield


def each_in_steps(make: Callable[[Item], Steps[Result]], items: Iterable[Item]) -> Steps[list[Result]]:
    """Make a result for each item, as `each` does, where one takes steps of its own."""
    made: list[Result] = []
    for item in items:
        made.append((yield from make(item)))
        yield
    return made


def chunks(items: Sequence[Item], size: int = CHUNK_ITEMS) -> Iterator[Sequence[Item]]:
    """The items in portions that are handled in one step, with nobody else in between."""
    return (items[start : start + size] for start in range(0, len(items), size))


def taken(items: list[Item], size: int = CHUNK_ITEMS) -> Iterator[list[Item]]:
    """Take the items out of the list, from the first to the last, in portions that are handled in one step."""
    items.reverse()
    while items:
        portion = items[-size:]
        del items[-size:]
        portion.reverse()
        yield portion
