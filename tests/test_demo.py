"""The README's demo shows what a terminal shows today."""

from __future__ import annotations

from xml.etree import ElementTree

from docs.demo import session, shown
from tests.test_readme import README


def test_the_picture_shows_what_the_commands_print_today() -> None:
    picture = ElementTree.parse(README.parent / "docs" / "demo.svg")
    drawn = [element.text or "" for element in picture.iter() if element.tag.endswith("}text")]
    assert drawn == [line.text for line in shown(session())], "draw it anew: python3 -m docs.demo > docs/demo.svg"
