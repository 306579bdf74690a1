"""Text from outside, made fit for people: for a log line, an error message, a label.

A name may have 32 kB, and may hold line breaks, terminal escapes, and marks that turn the direction of writing. Names
themselves are kept and sent as they came.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

VALUE_CHARACTERS = 300  # of a name among other words
MESSAGE_CHARACTERS = 600  # of a sentence that may hold names
FEW = 3  # of the names in a list


def cut(text: str, limit: int) -> str:
    """Return the text with at most `limit` characters: of a longer one its begin and its end, which often says why."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def escaped(text: str) -> str:
    """Return the text in one line that a terminal only shows: other characters are written as in Python, as \\n is."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def few(names: Collection[str]) -> str:
    """Return the first of the names, cut, and how many more there are."""
    told = ", ".join(cut(name, VALUE_CHARACTERS) for name in islice(names, FEW))
    return told if len(names) <= FEW else f"{told} and {len(names) - FEW} more"


def legible(text: str, limit: int = VALUE_CHARACTERS) -> str:
    """Return the text cut, then escaped."""
    return escaped(cut(text, limit))
