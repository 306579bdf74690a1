"""Work in steps: a generator that yields where other work may run, and returns its result at the end.

A step takes a millisecond at most, and state is consistent at each yield. `run_all_steps` runs all without a pause; the
broker runs them in slices of time (`run_in_slices`). `yield WAITING` says that there is nothing to do until other work
has run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

COUNTED_ITEMS = 1000
COUNTS = 16
RELEASED_ITEMS = 50  # each may contain arrays that are not long
CHUNK_ITEMS = 100
FEW_ITEMS: Final = 200  # they take less than a slice of 2 ms

WAITING: Final = True

Steps = Generator[Any, None, Result]


def run_all_steps(steps: Steps[Result]) -> Result:
    """Run all steps without a pause and return their result. Raises what they raise.

    Raises RuntimeError for steps that wait for other work.
    """
    while True:
        try:
            if next(steps) is WAITING:
                raise RuntimeError("steps that wait for other work cannot run at once")
        except StopIteration as end:
            result: Result = end.value
            return result


def fits_in_one_step(portions: Iterable[Sequence[Any]]) -> bool:
    """Return whether the portions and their items are so few that they need no steps."""
    count = 0
    for portion in portions:
        count += 1 + len(portion)
        if count > FEW_ITEMS:
            return False
    return True


def apply_to_items_in_steps(make_result: Callable[[Item], Result], items: Iterable[Item]) -> Steps[list[Result]]:
    """Return `make_result(item)` for each item, one in each step."""
    made: list[Result] = []
    for item in items:
        made.append(make_result(item))
        yield
    return made


def apply_to_distinct_items_in_steps(
    make_result: Callable[[Item], Result], items: Iterable[Item]
) -> Steps[list[Result]]:
    """Do as `apply_to_items_in_steps`, but only once for equal items, which share the result."""
    wanted = list(items)
    made: dict[Item, Result] = {}
    for item in wanted:
        if item not in made:
            made[item] = make_result(item)
        yield
    return [made[item] for item in wanted]


class KeyCounts(Mapping[Key, int]):
    """How often each key occurs, in the order in which they occur first.

    They lie in several dictionaries: one that grows looks at each of its keys, which takes 31 ms at the 174,763rd.
    """

    __slots__ = ("_order", "_parts")

    def __init__(self) -> None:
        self._order: list[Key] = []
        self._parts: defaultdict[int, dict[Key, int]] = defaultdict(dict)  # most requests need one or two

    def count_keys(self, keys: Iterable[Key]) -> None:
        """Count each of the keys once more."""
        for key in keys:
            part = self._parts[hash(key) % COUNTS]
            if key not in part:
                part[key] = 0
                self._order.append(key)
            part[key] += 1

    def __iter__(self) -> Iterator[Key]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, key: Key) -> int:
        part = self._parts.get(hash(key) % COUNTS)
        return 0 if part is None else part.get(key, 0)

    def release_keys_in_steps(self) -> Steps[None]:
        """Forget all keys in steps, as `clear_arrays_in_steps` does."""
        while self._parts:
            self._parts.popitem()
            yield
        yield from clear_arrays_in_steps([self._order])


def count_items_in_steps(items: Iterable[Key]) -> Steps[KeyCounts[Key]]:
    """Count the items, in steps."""
    counts: KeyCounts[Key] = KeyCounts()
    iterator = iter(items)
    while portion := list(islice(iterator, COUNTED_ITEMS)):
        counts.count_keys(portion)
        yield
    return counts


def clear_arrays_in_steps(arrays: Sequence[list[Any]]) -> Steps[None]:
    """Empty the arrays in steps, as freeing a million objects at once takes a tenth of a second.

    Inner arrays, which follow the outer ones, are emptied first.
    """
    for items in reversed(arrays):
        while items:
            del items[-RELEASED_ITEMS:]
            yield


def run_steps_of_each_item(
    make_result_in_steps: Callable[[Item], Steps[Result]], items: Iterable[Item]
) -> Steps[list[Result]]:
    """Make a result for each item as `apply_to_items_in_steps`, if `make_result_in_steps` itself works in steps."""
    made: list[Result] = []
    for item in items:
        made.append((yield from make_result_in_steps(item)))
        yield
    return made


def split_into_portions(items: Sequence[Item], size: int = CHUNK_ITEMS) -> Iterator[Sequence[Item]]:
    """Yield the items in portions for one step each."""
    return (items[start : start + size] for start in range(0, len(items), size))


def remove_items_in_portions(items: list[Item], size: int = CHUNK_ITEMS) -> Iterator[list[Item]]:
    """Remove the items from the list, from the first to the last, and yield them in portions for one step each."""
    items.reverse()
    while items:
        portion = items[-size:]
        del items[-size:]
        portion.reverse()
        yield portion
