"""The words and signs of a .proto file."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from minibroker.registry.formats.schema import InvalidSchema

MAXIMUM_DEPTH: Final = 50  # of messages, and of the values of options, within each other

# It always matches, so it never goes back. Python 3.11.2 would match the start of an endless comment by `*+`.
_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]+")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUMERIC: Final = re.compile(r"[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})")


class ProtoWords:
    """A text, the place in it that is read next, and how deeply that is nested."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.depth = 0

    def raise_invalid_schema(self, message: str) -> NoReturn:
        """Raise InvalidSchema with the current line and column."""
        line = self.text.count("\n", 0, self.place) + 1
        column = self.place - self.text.rfind("\n", 0, self.place)
        raise InvalidSchema(f"Syntax error in :{line}:{column}: {message}")

    def skip_spaces_and_comments(self) -> None:
        """Skip spaces and comments."""
        match = _SPACE.match(self.text, self.place)
        assert match is not None
        self.place = match.end()

    def peek_character(self) -> str:
        """Skip spaces and comments. Return the next character without taking it."""
        self.skip_spaces_and_comments()
        if self.place >= len(self.text):
            self.raise_invalid_schema("unexpected end of file")
        return self.text[self.place]

    def take_character(self) -> str:
        """Skip spaces and comments. Take the next character, and return it."""
        sign = self.peek_character()
        self.place += 1
        return sign

    def skip_character_if_next(self, expected: str) -> bool:
        """Skip a character if it comes next; return whether it did."""
        if self.peek_character() != expected:
            return False
        self.place += 1
        return True

    def require_character(self, expected: str) -> None:
        """Skip this character. Raises InvalidSchema if another one comes."""
        found = self.take_character()
        if found != expected:
            self.raise_invalid_schema(f"expected '{expected}' but was '{found}'")

    def read_word(self) -> str:
        """Return the next word: a name, a type, a number."""
        self.skip_spaces_and_comments()
        match = _WORD.match(self.text, self.place)
        if match is None:
            self.raise_invalid_schema("expected a word")
        self.place = match.end()
        return match[0]

    def read_name(self) -> str:
        """Return the next word, without parentheses or brackets around it."""
        closing = {"(": ")", "[": "]"}.get(self.peek_character())
        if closing is None:
            return self.read_word()
        self.place += 1
        word = self.read_word()
        self.require_character(closing)
        return word

    def read_number(self) -> int:
        """Return the next word as an integer of 32 bits."""
        word = self.read_word()
        hexadecimal = word[:2].lower() == "0x"
        digits = word[2:] if hexadecimal else word
        if not re.fullmatch(r"-?[0-9a-fA-F]{1,8}" if hexadecimal else r"-?[0-9]{1,10}", digits):
            self.raise_invalid_schema(f"expected an integer but was {word}")
        number = int(digits, 16 if hexadecimal else 10)
        if not -1 << 31 <= number < 1 << 31:
            self.raise_invalid_schema(f"expected an integer but was {word}")
        return number

    def read_quoted_text(self) -> str:
        """Return the next text in quotes; texts that follow each other are one."""
        if self.peek_character() not in "\"'":
            self.raise_invalid_schema("expected a text in quotes")
        parts: list[str] = []
        while self.place < len(self.text) and self.peek_character() in "\"'":
            self._read_quoted_part(parts)
            self.skip_spaces_and_comments()
        return "".join(parts)

    def _read_quoted_part(self, parts: list[str]) -> None:
        """Add the next text in quotes to others."""
        quote = self.take_character()
        while True:
            if self.place >= len(self.text):
                self.raise_invalid_schema("unterminated string")
            character = self.text[self.place]
            self.place += 1
            if character == quote:
                return
            parts.append(self._read_escape() if character == "\\" else character)

    def _read_escape(self) -> str:
        """Return the character that an escape stands for."""
        if self.place >= len(self.text):
            self.raise_invalid_schema("unexpected end of file")
        match = _NUMERIC.match(self.text, self.place)
        if match is not None:
            self.place = match.end()
            return chr(int(match[1], 16) if match[1] else int(match[2], 8))
        letter = self.text[self.place]
        if letter in "xX":
            self.raise_invalid_schema("expected a digit after \\x or \\X")
        self.place += 1
        return _ESCAPES.get(letter, letter)

    def read_data_type(self, word: str) -> str:
        """Return a type that begins with a word."""
        if word != "map":
            return word
        self.require_character("<")
        key = self.read_word()
        self.require_character(",")
        value = self.read_word()
        self.require_character(">")
        return f"map<{key}, {value}>"

    def count_nesting_level(self) -> None:
        """Count one more level of nesting; the caller subtracts it at its end. Raises InvalidSchema if too deep."""
        self.depth += 1
        if self.depth > MAXIMUM_DEPTH:
            self.raise_invalid_schema(f"nested more than {MAXIMUM_DEPTH} levels deep")
