"""Subjects in contexts: `:.CONTEXT:SUBJECT`, where the default context is not written.

Ids are unique within a context. A context without a subject names its own config and mode.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

from minibroker.named_tuples import NamedTuple

DEFAULT: Final = "."
WILDCARD: Final = ":*:"  # stands for all contexts
GLOBAL: Final = ".__GLOBAL"  # the context of the config and the mode for all contexts
NOT_SUBJECTS: Final = ("__GLOBAL", "__EMPTY")


class QualifiedSubject(NamedTuple):
    """A subject, which may be empty, and its context."""

    context: str
    subject: str

    @property
    def prefix(self) -> str:
        """The context as it is written before a subject."""
        return "" if self.context == DEFAULT else f":{self.context}:"

    @property
    def text(self) -> str:
        """The whole name."""
        return self.prefix + self.subject


def parse_subject(text: str) -> QualifiedSubject:
    """Parse the name of a subject."""
    if text.startswith(":."):
        context, _, subject = text[1:].partition(":")
        return QualifiedSubject(context, subject)
    if text.startswith(WILDCARD):
        return QualifiedSubject("*", text.removeprefix(WILDCARD))
    return QualifiedSubject(DEFAULT, text)


def get_context_prefix(subject: str | None) -> str:
    """Return the context of a subject as it is written before it; that of None is the default one."""
    return parse_subject(subject or "").prefix


def normalize_subject(text: str) -> str:
    """Return a subject without the default context."""
    return parse_subject(text).text


def qualify_subject_within_context(parent: str | None, subject: str) -> str:
    """Return a subject that is named within another one: without a context of its own, it is in the parent's."""
    own = parse_subject(subject)
    return own.text if own.context != DEFAULT else get_context_prefix(parent) + own.subject


def make_context_prefix(name: str) -> str:
    """Return a context, given with or without its dot and colons, as it is written before a subject.

    Raises ValueError.
    """
    bare = name.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise ValueError("Context name cannot contain a colon")
    return QualifiedSubject(bare if bare.startswith(".") else f".{bare}", "").prefix


def is_valid_subject(text: str, is_config_subject: bool = False) -> bool:
    """Return whether a name may be a subject's, or with `is_config_subject` that of the global context."""
    found = parse_subject(text)
    if any(category(letter) == "Cc" for letter in text) or found.subject in NOT_SUBJECTS:
        return False
    return is_config_subject or found.context != GLOBAL
