"""The README's demo shows what a terminal shows today."""

from __future__ import annotations

from xml.etree import ElementTree

from docs.demo import seen, session, shown
from tests.test_readme import README


def test_the_picture_of_the_demo_shows_the_current_output_of_its_commands() -> None:
    picture = ElementTree.parse(README.parent / "docs" / "demo.svg")
    drawn = [element.text or "" for element in picture.iter() if element.tag.endswith("}text")]
    assert drawn == [line.text for line in shown(session())], "draw it anew: python3 -m docs.demo > docs/demo.svg"


def test_a_slow_machine_gives_the_same_picture() -> None:
    assert seen("2 records written, 1 a second\r\x1b[K2 records written\r\n") == ["2 records written"]
    assert seen("..\r\n\x1b[32m2 passed\x1b[0m in 92.34s (0:01:32)\r\n") == ["..", "2 passed"]
