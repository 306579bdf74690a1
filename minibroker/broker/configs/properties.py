r"""Java's .properties syntax, as in `server.properties`.

    # comment          ! comment
    key=value          key : value          key value
    long.value = one,\
                 two                        # leading blanks of a continuation are dropped
    escaped\ key = tab \t, unicode \u00e9

This parses text to pairs; `configuration` interprets them. The library javaproperties (0.8.2) is not used: its import
takes 30 to 70 ms, and unlike Java (compared in conformance/settings), it misreads lines with only a backslash, in 2 %
of random texts of the syntax's characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BLANKS = " \t\f"
# A separator is the first unescaped =, : or blank; blanks around one = or : belong to it.
KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
# A line without its line ending; the last may have none.
LINE = re.compile(r"([^\r\n]+)(?:\r\n|\r|\n|$)|(?:\r\n|\r|\n)")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A pair, and the number of the line it starts on, from 1."""

    key: str
    value: str
    line: int


class MalformedProperties(ValueError):
    """Text that java.util.Properties rejects too; the message is one line."""


def parse_java_properties(text: str) -> Iterator[Property]:
    """Yield the pairs in their order, duplicates included. Raises MalformedProperties."""
    for number, line in _join_continued_lines(text):
        key = KEY.match(line)
        assert key is not None  # the pattern matches the empty string too
        separator = SEPARATOR.match(line, key.end())
        end = key.end() if separator is None else separator.end()
        yield Property(_replace_java_escapes(key[0], number), _replace_java_escapes(line[end:], number), number)


def _join_continued_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, text) of each pair, with continuations joined.

    As in Java, a line with only a backslash starts no pair: the next line may be blank or a comment.
    """
    logical, first, continues = "", 0, False
    for number, physical in enumerate(LINE.findall(text), start=1):
        line = physical.lstrip(BLANKS)
        if not logical:
            first, continues = number, False
            if not line or line[0] in "#!":
                continue
        logical += line
        continues = _is_continued(logical)
        if continues:
            logical = logical[:-1]
        else:
            yield first, logical
            logical = ""
    if continues:
        yield first, logical


def _is_continued(line: str) -> bool:
    """Return whether a line ends in an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _replace_java_escapes(text: str, line: int) -> str:
    r"""Replace escapes. Drop a backslash before any other character; \u needs four hexadecimal digits."""

    def unescape_character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise MalformedProperties(f"line {line}: \\u is not followed by four hexadecimal digits")
        return chr(int(escape[1:], 16)) if len(escape) > 1 else CHARACTERS.get(escape, escape)

    units = ESCAPE.sub(unescape_character, text).encode(
        "utf-16-be", "surrogatepass"
    )  # two of them may be one character
    try:
        return units.decode("utf-16-be")
    except UnicodeDecodeError:
        raise MalformedProperties(f"line {line}: \\u has half of a surrogate pair, which is no text") from None
