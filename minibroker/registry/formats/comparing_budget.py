"""What one comparison of two schemas may take: steps, and changes that its answer names. A schema may come from anyone.

A few KB can say that everything is in them twice, twenty times over. So changes of a part are kept once, where they
were found, and only counted where the part is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from minibroker.named_tuples import NamedTuple

STEPS: Final = 500_000  # about a second
CHANGES: Final = 1_000  # that an answer names
CHARACTERS: Final = 256 << 10  # of these
CHARACTERS_OF_A_STEP: Final = 16
MANY: Final = 1_000_000_000  # what is more is not counted


class ComparisonTooLarge(Exception):
    """A comparison would take too long, or nobody waits for it any more; the message says which."""


class ComparingBudget:
    """The steps of one comparison, which a thread takes; the loop may abandon it."""

    def __init__(self, steps: int = STEPS) -> None:
        self._most = self.left = steps
        self._abandoned = False

    @property
    def spent_steps(self) -> int:
        """How many steps of comparing were counted."""
        return self._most - self.left

    def stop_at_next_step(self) -> None:
        """Make the next call of `spend_steps` raise ComparisonTooLarge, in the thread that compares."""
        self._abandoned = True

    def spend_steps(self, steps: int = 1) -> None:
        """Count steps of comparing. Raises ComparisonTooLarge if there are too many, or nobody waits for the result."""
        self.left -= steps
        if self.left < 0:
            raise ComparisonTooLarge(
                f"The schemas are too large to be compared: that takes more than {self._most:,} steps"
            )
        if self._abandoned:
            raise ComparisonTooLarge("Nobody waits for the comparison any more")

    def spend_steps_on_text(self, text: str) -> str:
        """Count steps by the length of a text, and return the text. Raises ComparisonTooLarge."""
        self.spend_steps(len(text) // CHARACTERS_OF_A_STEP)
        return text


class CountedChanges:
    """What was found in two parts of schemas: changes, what was found in their own parts, and how many all that is."""

    __slots__ = ("count", "parts")

    def __init__(self, parts: Sequence[Any], is_counted: Callable[[Any], bool] = bool) -> None:
        """`is_counted` says which changes do."""
        self.parts = parts
        self.count = min(sum(_count_changes_in_part(part, is_counted) for part in parts), MANY)


class ChangesBelow(NamedTuple):
    """What was found one step below: a part with a name, or an index."""

    step: str
    parts: Sequence[Any]


def _count_changes_in_part(part: Any, is_counted: Callable[[Any], bool]) -> int:
    """Return how many changes count in a part: a change, or a group of changes."""
    if isinstance(part, CountedChanges):
        return part.count
    if isinstance(part, ChangesBelow):
        return sum(_count_changes_in_part(each, is_counted) for each in part.parts)
    return int(is_counted(part))


def iterate_changes_with_paths(parts: Sequence[Any], budget: ComparingBudget) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, change) in order; skip pairs of schemas without any change that counts.

    How deep parts are within each other has no bound. Raises ComparisonTooLarge.
    """
    path: list[str] = []
    waiting: list[tuple[Iterator[Any], bool]] = [(iter(parts), False)]
    while waiting:
        inner, is_below = waiting[-1]
        for part in inner:
            budget.spend_steps()
            if isinstance(part, ChangesBelow):
                path.append(part.step)
                waiting.append((iter(part.parts), True))
                break
            if not isinstance(part, CountedChanges):
                budget.spend_steps(len(path))
                yield tuple(path), part
            elif part.count:
                waiting.append((iter(part.parts), False))
                break
        else:
            waiting.pop()
            if is_below:
                path.pop()


def remove_compared_pairs(compared: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Remove the results of compared pairs one by one; `keys` has each pair before those within it.

    What was found may be so much that to let go of it at once would keep all other threads waiting.
    """
    for key in keys:
        compared.pop(key)


def describe_changes(sentences: Iterable[str], count: int, limit: int = CHANGES) -> list[str]:
    """Return sentences on changes, as many as an answer may name, and then how many more there are."""
    named: list[str] = []
    characters = 0
    for sentence in sentences:
        named.append(sentence)
        characters += len(sentence)
        if len(named) == limit or characters > CHARACTERS:
            break
    more = count - len(named)
    if more <= 0:
        return named
    return [*named, f"and {more:,} more" if count < MANY else f"and more than {MANY - limit:,} more"]
