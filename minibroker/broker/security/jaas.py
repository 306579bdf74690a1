"""Login modules of JAAS configurations in one line, as in Kafka's `sasl.jaas.config`, read as Kafka reads them.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret" user_bob='other';

What the options mean is the mechanisms' business. They are secret: no error has any of them in its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
WORD: Final = "word"
QUOTES: Final = "\"'"
OCTAL: Final = "01234567"
ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """A text that Kafka would not take either; one line, with Kafka's words."""


@dataclass(frozen=True)
class LoginModule:
    """The class of a login module, and its options, which are secret."""

    name: str
    options: dict[str, str] = field(repr=False)


def login_module(text: str) -> LoginModule:
    """Return the one login module of a configuration. Raise JaasError."""
    modules = list(_modules(_Tokens(text)))
    if len(modules) != 1:
        raise JaasError(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _modules(tokens: _Tokens) -> Iterator[LoginModule]:
    while (name := tokens.take()) is not None:
        flag = tokens.take()
        if flag is None:
            raise JaasError("Login module control flag not specified in JAAS config")
        if flag.kind is not WORD or flag.text.upper() not in FLAGS:
            raise JaasError("Invalid login module control flag in JAAS config")
        if name.kind is not WORD:
            raise JaasError("Login module not specified in JAAS config")
        yield LoginModule(name.text, dict(_options(tokens)))


def _options(tokens: _Tokens) -> Iterator[tuple[str, str]]:
    while (key := tokens.take()) is not None:
        if key.kind == ";":
            return
        equals, value = tokens.take(), tokens.take()
        if equals is None or equals.kind != "=" or value is None or value.kind is not WORD or key.kind is not WORD:
            raise JaasError("Value not specified for a key in JAAS config")
        yield key.text, value.text
    raise JaasError("JAAS config entry not terminated by semi-colon")


@dataclass(frozen=True)
class _Token:
    """A word, quoted or not, or a single character that is none of a word: then `kind` is that character."""

    kind: str
    text: str = field(default="", repr=False)


class _Tokens:
    """The words of a text as the StreamTokenizer finds them that Kafka's JaasConfig sets up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def take(self) -> _Token | None:
        """Return the next token, or None at the end."""
        self._skip()
        if self._at >= len(self._text):
            return None
        first = self._text[self._at]
        if first in QUOTES:
            return _Token(WORD, self._quoted(first))
        if not _is_of_word(first):
            self._at += 1
            return _Token(first)
        begin = self._at
        while self._at < len(self._text) and _is_of_word(self._text[self._at]):
            self._at += 1
        return _Token(WORD, self._text[begin : self._at])

    def _skip(self) -> None:
        """Pass over blanks and comments; a slash outside of quotes begins one."""
        text = self._text
        while self._at < len(text):
            if text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                self._at = len(text) if end < 0 else end + 2
            elif text[self._at] == "/":
                while self._at < len(text) and text[self._at] not in "\r\n":
                    self._at += 1
            elif text[self._at] <= " ":
                self._at += 1
            else:
                return

    def _quoted(self, quote: str) -> str:
        """Return what stands between quotation marks; the end of a line ends it, too."""
        self._at += 1
        found = []
        while self._at < len(self._text) and self._text[self._at] not in "\r\n":
            character = self._text[self._at]
            self._at += 1
            if character == quote:
                break
            found.append(self._escaped() if character == "\\" else character)
        return "".join(found)

    def _escaped(self) -> str:
        """Return what stands for the characters behind a backslash: up to three octal digits, or one character."""
        text = self._text
        if self._at >= len(text):
            return ""
        longest = 3 if text[self._at] in "0123" else 2
        end = self._at
        while end < min(self._at + longest, len(text)) and text[end] in OCTAL:
            end += 1
        if end > self._at:
            digits, self._at = text[self._at : end], end
            return chr(int(digits, 8))
        self._at += 1
        return ESCAPES.get(text[self._at - 1], text[self._at - 1])


def _is_of_word(character: str) -> bool:
    return character > " " and character not in "\"'/;=" and not "\x81" <= character <= "\x9f"
