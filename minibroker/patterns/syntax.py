"""Parses a pattern in RE2's syntax to a tree, which `program` compiles.

Topic names are ASCII, so a set of characters is a set of those 128, as bits of an integer.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from minibroker.patterns.characters import (
    ALL,
    NO_NEWLINE,
    PERL_CLASSES,
    POSIX_CLASSES,
    add_other_cases_to_set,
    find_unicode_class,
)

MAXIMUM_REPEATS = 1000  # RE2's own limit, of {n,m} within {n,m} too
MAXIMUM_DEPTH = 100
ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
OPERATORS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
CODE_POINTS = 0x110000
TRAILING = "trailing backslash at end of expression"


class InvalidPattern(ValueError):
    """A pattern that RE2 refuses, or that is not supported here.

    `description` says why, and the message also names the part of the pattern.
    """

    def __init__(self, description: str, part: str = "") -> None:
        super().__init__(f"{description}: `{part}`" if part else description)
        self.description = description


class Assertion(Enum):
    """An assertion: it matches a place, not a character."""

    START = "start"
    END = "end"
    WORD_BOUNDARY = "word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


class Characters(NamedTuple):
    """One character of a set."""

    bits: int


class PlaceNode(NamedTuple):
    """A place in the name."""

    assertion: Assertion


class Sequence(NamedTuple):
    """Parts, one after the other."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """Alternatives, any one of them."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """A part from `least` to `most` times, None for any number; `largest` is how often its leaves repeat."""

    part: Node
    least: int
    most: int | None
    largest: int


Node = Characters | PlaceNode | Sequence | Choice | Repeat

PLACES = {
    "A": Assertion.START,
    "z": Assertion.END,
    "b": Assertion.WORD_BOUNDARY,
    "B": Assertion.NO_WORD_BOUNDARY,
}


class PatternReader:
    """Reads one pattern. Flags hold from where they are set to the end of their group."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ignores_case = False
        self._dot = NO_NEWLINE
        self._names: set[str] = set()

    def read_pattern(self) -> Node:
        """Return the tree of the whole pattern. Raises InvalidPattern."""
        node = self._read_choice(0)
        if self._position < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    # --- structure ------------------------------------------------------------------------------

    def _read_choice(self, depth: int) -> Node:
        if depth > MAXIMUM_DEPTH:
            raise InvalidPattern("expression nests too deeply")
        parts = [self._read_sequence(depth)]
        while self._skip_text_if_next("|"):
            parts.append(self._read_sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _read_sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._position < len(self._text) and self._text[self._position] not in "|)":
            self._check_no_operator()
            if self._skip_text_if_next("\\Q"):
                parts += self._read_quoted()
            else:
                part = self._read_single_element(depth)
                if part is not None:
                    parts.append(part)
            if parts:  # after what only sets flags, an operator is for what stands before
                parts.append(self._read_operator(parts.pop()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _read_single_element(self, depth: int) -> Node | None:
        """Read one character, set, place or group; None if it only sets flags."""
        character = self._take_character()
        if character == "(":
            return self._read_group(depth)
        if character == "[":
            return Characters(self._read_set())
        if character == ".":
            return Characters(self._dot)
        if character in "^$":
            return PlaceNode(Assertion.START if character == "^" else Assertion.END)
        if character == "\\":
            return self._read_escape()
        if character == "{" and self._is_operator():
            raise InvalidPattern("invalid nested repetition operator", "{")
        return self._make_literal(ord(character))

    def _is_operator(self) -> bool:
        """Return whether an operator comes next. None may follow a brace: RE2 in Java takes that for one, too."""
        start = self._position
        is_operator = self._read_counts() is not None
        self._position = start
        return is_operator

    def _check_no_operator(self) -> None:
        start = self._position
        if self._read_counts() is not None:
            operator = self._text[start : self._position]
            raise InvalidPattern("missing argument to repetition operator", operator)

    def _read_operator(self, part: Node) -> Node:
        """Read the operator after `part`, if there is one. RE2 refuses two in a row."""
        start = self._position
        counts = self._read_counts()
        if counts is None:
            return part
        self._skip_text_if_next("?")  # not greedy: the same names match
        if self._read_counts() is not None:
            raise InvalidPattern("invalid nested repetition operator", self._text[start : self._position])
        least, most = counts
        largest = _find_largest_count(part) * max(least, most or 0, 1)
        if largest > MAXIMUM_REPEATS and (most or least) > 1:
            raise InvalidPattern("invalid repeat count", self._text[start : self._position])
        return Repeat(part, least, most, largest)

    def _read_counts(self) -> tuple[int, int | None] | None:
        if self._peek_character() in OPERATORS:
            return OPERATORS[self._take_character()]
        if self._peek_character() != "{":
            return None
        end = self._text.find("}", self._position)
        least, comma, most = self._text[self._position + 1 : end].partition(",")
        if end < 0 or not _is_number(least) or (most and not _is_number(most)):
            return None  # then it is a brace like any other character
        text = self._text[self._position : end + 1]
        low, high = int(least), int(most) if most else None if comma else int(least)
        if max(low, high or 0) > MAXIMUM_REPEATS or (high is not None and high < low):
            raise InvalidPattern("invalid repeat count", text)
        self._position = end + 1
        return low, high

    def _read_group(self, depth: int) -> Node | None:
        flags = self._ignores_case, self._dot
        if self._skip_text_if_next("?"):
            if self._skip_text_if_next("P<") or self._skip_text_if_next("<"):
                self._read_name()
            elif not self._read_flags():
                return None
        node = self._read_choice(depth + 1)
        if not self._skip_text_if_next(")"):
            raise InvalidPattern("missing closing )")
        self._ignores_case, self._dot = flags
        return node

    def _read_name(self) -> None:
        end = self._text.find(">", self._position)
        name = self._text[self._position : max(end, 0)]
        if end < 0 or not name or not all(each.isascii() and (each.isalnum() or each == "_") for each in name):
            raise InvalidPattern("invalid named capture")
        if name in self._names:
            raise InvalidPattern("duplicate capture group name", name)
        self._names.add(name)
        self._position = end + 1

    def _read_flags(self) -> bool:
        """Set the flags of `(?flags)` or `(?flags:`; return whether a group follows."""
        start = self._position
        value, seen = True, False
        while True:
            letter = self._take_character("missing argument to group")
            if letter in ":)" and (value or seen):
                return letter == ":"
            if letter == "-" and value:
                value, seen = False, False
                continue
            if letter not in "imsU":
                raise InvalidPattern("invalid or unsupported Perl syntax", f"(?{self._text[start : self._position]}")
            seen = True
            if letter == "i":
                self._ignores_case = value
            elif letter == "s":
                self._dot = ALL if value else NO_NEWLINE

    # --- characters -----------------------------------------------------------------------------

    def _make_literal(self, code: int) -> Node:
        bits = 1 << code if code < 128 else 0  # no topic's name has any other
        return Characters(add_other_cases_to_set(bits) if self._ignores_case else bits)

    def _read_escape(self) -> Node:
        letter = self._take_character(TRAILING)
        if letter in PLACES:
            return PlaceNode(PLACES[letter])
        bits = self._read_class_escape(letter)
        if bits is not None:
            return Characters(bits)
        return self._make_literal(self._read_character_code(letter))

    def _read_quoted(self) -> list[Node]:
        """Read the text between \\Q and \\E, or the end; an operator after it applies to its last character."""
        end = self._text.find("\\E", self._position)
        text = self._text[self._position :] if end < 0 else self._text[self._position : end]
        self._position = len(self._text) if end < 0 else end + 2
        return [self._make_literal(ord(each)) for each in text] or [Sequence(())]

    def _read_class_escape(self, letter: str) -> int | None:
        """Read \\d, \\s, \\w, \\pL, \\p{Greek} or one of their opposites."""
        if letter.lower() in PERL_CLASSES:
            bits = PERL_CLASSES[letter.lower()]
            return ALL & ~bits if letter.isupper() else bits
        if letter not in "pP":
            return None
        name = self._take_character("invalid character class range: `\\p`")
        if name == "{":
            end = self._text.find("}", self._position)
            if end < 0:
                raise InvalidPattern("invalid character class range", "\\p{")
            name, self._position = self._text[self._position : end], end + 1
        negated = (letter == "P") != name.startswith("^")
        known = find_unicode_class(name.removeprefix("^"))
        if known is None:
            raise InvalidPattern("invalid character class range", f"\\{letter}{{{name}}}")
        if self._ignores_case:
            known = add_other_cases_to_set(known)
        return ALL & ~known if negated else known

    def _read_character_code(self, letter: str) -> int:
        """Read the character of an escape."""
        if letter in ESCAPES:
            return ESCAPES[letter]
        if letter == "x":
            return self._read_hexadecimal()
        if letter in "01234567":
            return self._read_octal(letter)
        if not (letter.isascii() and letter.isalnum()):
            return ord(letter)
        raise InvalidPattern("invalid escape sequence", f"\\{letter}")

    def _read_hexadecimal(self) -> int:
        if self._skip_text_if_next("{"):
            end = self._text.find("}", self._position)
            digits, self._position = self._text[self._position : max(end, 0)], end + 1
        else:
            digits = self._text[self._position : self._position + 2]
            self._position += 2
            digits = digits if len(digits) == 2 else ""
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise InvalidPattern("invalid escape sequence", "\\x")
        if int(digits, 16) >= CODE_POINTS:
            raise InvalidPattern("invalid escape sequence", "\\x")
        return int(digits, 16)

    def _read_octal(self, first: str) -> int:
        """Read octal digits; a single one other than 0 would be a backreference, which RE2 does not have."""
        digits = first
        while len(digits) < 3 and self._peek_character() in tuple("01234567"):
            digits += self._take_character()
        if first != "0" and len(digits) == 1:
            raise InvalidPattern("invalid escape sequence", f"\\{first}")
        return int(digits, 8)

    # --- sets -----------------------------------------------------------------------------------

    def _read_set(self) -> int:
        start = self._position - 1
        negated = self._skip_text_if_next("^")
        bits, first = 0, True
        while first or self._peek_character() != "]":
            if self._position >= len(self._text):
                raise InvalidPattern("missing closing ]", self._text[start:])
            bits |= self._read_set_member()
            first = False
        self._position += 1
        if self._ignores_case:
            bits = add_other_cases_to_set(bits)
        return ALL & ~bits if negated else bits

    def _read_set_member(self) -> int:
        """Read one class, character or range of a set."""
        if self._text.startswith("[:", self._position) and (end := self._text.find(":]", self._position)) >= 0:
            name = self._text[self._position + 2 : end]
            if name.removeprefix("^") not in POSIX_CLASSES:
                raise InvalidPattern("invalid character class range", f"[:{name}:]")
            self._position = end + 2
            bits = POSIX_CLASSES[name.removeprefix("^")]
            return ALL & ~bits if name.startswith("^") else bits
        character = self._take_character()
        if character == "\\":
            letter = self._take_character(TRAILING)
            known = self._read_class_escape(letter)
            if known is not None:
                return known
            low = self._read_character_code(letter)
        else:
            low = ord(character)
        return self._read_range(low)

    def _read_range(self, low: int) -> int:
        """Read the end of a range that begins with `low`; return its characters, or `low` alone."""
        high = low
        if self._peek_character() == "-" and self._text[self._position + 1 : self._position + 2] not in ("]", ""):
            self._position += 1
            character = self._take_character()
            high = self._read_character_code(self._take_character(TRAILING)) if character == "\\" else ord(character)
            if high < low:
                raise InvalidPattern("invalid character class range", f"{chr(low)}-{chr(high)}")
        return ALL & ((1 << high + 1) - (1 << low)) if low < 128 else 0

    # --- text -----------------------------------------------------------------------------------

    def _peek_character(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take_character(self, error_at_end: str = "unexpected end") -> str:
        if self._position >= len(self._text):
            raise InvalidPattern(error_at_end)
        self._position += 1
        return self._text[self._position - 1]

    def _skip_text_if_next(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True


def _is_number(text: str) -> bool:
    """Return whether a text is a count as RE2 reads it: decimal, without leading zeros, of a few digits."""
    return 0 < len(text) <= 9 and text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")


def _find_largest_count(node: Node) -> int:
    """Return how often the leaves of `node` repeat by counts, at most."""
    if isinstance(node, Repeat):
        return node.largest
    if isinstance(node, Sequence | Choice):
        return max(map(_find_largest_count, node.parts), default=1)
    return 1
