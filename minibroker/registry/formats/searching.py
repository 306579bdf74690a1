"""Finds regular expressions of schemas in names, in linear time and within a limit: a schema may come from anyone."""

from __future__ import annotations

from typing import Final

from minibroker.patterns.program import MAXIMUM_EFFORT, Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.registry.formats.schema import InvalidSchema

EFFORT: Final = 300_000  # of all searches for one answer, in instructions of patterns: about a third of a second
EFFORT_OF_A_CHARACTER: Final = 10  # of a pattern, to compile it


class Finder:
    """Searches for one answer, as long as that is not too much.

    Its patterns are its own: threads search at the same time, and a pattern counts its effort and keeps what it found.
    """

    def __init__(self) -> None:
        self._effort = EFFORT
        self._patterns: dict[str, Pattern | None] = {}

    def found(self, pattern: str, name: str) -> bool:
        """Return whether a pattern matches a part of a name. Raises InvalidSchema if that is too much.

        Patterns are read as RE2's. One that is none, such as one that looks ahead, is never found. Characters that are
        not ASCII are matched by a dot, but by nothing else.
        """
        if pattern not in self._patterns:
            self._effort -= len(pattern) * EFFORT_OF_A_CHARACTER
            self._patterns[pattern] = _compiled(pattern) if self._effort > 0 else None
        self._effort -= 1 + len(name)
        compiled = self._patterns[pattern] if self._effort > 0 else None
        if compiled is not None:
            before = compiled.effort = MAXIMUM_EFFORT - self._effort
            try:
                return compiled.matches("".join(letter if letter.isascii() else "\x7f" for letter in name))
            except InvalidPattern:
                self._effort = 0
            finally:
                self._effort -= compiled.effort - before
        if self._effort <= 0:
            raise InvalidSchema("the patterns of properties take too long to compare")
        return False


def _compiled(pattern: str) -> Pattern | None:
    """Return a pattern that matches names as a whole, or None if it is none."""
    try:
        return Pattern(f"(?s:.*)(?:{pattern})(?s:.*)")
    except InvalidPattern:
        return None
