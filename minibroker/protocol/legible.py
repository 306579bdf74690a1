"""Makes text from outside safe to show in a log line, an error message or a label.

A name may have 32 kB, and may contain line breaks, terminal escapes, and marks that change the direction of writing.
Names themselves are stored and sent unchanged.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

VALUE_CHARACTERS = 300  # the most of a name in a sentence
MESSAGE_CHARACTERS = 600  # the most of a sentence with names
FEW = 3  # the names of a list that are shown


def shorten_text(text: str, limit: int) -> str:
    """Shorten the text to `limit` characters: keep its beginning, and its end, which often says why."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def escape_unprintable(text: str) -> str:
    """Return the text with all unprintable characters escaped as in Python (\\n)."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def format_readable(data: bytes) -> str:
    """Return bytes as one line of text that is safe for a terminal.

    UTF-8 is kept; other bytes, and control characters except tabs, are escaped, such as \\x1b.
    """
    return "\t".join(map(escape_unprintable, data.decode("utf-8", errors="backslashreplace").split("\t")))


def join_lines(text: str) -> str:
    """Return the text without line breaks and repeated blanks."""
    return " ".join(text.split())


def format_first_names(names: Collection[str]) -> str:
    """Return the first names, shortened, and the number of others."""
    shown = ", ".join(shorten_text(name, VALUE_CHARACTERS) for name in islice(names, FEW))
    return shown if len(names) <= FEW else f"{shown} and {len(names) - FEW} more"


def make_legible(text: str, limit: int = VALUE_CHARACTERS) -> str:
    """Return the text shortened, then escaped."""
    return escape_unprintable(shorten_text(text, limit))


def format_bytes_left(count: int) -> str:
    """Return `1 byte is left` or `2 bytes are left`."""
    # Here, and not by `quantities`, which imports more than a start should.
    return f"{count:,} byte is left" if count == 1 else f"{count:,} bytes are left"
