"""Login modules of JAAS configurations in one line, as in Kafka's `sasl.jaas.config`, read as Kafka reads them.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='other';

What the options mean is the mechanisms' business. They are secret: no error has any of them in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
WORD: Final = "word"
NUMBER: Final = "number"  # which is no value
QUOTES: Final = "\"'"
# By what they do not contain: re looks at each character of a range, and those above \xa0 are a million.
WORDS: Final = re.compile("[^\x00-#%-@[-^`{-\x9f][^\x00-#%-,/:-@[-^`{-\x9f]*")
NUMBERS: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]*)")
# Blanks; comments; and what a lone slash hides: the next character, and then the rest of the line.
COMMENTS: Final = re.compile(r"[\x00- ]+|/\*(?:.*?\*/|.*)|//[^\r\n]*|/.?[^\r\n]*", re.DOTALL)
OCTAL: Final = re.compile("[0-3][0-7]{0,2}|[4-7][0-7]?")
ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """A text that Kafka would not take either; one line, with Kafka's words."""


@dataclass(frozen=True)
class LoginModule:
    """The class of a login module, and its options, which are secret."""

    name: str
    options: dict[str, str] = field(repr=False)


def parse_login_module(text: str) -> LoginModule:
    """Return the one login module of a configuration. Raises JaasError."""
    modules = list(_iterate_modules(_Tokens(text)))
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _iterate_modules(tokens: _Tokens) -> Iterator[LoginModule]:
    while (name := tokens.take_next_token()) is not None:
        flag = tokens.take_next_token()
        if flag is None:
            raise JaasError("Login module control flag not specified in JAAS config")
        if flag.kind is not WORD or flag.text.upper() not in FLAGS:
            raise JaasError("Invalid login module control flag in JAAS config")
        if name.kind is not WORD:
            raise JaasError("Login module not specified in JAAS config")
        yield LoginModule(name.text, dict(_iterate_options(tokens)))


def _iterate_options(tokens: _Tokens) -> Iterator[tuple[str, str]]:
    while (key := tokens.take_next_token()) is not None:
        if key.kind == ";":
            return
        equals, value = tokens.take_next_token(), tokens.take_next_token()
        if equals is None or equals.kind != "=" or value is None or value.kind is not WORD or key.kind is not WORD:
            raise JaasError("Value not specified for a key in JAAS config")
        yield key.text, value.text
    raise JaasError("JAAS config entry not terminated by semi-colon")


@dataclass(frozen=True)
class _Token:
    """A word, quoted or not, a number, or a single character that is none of these: then `kind` is that character."""

    kind: str
    text: str = field(default="", repr=False)


class _Tokens:
    """The words of a text as Java's StreamTokenizer finds them for Kafka's JaasConfig.

    A word begins with a letter, `_` or `$`, and goes on with digits, points and dashes, too.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take_next_token(self) -> _Token | None:
        """Return the next token, or None at the end."""
        self._skip_blanks()
        if self._at >= len(self._text):
            return None
        found = WORDS.match(self._text, self._at) or NUMBERS.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            return _Token(WORD, found[0]) if found.re is WORDS else _Token(NUMBER)
        self._at += 1
        character = self._text[self._at - 1]
        return _Token(WORD, self._read_quoted(character)) if character in QUOTES else _Token(character)

    def _skip_blanks(self) -> None:
        """Pass over blanks and comments."""
        while self._at < len(self._text):
            found = COMMENTS.match(self._text, self._at)
            if found is None:
                return
            self._at = found.end()

    def _read_quoted(self, quote: str) -> str:
        """Return what stands between quotation marks; the end of a line ends it, too."""
        found = []
        while self._at < len(self._text) and self._text[self._at] not in "\r\n":
            character = self._text[self._at]
            self._at += 1
            if character == quote:
                break
            found.append(self._read_escape() if character == "\\" else character)
        return "".join(found)

    def _read_escape(self) -> str:
        """Return the character that an escape means: up to three octal digits, or one character."""
        found = OCTAL.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
            return chr(int(found[0], 8))
        self._at += 1
        character = self._text[self._at - 1 : self._at]
        return ESCAPES.get(character, character)
