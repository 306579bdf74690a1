"""Finds regular expressions of schemas in names, in linear time and within a limit: a schema may come from anyone."""

from __future__ import annotations

from typing import Final

from minibroker.patterns.program import MAXIMUM_EFFORT, Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.registry.formats.comparing_budget import ComparingBudget

EFFORT_OF_A_CHARACTER: Final = 10  # of a pattern, to compile it


class PatternFinder:
    """Searches for one comparison: the instructions of patterns are steps of its budget.

    Its patterns are its own: threads search at the same time, and a pattern counts its effort and keeps what it found.
    """

    def __init__(self, budget: ComparingBudget) -> None:
        self._budget = budget
        self._patterns: dict[str, Pattern | None] = {}

    def matches_part_of_name(self, pattern: str, name: str) -> bool:
        """Return whether a pattern matches a part of a name. Raises ComparisonTooLarge.

        Patterns are read as RE2's. One that is none, such as one that looks ahead, is never found. Characters that are
        not ASCII are matched by a dot, but by nothing else.
        """
        if pattern not in self._patterns:
            self._budget.spend_steps(len(pattern) * EFFORT_OF_A_CHARACTER)
            self._patterns[pattern] = _compile_pattern(pattern)
        self._budget.spend_steps(1 + len(name))
        compiled = self._patterns[pattern]
        if compiled is None:
            return False
        before = compiled.effort = max(MAXIMUM_EFFORT - self._budget.left, 0)
        try:
            is_match = compiled.matches("".join(letter if letter.isascii() else "\x7f" for letter in name))
        except InvalidPattern:
            is_match = False  # its effort is more than what is left of the budget
        self._budget.spend_steps(compiled.effort - before)
        return is_match


def _compile_pattern(pattern: str) -> Pattern | None:
    """Return a pattern that matches names as a whole, or None if it is none."""
    try:
        return Pattern(f"(?s:.*)(?:{pattern})(?s:.*)")
    except InvalidPattern:
        return None
