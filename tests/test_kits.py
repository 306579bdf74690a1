"""What is generated of the kits is up to date, and what is not is small."""

from __future__ import annotations

import json
import re

import pytest

from kits.generating.__main__ import KITS, generated
from minibroker import __version__
from tests.pages import blocks_of

BY_HAND = {"go": "go/*.go", "java": "java/src/main/java/**/*.java", "node": "node/*.[dj]*s"}
LINES_BY_HAND = 400
POM = r"<groupId>(.*)</groupId>\s*<artifactId>minibroker</artifactId>\s*<version>(.*)</version>"
LINES_OF_A_FIRST_TEST = 20
FIRST_TESTS = {  # the file that begins with it, and where it ends
    "go": ("billing_test.go", "\n}\n"),
    "junit": ("src/test/java/billing/BillingTest.java", "\n}\n"),
    "node": ("billing.test.mjs", "\n})\n"),
}


def test_the_generated_verbs_of_the_kits_are_up_to_date() -> None:
    """Otherwise, write it again: python3 -m kits.generating."""
    assert [name for name, text in generated().items() if (KITS / name).read_text() != text] == []


@pytest.mark.parametrize("kit", BY_HAND)
def test_each_kit_has_a_limited_number_of_lines(kit: str) -> None:
    found = {str(path.relative_to(KITS)): path for path in KITS.glob(BY_HAND[kit])}
    by_hand = [path for name, path in found.items() if name not in generated() and "test" not in path.name]
    assert by_hand and sum(path.read_text().count("\n") for path in by_hand) <= LINES_BY_HAND


@pytest.mark.parametrize("kit", FIRST_TESTS)
def test_the_first_test_of_each_kit_is_short(kit: str) -> None:
    name, end = FIRST_TESTS[kit]
    page = (KITS.parent / "docs" / f"first-test-{kit}.md").read_text()
    (text,) = (block.text for block in blocks_of(page) if block.file == name)
    first, end, _ = text.partition(end)
    assert end and (first + end).count("\n") <= LINES_OF_A_FIRST_TEST


def test_the_kits_have_the_version_of_minibroker() -> None:
    assert json.loads((KITS / "node" / "package.json").read_text())["version"] == __version__
    for project in (KITS / "java", KITS.parent / "examples" / "spring-boot"):
        named = re.findall(POM, (project / "pom.xml").read_text())
        assert named == [("io.github.minibroker", __version__)]  # until the owner has decided about the group
