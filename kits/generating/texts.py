"""English and names for what is generated."""

from __future__ import annotations

import textwrap

NOTICE = "Written by `python3 -m kits.generating` from the description of the control. Do not edit."


def camel(name: str) -> str:
    """Return the name as Java and JavaScript have it."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def lowered(text: str) -> str:
    """Return a sentence that goes on after a name and a colon, without marks of code."""
    text = " ".join(text.replace("`", "").split())
    return text[:1].lower() + text[1:]


def comment(text: str, start: str, width: int = 110) -> list[str]:
    """Return a comment whose lines begin with `start`."""
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=start)


def inside(text: str) -> str:
    """Return a text for a comment between /** and */."""
    return " ".join(text.split()).replace("*/", "*&#47;")
