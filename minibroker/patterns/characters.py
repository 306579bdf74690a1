"""The character sets that RE2 has names for, as bits of an integer; only ASCII, as topic names have nothing else."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

SIZE = 128
ALL = (1 << SIZE) - 1
NO_NEWLINE = ALL & ~(1 << ord("\n"))


def make_character_set(characters: Iterable[str]) -> int:
    """Return the set of these characters."""
    bits = 0
    for character in characters:
        bits |= 1 << ord(character)
    return bits


def _make_character_set_where(belongs: Callable[[str], bool]) -> int:
    return make_character_set(character for character in map(chr, range(SIZE)) if belongs(character))


def add_other_cases_to_set(character_set: int) -> int:
    """Return the set with each letter in both cases."""
    upper = character_set & UPPER
    lower = character_set & LOWER
    return character_set | upper << 32 | lower >> 32


LOWER = make_character_set(string.ascii_lowercase)
UPPER = make_character_set(string.ascii_uppercase)
DIGITS = make_character_set(string.digits)
WORD = LOWER | UPPER | DIGITS | make_character_set("_")
PUNCTUATION = make_character_set(string.punctuation)

PERL_CLASSES = {"d": DIGITS, "s": make_character_set("\t\n\f\r "), "w": WORD}
POSIX_CLASSES = {
    "alnum": LOWER | UPPER | DIGITS,
    "alpha": LOWER | UPPER,
    "ascii": ALL,
    "blank": make_character_set("\t "),
    "cntrl": _make_character_set_where(lambda character: ord(character) < 32 or ord(character) == 127),
    "digit": DIGITS,
    "graph": LOWER | UPPER | DIGITS | PUNCTUATION,
    "lower": LOWER,
    "print": LOWER | UPPER | DIGITS | PUNCTUATION | make_character_set(" "),
    "punct": PUNCTUATION,
    "space": make_character_set("\t\n\v\f\r "),
    "upper": UPPER,
    "word": WORD,
    "xdigit": DIGITS | make_character_set("abcdefABCDEF"),
}

_CATEGORIES = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs"
_SCRIPTS_OUTSIDE_ASCII = """
Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew
Hiragana Inherited Kannada Katakana Khmer Lao Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thai Tibetan
"""
CATEGORIES = frozenset(_CATEGORIES.split())
SCRIPTS_OUTSIDE_ASCII = frozenset(_SCRIPTS_OUTSIDE_ASCII.split())


@cache
def find_unicode_class(name: str) -> int | None:
    """Return the ASCII characters of a general category or a script; None for an unknown name."""
    if name == "Any":
        return ALL
    if name in CATEGORIES:
        return _make_character_set_where(lambda character: unicodedata.category(character).startswith(name))
    if name == "Latin":
        return LOWER | UPPER
    if name == "Common":
        return ALL & ~(LOWER | UPPER)
    return 0 if name in SCRIPTS_OUTSIDE_ASCII else None
