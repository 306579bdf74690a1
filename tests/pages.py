"""The blocks of a page that a reader follows: files to write, commands to run, and what these print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BLOCK = re.compile(
    r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|(?:(?<=\n\n)|\A)(?P<indented>(?:    [^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
NAMED = re.compile(r"In\s`(?P<file>[\w./-]+)`:\n\n\Z")


class Block(NamedTuple):
    """A fenced block, or an indented one, whose kind is `sh`. `file` is where the page says to write it, or empty."""

    kind: str
    text: str
    file: str


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in their order."""
    for found in BLOCK.finditer(page):
        named = NAMED.search(page, 0, found.start())
        text = found["text"] if found["indented"] is None else re.sub(r"^    ", "", found["indented"], flags=re.M)
        yield Block(found["kind"] or "sh", text, named["file"] if named else "")
